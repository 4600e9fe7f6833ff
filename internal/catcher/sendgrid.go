package catcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/uuid"
)

// SendGrid answers as api.sendgrid.com does, as far as its specifications
// (sendgrid-oai, tsg_mail_v3 and tsg_email_activity_v3) say.
type SendGrid struct {
	answers
	Mailbox    *Mailbox
	APIKey     string // "": any
	Scopes     []string
	NoActivity bool // the account has bought no history of activity

	mu       sync.Mutex
	activity []sendGridMessage // newest last

	events sendGridKey
}

type sendGridAddress struct {
	Email string `json:"email"`
	Name  string `json:"name"`
}

type sendGridEmail struct {
	Personalizations []struct {
		To []sendGridAddress `json:"to"`
		CC []sendGridAddress `json:"cc"`
	} `json:"personalizations"`
	From    sendGridAddress   `json:"from"`
	ReplyTo *sendGridAddress  `json:"reply_to"`
	Replies []sendGridAddress `json:"reply_to_list"`
	Subject string            `json:"subject"`
	Content []struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	} `json:"content"`
	Attachments []struct {
		Content     []byte `json:"content"`
		Type        string `json:"type"`
		Filename    string `json:"filename"`
		Disposition string `json:"disposition"`
		ContentID   string `json:"content_id"`
	} `json:"attachments"`
	Headers    map[string]string `json:"headers"`
	CustomArgs map[string]string `json:"custom_args"`
}

// ServeHTTP takes POST /v3/mail/send, and answers GET /v3/scopes, /v3/messages and
// /v3/messages/ID.
func (s *SendGrid) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !bearer || key == "" || s.APIKey != "" && key != s.APIKey:
		sendGridRefuses(w, http.StatusUnauthorized, "", "The provided authorization grant is invalid, expired, or revoked")
	case r.Method == http.MethodGet && r.URL.Path == "/v3/scopes":
		scopes := s.Scopes
		if scopes == nil {
			scopes = []string{"mail.send"}
		}
		answer(w, http.StatusOK, map[string]any{"scopes": scopes})
	case r.Method == http.MethodPost && r.URL.Path == "/v3/mail/send":
		s.send(w, r)
	case r.Method == http.MethodGet && (r.URL.Path == "/v3/messages" || strings.HasPrefix(r.URL.Path, "/v3/messages/")):
		s.shows(w, r)
	default:
		sendGridRefuses(w, http.StatusNotFound, "", "not found")
	}
}

func (s *SendGrid) send(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 31<<20))
	if err != nil {
		return
	}
	fault := s.Faults.next()
	if s.before(w, r, fault) {
		return
	}
	switch fault {
	case ForGood:
		sendGridRefuses(w, http.StatusBadRequest, "personalizations.0.to.0.email", "Does not contain a valid address.")
		return
	case ForNow:
		sendGridRefuses(w, http.StatusTooManyRequests, "", "too many requests")
		return
	case ForNowAfter:
		w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Add(2*time.Second).Unix()))
		sendGridRefuses(w, http.StatusTooManyRequests, "", "too many requests")
		return
	case Unauthorized:
		sendGridRefuses(w, http.StatusUnauthorized, "", "The provided authorization grant is invalid, expired, or revoked")
		return
	}
	if len(body) > 30<<20 {
		sendGridRefuses(w, http.StatusRequestEntityTooLarge, "", "The request is over 30 MB.")
		return
	}
	e, field := checkSendGrid(r, body)
	if field != "" {
		sendGridRefuses(w, http.StatusBadRequest, field, "It is not valid.")
		return
	}
	id := strings.ReplaceAll(uuid.New().String(), "-", "")[:22]
	m := Mail{ID: id, Via: "sendgrid", From: e.From.Email, Subject: e.Subject, At: time.Now(), Raw: body}
	for _, p := range e.Personalizations {
		for _, to := range append(p.To, p.CC...) {
			m.To = append(m.To, to.Email)
		}
	}
	if e.Content[0].Type == "text/plain" {
		m.Text = e.Content[0].Value
	}
	s.remember(e, id, m.To)
	s.Mailbox.Add(m)
	s.Events.tell(func() []said { return s.says(e, id) })
	if !s.after(w, r, fault) {
		w.Header().Set("X-Message-Id", id)
		w.WriteHeader(http.StatusAccepted)
	}
}

// checkSendGrid finds what the specification says is refused, by its field.
func checkSendGrid(r *http.Request, body []byte) (e sendGridEmail, field string) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); media != "application/json" || dec.Decode(&e) != nil {
		return e, "body"
	}
	switch {
	case len(e.Personalizations) == 0 || len(e.Personalizations) > 1000 || len(e.Personalizations[0].To) == 0:
		return e, "personalizations"
	case len(e.Content) == 0 || len(e.Content) > 2:
		return e, "content"
	case len(e.Content) == 2 && (e.Content[0].Type != "text/plain" || e.Content[1].Type != "text/html"):
		return e, "content"
	case e.Subject == "":
		return e, "subject"
	}
	for _, c := range e.Content {
		if c.Value == "" {
			return e, "content.value"
		}
	}
	for _, a := range e.Attachments {
		if a.Filename == "" || len(a.Content) == 0 || a.Disposition == "inline" && a.ContentID == "" || a.Disposition != "inline" && a.Disposition != "attachment" {
			return e, "attachments"
		}
	}
	if e.ReplyTo != nil && e.Replies != nil {
		return e, "reply_to_list"
	}
	addresses := slices.Concat([]sendGridAddress{e.From}, e.Personalizations[0].To, e.Personalizations[0].CC, e.Replies)
	if e.ReplyTo != nil {
		addresses = append(addresses, *e.ReplyTo)
	}
	for _, a := range addresses {
		if found, err := mail.ParseAddress(a.Email); err != nil || found.Address != a.Email {
			return e, "email"
		}
	}
	return e, ""
}

func sendGridRefuses(w http.ResponseWriter, status int, field, message string) {
	var about any // null
	if field != "" {
		about = field
	}
	answer(w, status, map[string]any{"errors": []any{map[string]any{"message": message, "field": about, "help": nil}}, "id": "1"})
}
