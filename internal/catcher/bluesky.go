package catcher

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/graphemes"
)

// Bluesky answers as an account's server (PDS) of the AT Protocol does, as far as its lexicons
// and the reference server say.
type Bluesky struct {
	answers
	Mailbox *Mailbox
	// Passwords are those of the accounts, by handle. nil: any account, with any.
	Passwords map[string]string
	// Life is how long an access token is good for. Default two hours.
	Life time.Duration

	mu        sync.Mutex
	signIns   int
	refreshes int
	tokens    map[string]blueskyToken
	posts     map[string]json.RawMessage // by uri
}

type blueskyToken struct {
	handle  string
	refresh bool
	until   time.Time
}

type blueskyCreate struct {
	Repo       string          `json:"repo"`
	Collection string          `json:"collection"`
	RKey       string          `json:"rkey"`
	Record     json.RawMessage `json:"record"`
}

type blueskyPost struct {
	Type      string   `json:"$type"`
	Text      string   `json:"text"`
	CreatedAt string   `json:"createdAt"`
	Langs     []string `json:"langs"`
	Facets    []struct {
		Index struct {
			Start int `json:"byteStart"`
			End   int `json:"byteEnd"`
		} `json:"index"`
		Features []struct {
			Type string `json:"$type"`
			URI  string `json:"uri"`
			Tag  string `json:"tag"`
			DID  string `json:"did"`
		} `json:"features"`
	} `json:"facets"`
	Embed *struct {
		Type     string `json:"$type"`
		External struct {
			URI         string `json:"uri"`
			Title       string `json:"title"`
			Description string `json:"description"`
		} `json:"external"`
	} `json:"embed"`
}

// ServeHTTP signs in, refreshes, creates records and shows them.
func (s *Bluesky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch name := strings.TrimPrefix(r.URL.Path, "/xrpc/"); {
	case name == "com.atproto.server.describeServer":
		answer(w, http.StatusOK, map[string]any{"did": "did:web:localhost", "availableUserDomains": []string{}})
	case name == "com.atproto.server.createSession" && r.Method == http.MethodPost:
		s.signIn(w, body)
	case name == "com.atproto.server.refreshSession" && r.Method == http.MethodPost:
		if handle, problem := s.whose(token, true); problem != "" {
			blueskyRefuses(w, http.StatusBadRequest, problem)
		} else {
			s.open(w, handle, token)
		}
	case name == "com.atproto.repo.getRecord":
		s.show(w, r)
	case name == "com.atproto.repo.createRecord" && r.Method == http.MethodPost:
		s.create(w, r, token, body)
	default:
		blueskyRefuses(w, http.StatusNotImplemented, "MethodNotImplemented")
	}
}

func (s *Bluesky) signIn(w http.ResponseWriter, body []byte) {
	var who struct {
		Identifier string `json:"identifier"`
		Password   string `json:"password"`
	}
	s.mu.Lock()
	s.signIns++
	s.mu.Unlock()
	if json.Unmarshal(body, &who) != nil {
		blueskyRefuses(w, http.StatusBadRequest, "InvalidRequest")
		return
	}
	password, known := s.Passwords[strings.ToLower(who.Identifier)]
	if s.Passwords != nil && (!known || password != who.Password) {
		blueskyRefuses(w, http.StatusUnauthorized, "AuthenticationRequired")
		return
	}
	s.open(w, strings.ToLower(who.Identifier), "")
}

// Sessions is how often somebody has tried to sign in, and has refreshed a session.
func (s *Bluesky) Sessions() (signIns, refreshes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signIns, s.refreshes
}

// Expire ends all access tokens.
func (s *Bluesky) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, t := range s.tokens {
		if !t.refresh {
			t.until = time.Time{}
			s.tokens[name] = t
		}
	}
}

