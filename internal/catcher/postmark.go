package catcher

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/mail"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/uuid"
)

// Postmark answers as api.postmarkapp.com does, as far as its documentation says.
type Postmark struct {
	answers
	Mailbox *Mailbox
	Token   string // "": any

	EventUser, EventPassword string // of who is told what becomes of e-mails
}

type postmarkEmail struct {
	From          string            `json:"From"`
	To            string            `json:"To"`
	CC            string            `json:"Cc"`
	Subject       string            `json:"Subject"`
	ReplyTo       string            `json:"ReplyTo"`
	TextBody      string            `json:"TextBody"`
	HTMLBody      string            `json:"HtmlBody"`
	Metadata      map[string]string `json:"Metadata"`
	MessageStream string            `json:"MessageStream"`
	Headers       []struct {
		Name  string `json:"Name"`
		Value string `json:"Value"`
	} `json:"Headers"`
	Attachments []struct {
		Name        string `json:"Name"`
		Content     []byte `json:"Content"`
		ContentType string `json:"ContentType"`
		ContentID   string `json:"ContentID"`
	} `json:"Attachments"`
}

// ServeHTTP takes POST /email and answers GET /server.
func (s *Postmark) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("X-Postmark-Server-Token")
	switch {
	case token == "", s.Token != "" && token != s.Token:
		postmarkRefuses(w, http.StatusUnauthorized, 10, "Request does not contain a valid Server token.")
	case r.Method == http.MethodGet && r.URL.Path == "/server":
		answer(w, http.StatusOK, map[string]any{"ID": 1, "Name": "Dev"})
	case r.Method == http.MethodPost && r.URL.Path == "/email":
		s.send(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *Postmark) send(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 10<<20))
	if err != nil {
		return
	}
	fault := s.Faults.next()
	if s.before(w, r, fault) {
		return
	}
	switch fault {
	case ForGood:
		postmarkRefuses(w, http.StatusUnprocessableEntity, 406, "You tried to send to a recipient that has been marked as inactive.")
		return
	case ForNow:
		postmarkRefuses(w, http.StatusTooManyRequests, 429, "Rate limit exceeded.")
		return
	case ForNowAfter:
		w.Header().Set("Retry-After", "1")
		postmarkRefuses(w, http.StatusTooManyRequests, 429, "Rate limit exceeded.")
		return
	case Unauthorized:
		postmarkRefuses(w, http.StatusUnauthorized, 10, "Request does not contain a valid Server token.")
		return
	}
	e, code, problem := checkPostmark(r, body)
	if code != 0 {
		postmarkRefuses(w, http.StatusUnprocessableEntity, code, problem)
		return
	}
	id := uuid.New().String()
	to := []string{e.To}
	if e.CC != "" {
		to = append(to, strings.Split(e.CC, ",")...)
	}
	s.Mailbox.Add(Mail{ID: id, Via: "postmark", From: e.From, To: to, Subject: e.Subject, Text: e.TextBody, At: time.Now(), Raw: body})
	s.Events.tell(func() []said { return s.says(e, id) })
	if !s.after(w, r, fault) {
		answer(w, http.StatusOK, map[string]any{"To": e.To, "SubmittedAt": time.Now(), "MessageID": id, "ErrorCode": 0, "Message": "OK"})
	}
}

// checkPostmark finds what the documentation says is refused, by its code.
func checkPostmark(r *http.Request, body []byte) (e postmarkEmail, code int, problem string) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); media != "application/json" || r.Header.Get("Accept") != "application/json" {
		return e, 409, "The Accept and Content-Type headers must be application/json."
	}
	if err := dec.Decode(&e); err != nil {
		return e, 403, "Incompatible JSON."
	}
	for _, address := range []string{e.From, e.To} {
		if _, err := mail.ParseAddress(address); err != nil {
			return e, 300, "Invalid 'From' or 'To' address."
		}
	}
	for _, list := range []string{e.CC, e.ReplyTo} {
		if _, err := mail.ParseAddressList(list); list != "" && err != nil {
			return e, 300, "Invalid 'Cc' or 'ReplyTo' address."
		}
	}
	for _, a := range e.Attachments {
		if a.Name == "" || len(a.Content) == 0 || a.ContentType == "" || a.ContentID != "" && !strings.HasPrefix(a.ContentID, "cid:") {
			return e, 300, "Invalid attachment."
		}
	}
	switch {
	case e.TextBody == "" && e.HTMLBody == "":
		return e, 300, "Provide either email TextBody or HtmlBody or both."
	case len([]rune(e.Subject)) > 2000:
		return e, 300, "The Subject is over 2000 characters."
	case len(e.Metadata) > 10:
		return e, 300, "Metadata has more than 10 fields."
	}
	for name, value := range e.Metadata {
		if len(name) > 20 || len(value) > 80 {
			return e, 300, "A name of Metadata is over 20 characters, or its value over 80."
		}
	}
	return e, 0, ""
}

func postmarkRefuses(w http.ResponseWriter, status, code int, message string) {
	answer(w, status, map[string]any{"ErrorCode": code, "Message": message})
}
