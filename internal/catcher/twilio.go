package catcher

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Twilio answers as api.twilio.com does for messages and calls, as far as its
// specification (twilio_api_v2010) and its documentation say.
type Twilio struct {
	answers
	Mailbox    *Mailbox
	AccountSID string // "": any
	User       string // of the basic authentication: an account's or a key's SID; "": any
	Secret     string // "": any
	EventToken string // signs what it says of messages and calls: the account's auth token

	mu   sync.Mutex
	list []twilioMade // oldest first
}

// twilioMade is a message or a call, which a list shows alike as far as here.
type twilioMade struct {
	SID       string  `json:"sid"`
	Account   string  `json:"account_sid"`
	Direction string  `json:"direction"`
	To        string  `json:"to"`
	From      *string `json:"from"` // null until a messaging service has chosen one
	Service   *string `json:"messaging_service_sid,omitempty"`
	Body      *string `json:"body,omitempty"` // of a message
	Status    string  `json:"status"`
	CreatedAt string  `json:"date_created"`

	call bool
	at   time.Time
}

var (
	twilioPath   = regexp.MustCompile(`^/2010-04-01/Accounts/(AC[0-9a-fA-F]{32})/(Messages|Calls)\.json$`)
	twilioNumber = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)
	twilioSender = regexp.MustCompile(`^(\+[1-9][0-9]{6,14}|[0-9]{3,8}|[A-Za-z0-9 +_&-]{1,11})$`)
	twilioFields = map[string][]string{
		"Messages": {"To", "From", "MessagingServiceSid", "Body", "StatusCallback"},
		"Calls":    {"To", "From", "Url", "Twiml", "StatusCallback", "Timeout", "MachineDetection"},
	}
)

// ServeHTTP takes POST Messages.json and Calls.json of an account, and lists both.
func (s *Twilio) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, secret, basic := r.BasicAuth()
	path := twilioPath.FindStringSubmatch(r.URL.Path)
	switch {
	case !basic, s.User != "" && user != s.User, s.Secret != "" && secret != s.Secret:
		twilioRefuses(w, http.StatusUnauthorized, 20003)
	case path == nil, s.AccountSID != "" && path[1] != s.AccountSID:
		twilioRefuses(w, http.StatusNotFound, 20404)
	case r.Method == http.MethodGet:
		s.show(w, r, path[2] == "Calls")
	case r.Method == http.MethodPost:
		s.create(w, r, path[1], path[2])
	default:
		twilioRefuses(w, http.StatusMethodNotAllowed, 20004)
	}
}

func (s *Twilio) create(w http.ResponseWriter, r *http.Request, account, what string) {
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
		twilioRefuses(w, http.StatusBadRequest, 21606)
		return
	case BadAddress:
		twilioRefuses(w, http.StatusBadRequest, 21211)
		return
	case OptedOut:
		twilioRefuses(w, http.StatusBadRequest, 21610)
		return
	case ForNow:
		twilioRefuses(w, http.StatusTooManyRequests, 20429)
		return
	case ForNowAfter:
		w.Header().Set("Retry-After", "1")
		twilioRefuses(w, http.StatusTooManyRequests, 20429)
		return
	case Unauthorized:
		twilioRefuses(w, http.StatusUnauthorized, 20003)
		return
	}
	form, code := checkTwilio(r, what, body)
	if code != 0 {
		twilioRefuses(w, http.StatusBadRequest, code)
		return
	}
	m := s.keep(account, what, form)
	text := form.Get("Body") + form.Get("Twiml") + form.Get("Url")
	s.Mailbox.Add(Mail{ID: m.SID, Via: "twilio", From: form.Get("From") + form.Get("MessagingServiceSid"), To: []string{m.To}, Text: text, At: m.at, Raw: body})
	s.Events.tell(func() []said { return s.says(m, form) })
	if fault == ServerError {
		twilioRefuses(w, http.StatusInternalServerError, 20500) // which may have done it
		return
	}
	if !s.after(w, r, fault) {
		answer(w, http.StatusCreated, m)
	}
}

