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

// Resend answers as api.resend.com does, as far as its specification
// (resend-openapi 1.5.0) and its documentation say.
type Resend struct {
	answers
	Mailbox *Mailbox
	APIKey  string // "": any
	// EventSecret signs what it says of e-mails: whsec_ and base64.
	EventSecret string
	// Refuses is a recipient to whom no e-mail may go.
	Refuses string
	// Window is for how long a key is remembered. Default 24h.
	Window time.Duration

	mu   sync.Mutex
	keys map[string]resendCall
}

type remembered struct {
	body []byte
	id   string
	at   time.Time
}

// resendCall is what was answered to a call under a key.
type resendCall struct {
	body   []byte
	answer any
	at     time.Time
}

// resendBatch is the most that POST /emails/batch takes.
const resendBatch = 100

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

// ServeHTTP takes POST /emails and POST /emails/batch and answers GET /domains.
func (s *Resend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case key == "" || key == r.Header.Get("Authorization"):
		refuse(w, http.StatusUnauthorized, "missing_api_key", "Missing API key in the authorization header.")
	case s.APIKey != "" && key != s.APIKey:
		refuse(w, http.StatusForbidden, "invalid_api_key", "API key is invalid")
	case r.URL.Path == "/domains" && r.Method == http.MethodGet:
		answer(w, http.StatusOK, map[string]any{"object": "list", "data": []any{}})
	case r.URL.Path != "/emails" && r.URL.Path != "/emails/batch":
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
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); media != "application/json" {
		refuse(w, http.StatusUnprocessableEntity, "validation_error", "The Content-Type must be application/json.")
		return
	}
	read := readOne
	if r.URL.Path == "/emails/batch" {
		permissive := r.Header.Get("X-Batch-Validation") == "permissive"
		read = func(body []byte) ([]parsed, string) { return readBatch(body, permissive) }
	}
	list, problem := read(body)
	for i, p := range list {
		if p.problem == "" && s.Refuses != "" && slices.Contains(addresses(p.email.To), s.Refuses) {
			list[i].problem = "The recipient " + s.Refuses + " is refused."
		}
	}
	if len(list) == 1 && r.URL.Path == "/emails" && problem == "" {
		problem = list[0].problem
	}
	if problem != "" {
		refuse(w, http.StatusUnprocessableEntity, "validation_error", problem)
		return
	}
	said, told, status, name := s.accept(r, body, list)
	if name != "" {
		refuse(w, status, name, "See the idempotency key documentation.")
		return
	}
	for _, of := range told {
		s.Events.tell(of)
	}
	if fault == ShortAccepted {
		said = short(said)
	}
	if !s.after(w, r, fault) {
		answer(w, http.StatusOK, said)
	}
}

// short is an answer without the last id.
func short(said any) any {
	batch, ok := said.(resendBatchAnswer)
	if !ok {
		return struct{}{}
	}
	batch.Data = batch.Data[:len(batch.Data)-1]
	return batch
}

// resendTaken is an e-mail that was taken.
type resendTaken struct {
	ID string `json:"id"`
}

type resendBatchAnswer struct {
	Data   []resendTaken   `json:"data"`
	Errors []resendProblem `json:"errors,omitempty"`
}

type resendProblem struct {
	Index   int    `json:"index"`
	Message string `json:"message"`
}

// parsed is an e-mail of a request, or what is wrong with it.
type parsed struct {
	email   *resendEmail
	raw     []byte
	problem string
}

func readOne(body []byte) ([]parsed, string) {
	e, problem := checkResend(body)
	return []parsed{{email: e, raw: body}}, problem
}

// readBatch reads a list. Strictly, one that is wrong is all of it.
func readBatch(body []byte, permissive bool) ([]parsed, string) {
	var raws []json.RawMessage
	if err := json.Unmarshal(body, &raws); err != nil || len(raws) == 0 || len(raws) > resendBatch {
		return nil, fmt.Sprintf("The request body must be an array of 1 to %d emails.", resendBatch)
	}
	list := make([]parsed, len(raws))
	for i, raw := range raws {
		e, problem := checkResend(raw)
		if problem == "" && (e.Attachments != nil || e.ScheduledAt != "") {
			problem = "The `attachments` and `scheduled_at` fields are not supported in a batch."
		}
		if problem != "" && !permissive {
			return nil, problem
		}
		list[i] = parsed{e, raw, problem}
	}
	return list, ""
}

// accept takes the e-mails of a request, or finds it under its key; what it says of
// them later it says once.
func (s *Resend) accept(r *http.Request, body []byte, list []parsed) (answer any, later []func() []said, status int, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if len(key) > 256 {
		return nil, nil, http.StatusBadRequest, "invalid_idempotency_key"
	}
	window := s.Window
	if window == 0 {
		window = 24 * time.Hour
	}
	if known, ok := s.keys[key]; ok && key != "" && time.Since(known.at) < window {
		if !bytes.Equal(known.body, body) {
			return nil, nil, http.StatusConflict, "invalid_idempotent_request"
		}
		return known.answer, nil, 0, ""
	}
	batch := resendBatchAnswer{Data: []resendTaken{}}
	for i, p := range list {
		if p.problem != "" {
			batch.Errors = append(batch.Errors, resendProblem{i, p.problem})
			continue
		}
		id := uuid.New().String()
		batch.Data = append(batch.Data, resendTaken{id})
		s.Mailbox.Add(Mail{
			ID: id, Via: "resend", Key: key, From: p.email.From, To: append(addresses(p.email.To), addresses(p.email.CC)...), Subject: p.email.Subject, Text: p.email.Text, At: time.Now(), Raw: p.raw,
		})
		later = append(later, func() []said { return s.says(p.email, id) })
	}
	if answer = batch; r.URL.Path == "/emails" {
		answer = batch.Data[0]
	}
	if key != "" {
		if s.keys == nil {
			s.keys = map[string]resendCall{}
		}
		s.keys[key] = resendCall{body, answer, time.Now()}
	}
	return answer, later, 0, ""
}

// checkResend finds what the documentation says is refused.
func checkResend(body []byte) (*resendEmail, string) {
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
