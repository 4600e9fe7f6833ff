package catcher

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/uuid"
)

// Resend answers as api.resend.com does, as far as its specification
// (resend-openapi 1.5.0) and its documentation say.
type Resend struct {
	answers
	Mailbox *Mailbox
	APIKey  string // "": any
	// EventSecret signs what it says of e-mails: whsec_ and base64.
	EventSecret string
	// Window is for how long a key is remembered. Default 24h.
	Window time.Duration

	mu   sync.Mutex
	keys map[string]remembered
}

type remembered struct {
	body []byte
	id   string
	at   time.Time
}

type resendEmail struct {
	From    string            `json:"from"`
	To      json.RawMessage   `json:"to"`
	Subject string            `json:"subject"`
	ReplyTo json.RawMessage   `json:"reply_to"`
	Text    string            `json:"text"`
	HTML    string            `json:"html"`
	Headers map[string]string `json:"headers"`
	Tags    []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"tags"`
	CC          json.RawMessage `json:"cc"`
	BCC         json.RawMessage `json:"bcc"`
	ScheduledAt string          `json:"scheduled_at"`
	Attachments []struct {
		Filename    string `json:"filename"`
		Content     []byte `json:"content"`
		ContentType string `json:"content_type"`
		ContentID   string `json:"content_id"`
	} `json:"attachments"`
}

// ServeHTTP takes POST /emails and answers GET /domains.
func (s *Resend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case key == "" || key == r.Header.Get("Authorization"):
		refuse(w, http.StatusUnauthorized, "missing_api_key", "Missing API key in the authorization header.")
	case s.APIKey != "" && key != s.APIKey:
		refuse(w, http.StatusForbidden, "invalid_api_key", "API key is invalid")
	case r.URL.Path == "/domains" && r.Method == http.MethodGet:
		answer(w, http.StatusOK, map[string]any{"object": "list", "data": []any{}})
	case r.URL.Path != "/emails":
		refuse(w, http.StatusNotFound, "not_found", "The requested endpoint does not exist.")
	case r.Method != http.MethodPost:
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", "Method is not allowed for the requested path.")
	default:
		s.send(w, r)
	}
}

func (s *Resend) send(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 40<<20))
	if err != nil {
		return
	}
	fault := s.Faults.next()
	if s.before(w, r, fault) {
		return
	}
	switch fault {
	case ForGood:
		refuse(w, http.StatusUnprocessableEntity, "invalid_parameter", "The parameter is invalid.")
		return
	case ForNow:
		refuse(w, http.StatusTooManyRequests, "rate_limit_exceeded", "Too many requests.")
		return
	case ForNowAfter:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "rate_limit_exceeded", "Too many requests.")
		return
	case OverQuota:
		refuse(w, http.StatusTooManyRequests, "daily_quota_exceeded", "You have reached your daily email sending quota.")
		return
	case Unauthorized:
		refuse(w, http.StatusForbidden, "invalid_api_key", "API key is invalid")
		return
	}
	e, problem := checkResend(r, body)
	if problem != "" {
		refuse(w, http.StatusUnprocessableEntity, "validation_error", problem)
		return
	}
	id, repeat, status, name := s.accept(r.Header.Get("Idempotency-Key"), body, e)
	if name != "" {
		refuse(w, status, name, "See the idempotency key documentation.")
		return
	}
	if !repeat {
		s.Events.tell(func() []said { return s.says(e, id) })
	}
	if !s.after(w, r, fault) {
		answer(w, http.StatusOK, map[string]string{"id": id})
	}
}

// accept takes an e-mail, or finds it under its key.
func (s *Resend) accept(key string, body []byte, e *resendEmail) (id string, repeat bool, status int, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(key) > 256 {
		return "", false, http.StatusBadRequest, "invalid_idempotency_key"
	}
	window := s.Window
	if window == 0 {
		window = 24 * time.Hour
	}
	if known, ok := s.keys[key]; ok && key != "" && time.Since(known.at) < window {
		if !bytes.Equal(known.body, body) {
			return "", false, http.StatusConflict, "invalid_idempotent_request"
		}
		return known.id, true, 0, ""
	}
	id = uuid.New().String()
	if key != "" {
		if s.keys == nil {
			s.keys = map[string]remembered{}
		}
		s.keys[key] = remembered{body, id, time.Now()}
	}
	s.Mailbox.Add(Mail{
		ID: id, Via: "resend", Key: key, From: e.From, To: append(addresses(e.To), addresses(e.CC)...), Subject: e.Subject, Text: e.Text, At: time.Now(), Raw: body,
	})
	return id, false, 0, ""
}

// checkResend finds what the documentation says is refused.
func checkResend(r *http.Request, body []byte) (*resendEmail, string) {
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); media != "application/json" {
		return nil, "The Content-Type must be application/json."
	}
	var e resendEmail
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return nil, "The request body is not valid: " + err.Error()
	}
	to := addresses(e.To)
	switch {
	case e.From == "" || e.Subject == "" || len(to) == 0:
		return nil, "Missing a required field: from, to or subject."
	case len(to) > 50 || len(addresses(e.CC)) > 50:
		return nil, "The `to` field must have at most 50 addresses."
	case e.Text == "" && e.HTML == "":
		return nil, "Missing `html` or `text` field."
	}
	for _, a := range slices.Concat(to, addresses(e.CC), addresses(e.ReplyTo), []string{e.From}) {
		if _, err := mail.ParseAddress(a); err != nil {
			return nil, "Invalid address in `from`, `to`, `cc` or `reply_to`."
		}
	}
	for _, a := range e.Attachments {
		if a.Filename == "" || len(a.Content) == 0 || len(a.ContentID) >= 128 {
			return nil, "Invalid attachment."
		}
	}
	for _, t := range e.Tags {
		if !isTag(t.Name) || !isTag(t.Value) {
			return nil, "Tags should only contain ASCII letters, numbers, underscores, or dashes."
		}
	}
	return &e, ""
}

func isTag(text string) bool {
	return text != "" && len(text) <= 256 && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// addresses reads a field that is one address or a list of them.
func addresses(field json.RawMessage) []string {
	var one string
	if json.Unmarshal(field, &one) == nil && one != "" {
		return []string{one}
	}
	var list []string
	if json.Unmarshal(field, &list) == nil {
		return list
	}
	return nil
}

func refuse(w http.ResponseWriter, status int, name, message string) {
	answer(w, status, map[string]any{"statusCode": status, "name": name, "message": message})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