// keep gives what was made its name, and lists it from then on.
func (s *Twilio) keep(account, what string, form url.Values) twilioMade {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now().UTC()
	m := twilioMade{
		SID: fmt.Sprintf("SM%032x", len(s.list)+1), Account: account, Direction: "outbound-api", To: form.Get("To"), Status: "queued",
		CreatedAt: at.Format(time.RFC1123Z), call: what == "Calls", at: at,
	}
	for name, field := range map[string]**string{"From": &m.From, "MessagingServiceSid": &m.Service, "Body": &m.Body} {
		if form.Has(name) {
			*field = new(form.Get(name))
		}
	}
	if m.call {
		m.SID = "CA" + m.SID[2:]
	}
	s.list = append(s.list, m)
	return m
}

// checkTwilio finds what the documentation says is refused, by its code.
func checkTwilio(r *http.Request, what string, body []byte) (form url.Values, code int) {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	form, err := url.ParseQuery(string(body))
	if media != "application/x-www-form-urlencoded" || err != nil {
		return nil, 20001
	}
	for name, values := range form {
		if !slices.Contains(twilioFields[what], name) || len(values) != 1 {
			return nil, 20001
		}
	}
	if callback, err := url.Parse(form.Get("StatusCallback")); form.Has("StatusCallback") && (err != nil || callback.Host == "" || strings.Contains(callback.Host, "_")) {
		return nil, 21609
	}
	timeout, err := strconv.Atoi(form.Get("Timeout"))
	switch {
	case !twilioNumber.MatchString(form.Get("To")):
		return nil, 21211
	case what == "Messages" && form.Get("From") == "" && form.Get("MessagingServiceSid") == "":
		return nil, 21603
	case what == "Messages" && form.Has("From") && !twilioSender.MatchString(form.Get("From")):
		return nil, 21212
	case what == "Messages" && form.Get("Body") == "":
		return nil, 21602
	case len([]rune(form.Get("Body"))) > 1600:
		return nil, 21617
	case what == "Calls" && !twilioNumber.MatchString(form.Get("From")):
		return nil, 21212
	case what == "Calls" && (form.Get("Url") == "") == (form.Get("Twiml") == ""):
		return nil, 21205
	case form.Has("MachineDetection") && form.Get("MachineDetection") != "Enable" && form.Get("MachineDetection") != "DetectMessageEnd":
		return nil, 20001
	case len([]rune(form.Get("Twiml"))) > 4000, form.Has("Timeout") && (err != nil || timeout < 1 || timeout > 600):
		return nil, 20001
	}
	return form, 0
}

// show lists what was made, the newest first, two to a page at most: so that who asks has
// to turn it.
func (s *Twilio) show(w http.ResponseWriter, r *http.Request, calls bool) {
	q := r.URL.Query()
	size, err := strconv.Atoi(q.Get("PageSize"))
	if err != nil || size < 1 || size > 1000 {
		twilioRefuses(w, http.StatusBadRequest, 20001)
		return
	}
	since := q.Get("DateSent>")
	if calls {
		since = q.Get("StartTime>")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	page, next := []twilioMade{}, any(nil)
	skip, _ := strconv.Atoi(q.Get("Page"))
	for _, m := range slices.Backward(s.list) {
		from := ""
		if m.From != nil {
			from = *m.From
		}
		if m.call != calls || q.Has("To") && m.To != q.Get("To") || q.Has("From") && from != q.Get("From") || m.at.Format(time.DateOnly) < since {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if len(page) == min(size, 2) {
			done, _ := strconv.Atoi(q.Get("Page"))
			q.Set("Page", strconv.Itoa(done+len(page)))
			next = r.URL.Path + "?" + q.Encode()
			break
		}
		page = append(page, m)
	}
	name := "messages"
	if calls {
		name = "calls"
	}
	answer(w, http.StatusOK, map[string]any{name: page, "page_size": size, "next_page_uri": next})
}

func twilioRefuses(w http.ResponseWriter, status, code int) {
	answer(w, status, map[string]any{"code": code, "message": "it is refused", "more_info": fmt.Sprintf("https://www.twilio.com/docs/errors/%d", code), "status": status})
}
