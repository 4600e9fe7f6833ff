package catcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Slack answers as Slack's Web API does, as far as its documentation says.
type Slack struct {
	answers
	Mailbox *Mailbox
	Token   string // "": any
	// Page is how many messages a page of the history has at most, whatever is asked for.
	// Default two: so that who asks has to turn it.
	Page int

	mu   sync.Mutex
	last time.Time
	list []slackMessage
}

type slackMessage struct {
	Channel        string          `json:"channel,omitempty"`
	Thread         string          `json:"thread_ts,omitempty"`
	Text           string          `json:"text,omitempty"`
	Blocks         json.RawMessage `json:"blocks,omitempty"`
	ReplyBroadcast bool            `json:"reply_broadcast,omitempty"`
	UnfurlLinks    *bool           `json:"unfurl_links,omitempty"`
	UnfurlMedia    *bool           `json:"unfurl_media,omitempty"`
	Mrkdwn         *bool           `json:"mrkdwn,omitempty"`
	Metadata       json.RawMessage `json:"metadata,omitempty"`
	TS             string          `json:"ts,omitempty"` // when it was posted, and its name
}

// ServeHTTP takes chat.postMessage, and answers conversations.open,
// conversations.history, conversations.replies and auth.test.
func (s *Slack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch method := strings.TrimPrefix(r.URL.Path, "/"); {
	case !bearer:
		slackRefuses(w, "not_authed")
	case s.Token != "" && token != s.Token:
		slackRefuses(w, "invalid_auth")
	case method == "auth.test":
		answer(w, http.StatusOK, map[string]any{"ok": true, "user": "dev", "team": "Dev"})
	case method == "chat.postMessage" && r.Method == http.MethodPost:
		s.post(w, r)
	case method == "conversations.open" && r.Method == http.MethodPost:
		open(w, r)
	case method == "conversations.history", method == "conversations.replies":
		s.history(w, r)
	default:
		slackRefuses(w, "unknown_method")
	}
}

func (s *Slack) post(w http.ResponseWriter, r *http.Request) {
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
		slackRefuses(w, "channel_not_found")
		return
	case ForNow:
		slackRefuses(w, "ratelimited")
		return
	case ForNowAfter:
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusTooManyRequests, map[string]any{"ok": false, "error": "ratelimited"})
		return
	case Unauthorized:
		slackRefuses(w, "token_revoked")
		return
	}
	m, problem := checkSlack(r, body)
	if problem != "" {
		slackRefuses(w, problem)
		return
	}
	s.keep(&m, body)
	if fault == ServerError {
		slackRefuses(w, "fatal_error") // which may have done it
		return
	}
	if !s.after(w, r, fault) {
		answer(w, http.StatusOK, map[string]any{"ok": true, "channel": m.Channel, "ts": m.TS, "message": m})
	}
}

// open answers with the channel of a person and the app.
func open(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Users string `json:"users"`
	}
	if json.NewDecoder(io.LimitReader(r.Body, 1<<10)).Decode(&asked) != nil || channelOf(asked.Users) == asked.Users {
		slackRefuses(w, "user_not_found")
		return
	}
	answer(w, http.StatusOK, map[string]any{"ok": true, "channel": map[string]string{"id": channelOf(asked.Users)}})
}

// channelOf is the channel in which something is posted to a person or a channel. What is posted to a
// person has no other.
func channelOf(to string) string {
	if strings.HasPrefix(to, "U") || strings.HasPrefix(to, "W") {
		return "D" + to[1:]
	}
	return to
}

// keep gives a message its name, which no other has, and shows it from then on.
func (s *Slack) keep(m *slackMessage, body []byte) {
	to := m.Channel
	if m.Thread != "" {
		to += "/" + m.Thread
	}
	s.mu.Lock()
	m.Channel = channelOf(m.Channel)
	s.last = later(time.Now(), s.last.Add(time.Microsecond))
	m.TS = fmt.Sprintf("%d.%06d", s.last.Unix(), s.last.Nanosecond()/1000)
	s.list = append(s.list, *m)
	s.mu.Unlock()
	s.Mailbox.Add(Mail{ID: m.TS, Via: "slack", To: []string{to}, Text: m.Text, At: time.Now(), Raw: body})
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// checkSlack finds what the documentation says is refused.
func checkSlack(r *http.Request, body []byte) (m slackMessage, problem string) {
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); media != "application/json" {
		return m, "invalid_post_type"
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if dec.Decode(&m) != nil || m.TS != "" {
		return m, "invalid_json"
	}
	var meta struct {
		Type    string         `json:"event_type"`
		Payload map[string]any `json:"event_payload"`
	}
	switch {
	case m.Channel == "":
		return m, "channel_not_found"
	case m.Text == "" && m.Blocks == nil:
		return m, "no_text"
	case len([]rune(m.Text)) > 40000:
		return m, "msg_too_long"
	case m.Metadata != nil && (json.Unmarshal(m.Metadata, &meta) != nil || meta.Type == "" || meta.Payload == nil):
		return m, "invalid_metadata_format"
	}
	return m, ""
}

// history shows a channel's messages, or a thread's, the newest first, Page to a page.
func (s *Slack) history(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if channel := q.Get("channel"); channelOf(channel) != channel {
		slackRefuses(w, "channel_not_found")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var page []slackMessage
	size := s.Page
	if size == 0 {
		size = 2
	}
	next := ""
	for i := len(s.list) - 1; i >= 0; i-- {
		m := s.list[i]
		before := q.Get("cursor") == "" || m.TS < q.Get("cursor")
		within := (q.Get("oldest") == "" || m.TS >= q.Get("oldest")) && (q.Get("latest") == "" || m.TS <= q.Get("latest"))
		if m.Channel != q.Get("channel") || m.Thread != q.Get("ts") || !before || !within {
			continue
		}
		if len(page) == size {
			next = page[size-1].TS
			break
		}
		if q.Get("include_all_metadata") != "true" {
			m.Metadata = nil
		}
		page = append(page, m)
	}
	answer(w, http.StatusOK, map[string]any{"ok": true, "messages": page, "has_more": next != "", "response_metadata": map[string]string{"next_cursor": next}})
}

func slackRefuses(w http.ResponseWriter, name string) {
	answer(w, http.StatusOK, map[string]any{"ok": false, "error": name})
}
