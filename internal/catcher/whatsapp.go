package catcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// WhatsApp answers as the Cloud API does, as far as Meta's documentation says.
type WhatsApp struct {
	answers
	Mailbox *Mailbox
	Token   string // "": any
	// AppSecret signs what it says of messages.
	AppSecret string

	sent atomic.Int64
}

type whatsAppMessage struct {
	Product     string          `json:"messaging_product"`
	Whom        string          `json:"recipient_type"` // individual or group
	To          string          `json:"to"`
	Recipient   string          `json:"recipient"`
	Type        string          `json:"type"`
	Text        json.RawMessage `json:"text"`
	Template    json.RawMessage `json:"template"`
	Interactive json.RawMessage `json:"interactive"`
	Context     json.RawMessage `json:"context"`
	Marker      string          `json:"biz_opaque_callback_data"`
}

var whatsAppPath = regexp.MustCompile(`^(/v[0-9.]+)?/([0-9]+)(/messages)?$`)

// ServeHTTP takes POST /NUMBER/messages and answers GET /NUMBER, with a version before it
// or not.
func (s *WhatsApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	path := whatsAppPath.FindStringSubmatch(r.URL.Path)
	switch {
	case !bearer, s.Token != "" && token != s.Token:
		whatsAppRefuses(w, http.StatusUnauthorized, 190)
	case path == nil:
		whatsAppRefuses(w, http.StatusBadRequest, 100)
	case path[3] == "" && r.Method == http.MethodGet:
		answer(w, http.StatusOK, map[string]string{"id": path[2], "display_phone_number": "+1 555 0100", "verified_name": "Dev"})
	case path[3] != "" && r.Method == http.MethodPost:
		s.send(w, r)
	default:
		whatsAppRefuses(w, http.StatusBadRequest, 100)
	}
}

func (s *WhatsApp) send(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	fault := s.Faults.next()
	if s.before(w, r, fault) {
		return
	}
	switch fault {
	case ForGood:
		whatsAppRefuses(w, http.StatusBadRequest, 131026)
		return
	case OptedOut:
		whatsAppRefuses(w, http.StatusBadRequest, 131050)
		return
	case ForNow:
		whatsAppRefuses(w, http.StatusBadRequest, 130429)
		return
	case ForNowAfter:
		w.Header().Set("Retry-After", "1")
		whatsAppRefuses(w, http.StatusTooManyRequests, 80007)
		return
	case Unauthorized:
		whatsAppRefuses(w, http.StatusUnauthorized, 190)
		return
	}
	m, to, code := checkWhatsApp(r, body)
	if code != 0 {
		status := http.StatusBadRequest
		if code == noTemplate {
			status = http.StatusNotFound
		}
		whatsAppRefuses(w, status, code)
		return
	}
	var text struct {
		Body string `json:"body"`
		Name string `json:"name"` // of a template
	}
	_ = json.Unmarshal(m.Text, &text)
	_ = json.Unmarshal(m.Template, &text)
	id := fmt.Sprintf("wamid.%d", s.sent.Add(1))
	s.Mailbox.Add(Mail{ID: id, Via: "whatsapp", Key: m.Marker, To: []string{to}, Text: text.Body + text.Name, At: time.Now(), Raw: body})
	s.Events.tell(func() []said { return s.says(m, to, id) })
	if fault == ServerError {
		whatsAppRefuses(w, http.StatusInternalServerError, 131000)
		return
	}
	if !s.after(w, r, fault) {
		answer(w, http.StatusOK, map[string]any{
			"messaging_product": "whatsapp", "contacts": []any{map[string]string{"input": to, "wa_id": to}}, "messages": []any{map[string]string{"id": id, "message_status": "accepted"}},
		})
	}
}

// noTemplate is said of a template that the account has not got in that language: here those
// whose names begin with "unknown".
const noTemplate = 132001

// checkWhatsApp finds what the documentation says is refused, by its code.
func checkWhatsApp(r *http.Request, body []byte) (m whatsAppMessage, to string, code int) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); media != "application/json" || dec.Decode(&m) != nil {
		return m, "", 100
	}
	to = m.To
	if to == "" {
		to = m.Recipient
	}
	said := map[string]json.RawMessage{"text": m.Text, "template": m.Template, "interactive": m.Interactive}[m.Type]
	var text struct {
		Body       string `json:"body"`
		PreviewURL bool   `json:"preview_url"`
	}
	var template struct {
		Name     string `json:"name"`
		Language struct {
			Code string `json:"code"`
		} `json:"language"`
	}
	switch {
	case m.Product != "whatsapp" || to == "" || said == nil || m.To != "" && m.Recipient != "":
		return m, to, 131008
	case m.Whom != "individual" && m.Whom != "group":
		return m, to, 131009
	case m.Type == "text" && (json.Unmarshal(said, &text) != nil || text.Body == "" || len([]rune(text.Body)) > 4096):
		return m, to, 131009
	case m.Type == "template" && (json.Unmarshal(said, &template) != nil || template.Name == "" || template.Language.Code == ""):
		return m, to, 131008
	case strings.HasPrefix(template.Name, "unknown"):
		return m, to, noTemplate
	case len(m.Marker) > 512:
		return m, to, 131009
	}
	return m, to, 0
}

func whatsAppRefuses(w http.ResponseWriter, status, code int) {
	answer(w, status, map[string]any{"error": map[string]any{
		"message": fmt.Sprintf("(#%d) it is refused", code), "type": "OAuthException", "code": code, "fbtrace_id": "A1",
		"error_data": map[string]string{"messaging_product": "whatsapp", "details": "see the documentation"},
	}})
}
