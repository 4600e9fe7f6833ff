package catcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"html"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Mastodon answers as an instance does, as far as Mastodon's documentation says.
type Mastodon struct {
	answers
	Mailbox *Mailbox
	// Tokens are the names of the accounts, by token. nil: any token is dev's.
	Tokens map[string]string
	// Host is what is behind the accounts' names. Default localhost.
	Host string
	// Window is for how long a key is remembered. Default an hour.
	Window time.Duration

	mu   sync.Mutex
	keys map[string]remembered
	list []mastodonStatus
}

// mastodonStatus is what is posted, and what is shown of it.
type mastodonStatus struct {
	Status      string   `json:"status,omitempty"`
	Visibility  string   `json:"visibility"`
	Language    string   `json:"language,omitempty"`
	SpoilerText string   `json:"spoiler_text"`
	Sensitive   bool     `json:"sensitive"`
	InReplyToID *string  `json:"in_reply_to_id"`
	MediaIDs    []string `json:"media_ids,omitempty"`

	ID        string           `json:"id"`
	CreatedAt string           `json:"created_at"`
	Content   string           `json:"content"`
	Media     []map[string]any `json:"media_attachments"`
	account   string
}

// ServeHTTP takes POST /api/v1/statuses, and shows whose a token is, what an account has
// posted, and how long it may be.
func (s *Mastodon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	name, known := s.Tokens[token]
	if s.Tokens == nil {
		name, known = "dev", true
	}
	of, isList := strings.CutPrefix(r.URL.Path, "/api/v1/accounts/")
	of, isList = strings.TrimSuffix(of, "/statuses"), isList && strings.HasSuffix(of, "/statuses")
	switch {
	case r.URL.Path == "/api/v2/instance":
		answer(w, http.StatusOK, map[string]any{"configuration": map[string]any{"statuses": map[string]int{"max_characters": 500}}})
	case !bearer || !known:
		mastodonRefuses(w, http.StatusUnauthorized, "The access token is invalid")
	case r.URL.Path == "/api/v1/accounts/verify_credentials":
		answer(w, http.StatusOK, map[string]string{"id": accountID(name), "username": name, "acct": name})
	case isList && r.Method == http.MethodGet:
		s.show(w, r, of)
	case r.URL.Path == "/api/v1/statuses" && r.Method == http.MethodPost:
		s.post(w, r, name)
	default:
		mastodonRefuses(w, http.StatusNotFound, "Record not found")
	}
}

// accountID is the number of an account.
func accountID(name string) string { return fmt.Sprint(crc32.ChecksumIEEE([]byte(name))) }

func (s *Mastodon) post(w http.ResponseWriter, r *http.Request, name string) {
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
		mastodonRefuses(w, http.StatusUnprocessableEntity, "Validation failed: Text character limit of 500 exceeded")
		return
	case ForNow:
		mastodonRefuses(w, http.StatusTooManyRequests, "Too many requests")
		return
	case ForNowAfter:
		w.Header().Set("X-RateLimit-Reset", time.Now().Add(1100*time.Millisecond).UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
		mastodonRefuses(w, http.StatusTooManyRequests, "Too many requests")
		return
	case Unauthorized:
		mastodonRefuses(w, http.StatusUnauthorized, "The access token was revoked")
		return
	}
	m, problem := checkMastodon(r, body)
	if problem != "" {
		mastodonRefuses(w, http.StatusUnprocessableEntity, "Validation failed: "+problem)
		return
	}
	m = s.keep(m, name, r.Header.Get("Idempotency-Key"), body)
	if !s.after(w, r, fault) {
		answer(w, http.StatusOK, m)
	}
}

// keep makes a status, or finds it under its key, which is one account's.
func (s *Mastodon) keep(m mastodonStatus, name, key string, body []byte) mastodonStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	window := s.Window
	if window == 0 {
		window = time.Hour
	}
	if known, ok := s.keys[name+" "+key]; ok && key != "" && time.Since(known.at) < window {
		return s.list[slices.IndexFunc(s.list, func(one mastodonStatus) bool { return one.ID == known.id })]
	}
	now := time.Now()
	m.ID, m.CreatedAt, m.Content, m.account = fmt.Sprint(103254962155278888+len(s.list)), now.UTC().Format("2006-01-02T15:04:05.000Z"), htmlOf(m.Status), name
	m.Media = make([]map[string]any, len(m.MediaIDs))
	s.list = append(s.list, m)
	if s.keys == nil {
		s.keys = map[string]remembered{}
	}
	s.keys[name+" "+key] = remembered{body, m.ID, now}
	host := s.Host
	if host == "" {
		host = "localhost"
	}
	s.Mailbox.Add(Mail{ID: m.ID, Via: "mastodon", Key: key, To: []string{"@" + name + "@" + host}, Text: m.Status, At: now, Raw: body})
	return m
}

// elsewhere is a mention of somebody at another instance, of whom the name is shown.
var elsewhere = regexp.MustCompile(`@([A-Za-z0-9_]+)@[A-Za-z0-9.-]*[A-Za-z0-9]`)

// htmlOf is what is shown of a text.
func htmlOf(text string) string {
	text = html.EscapeString(strings.TrimSpace(text))
	for _, word := range strings.Fields(text) {
		if strings.HasPrefix(word, "https://") {
			text = strings.Replace(text, word, `<a href="`+word+`" rel="nofollow"><span class="invisible">https://</span><span class="">`+strings.TrimPrefix(word, "https://")+`</span></a>`, 1)
		}
	}
	text = elsewhere.ReplaceAllString(text, `<span class="h-card"><a href="https://localhost/@$1" class="u-url mention">@<span>$1</span></a></span>`)
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\n\n", "</p><p>"), "\n", "<br />")
	return "<p>" + text + "</p>"
}

// checkMastodon finds what the documentation says is refused.
func checkMastodon(r *http.Request, body []byte) (m mastodonStatus, problem string) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); media != "application/json" || dec.Decode(&m) != nil || m.ID != "" || m.Content != "" {
		return m, "the request cannot be read"
	}
	if m.Visibility == "" {
		m.Visibility = "public"
	}
	switch {
	case strings.TrimSpace(m.Status) == "" && len(m.MediaIDs) == 0:
		return m, "Text can't be blank"
	case len([]rune(m.Status+m.SpoilerText)) > 500:
		return m, "Text character limit of 500 exceeded"
	case !slices.Contains([]string{"public", "unlisted", "private", "direct"}, m.Visibility):
		return m, "Visibility is not included in the list"
	}
	return m, ""
}

// show lists what an account has posted, the newest first, two to a page: so that who asks
// has to turn it.
func (s *Mastodon) show(w http.ResponseWriter, r *http.Request, id string) {
	before, err := strconv.Atoi(r.URL.Query().Get("max_id"))
	s.mu.Lock()
	defer s.mu.Unlock()
	page := []mastodonStatus{}
	for i := len(s.list) - 1; i >= 0 && len(page) < 2; i-- {
		one := s.list[i]
		if n, _ := strconv.Atoi(one.ID); accountID(one.account) == id && (err != nil || n < before) {
			one.Status, one.MediaIDs = "", nil
			page = append(page, one)
		}
	}
	answer(w, http.StatusOK, page)
}

func mastodonRefuses(w http.ResponseWriter, status int, problem string) {
	answer(w, status, map[string]string{"error": problem})
}