// open makes a session's tokens, in place of the one that it was refreshed with.
func (s *Bluesky) open(w http.ResponseWriter, handle, spent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	life := s.Life
	if life == 0 {
		life = 2 * time.Hour
	}
	if delete(s.tokens, spent); spent != "" {
		s.refreshes++
	}
	if s.tokens == nil {
		s.tokens = map[string]blueskyToken{}
	}
	until := time.Now().Add(life)
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"sub":%q,"exp":%d}`, didOf(handle), until.Unix()))
	access, refresh := fmt.Sprintf("e30.%s.a%d", claims, len(s.tokens)), fmt.Sprintf("e30.%s.r%d", claims, len(s.tokens))
	s.tokens[access], s.tokens[refresh] = blueskyToken{handle, false, until}, blueskyToken{handle, true, until.Add(24 * time.Hour)}
	answer(w, http.StatusOK, map[string]string{"accessJwt": access, "refreshJwt": refresh, "handle": handle, "did": didOf(handle)})
}

// didOf is an account's DID.
func didOf(handle string) string { return "did:web:" + handle }

// whose is the account that a token is of, or what is wrong with it.
func (s *Bluesky) whose(token string, refresh bool) (handle, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch t, ok := s.tokens[token]; {
	case token == "":
		return "", "AuthMissing"
	case !ok || t.refresh != refresh:
		return "", "InvalidToken"
	case time.Now().After(t.until):
		return "", "ExpiredToken"
	default:
		return t.handle, ""
	}
}

func (s *Bluesky) create(w http.ResponseWriter, r *http.Request, token string, body []byte) {
	fault := s.Faults.next()
	if s.before(w, r, fault) {
		return
	}
	switch fault {
	case ForGood:
		blueskyRefuses(w, http.StatusBadRequest, "InvalidRequest")
		return
	case ForNow:
		blueskyRefuses(w, http.StatusTooManyRequests, "RateLimitExceeded")
		return
	case ForNowAfter:
		w.Header().Set("RateLimit-Reset", fmt.Sprint(time.Now().Add(2*time.Second).Unix()))
		blueskyRefuses(w, http.StatusTooManyRequests, "RateLimitExceeded")
		return
	case Unauthorized:
		blueskyRefuses(w, http.StatusBadRequest, "InvalidToken")
		return
	}
	handle, problem := s.whose(token, false)
	if problem != "" {
		blueskyRefuses(w, http.StatusBadRequest, problem)
		return
	}
	c, text, ok := checkBluesky(r, body)
	switch {
	case !ok:
		blueskyRefuses(w, http.StatusBadRequest, "InvalidRequest")
		return
	case !strings.EqualFold(c.Repo, handle) && c.Repo != didOf(handle):
		blueskyRefuses(w, http.StatusUnauthorized, "AuthenticationRequired")
		return
	}
	uri := "at://" + didOf(handle) + "/" + c.Collection + "/" + c.RKey
	if !s.keep(uri, c, text, body) {
		blueskyRefuses(w, http.StatusInternalServerError, "InternalServerError") // as the reference server says
		return
	}
	if !s.after(w, r, fault) {
		answer(w, http.StatusOK, map[string]any{"uri": uri, "cid": "bafyreidev", "validationStatus": "valid"})
	}
}

// keep makes a record, unless there is one under that key.
func (s *Bluesky) keep(uri string, c blueskyCreate, text string, body []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.posts[uri]; ok {
		return false
	}
	if s.posts == nil {
		s.posts = map[string]json.RawMessage{}
	}
	s.posts[uri] = c.Record
	s.Mailbox.Add(Mail{ID: uri, Via: "bluesky", Key: c.RKey, To: []string{c.Repo}, Text: text, At: time.Now(), Raw: body})
	return true
}

var tid = regexp.MustCompile(`^[234567abcdefghij][234567abcdefghijklmnopqrstuvwxyz]{12}$`)

// checkBluesky finds what the lexicons say is refused.
func checkBluesky(r *http.Request, body []byte) (c blueskyCreate, text string, ok bool) {
	var post blueskyPost
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if media != "application/json" || !strictly(body, &c) || !strictly(c.Record, &post) {
		return c, "", false
	}
	_, err := time.Parse(time.RFC3339Nano, post.CreatedAt)
	ok = err == nil && c.Collection == "app.bsky.feed.post" && post.Type == c.Collection && tid.MatchString(c.RKey) &&
		len(post.Text) <= 3000 && graphemes.Least(post.Text) <= 300 && len(post.Langs) <= 3 && (post.Embed == nil || post.Embed.Type == "app.bsky.embed.external" && post.Embed.External.URI != "")
	for _, f := range post.Facets {
		ok = ok && f.Index.Start >= 0 && f.Index.Start < f.Index.End && f.Index.End <= len(post.Text) && len(f.Features) > 0
	}
	return c, post.Text, ok
}

func strictly(text []byte, into any) bool {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into) == nil
}

func (s *Bluesky) show(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	repo := strings.ToLower(q.Get("repo"))
	if !strings.HasPrefix(repo, "did:") {
		repo = didOf(repo)
	}
	uri := "at://" + repo + "/" + q.Get("collection") + "/" + q.Get("rkey")
	s.mu.Lock()
	post, ok := s.posts[uri]
	s.mu.Unlock()
	if !ok {
		blueskyRefuses(w, http.StatusBadRequest, "RecordNotFound")
		return
	}
	answer(w, http.StatusOK, map[string]any{"uri": uri, "cid": "bafyreidev", "value": post})
}

func blueskyRefuses(w http.ResponseWriter, status int, name string) {
	answer(w, status, map[string]string{"error": name, "message": "see the lexicon"})
}
