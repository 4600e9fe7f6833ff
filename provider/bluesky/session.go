package bluesky

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/httpcall"
)

// session is an account's, for all its posts. It signs in when it must, and is refreshed
// otherwise.
type session struct {
	p                 *Provider
	account, password string

	turn chan struct{} // of one: who has it may look at what follows
	tokens
	until time.Time // nobody signs in before
	why   error
}

type tokens struct {
	Access  string `json:"accessJwt"`
	Refresh string `json:"refreshJwt"`
	DID     string `json:"did"`
	Handle  string `json:"handle"`
}

const (
	notAgain = 15 * time.Minute // after the account was refused: not 100 times a day
	notSoon  = time.Minute      // after the server failed
	early    = time.Minute      // by which a token that expires is not used any more
)

func (p *Provider) newSession(account, password string) *session {
	return &session{p: p, account: account, password: password, turn: make(chan struct{}, 1)}
}

// refusal is why there is no session, and for how long there will be none.
type refusal struct {
	error
	after time.Duration
}

func (r refusal) Unwrap() error { return r.error }

// signedOut is what comes of a call for which there is no session.
func signedOut(err error) delivery.Outcome {
	var r refusal
	errors.As(err, &r)
	return delivery.Outage(fmt.Errorf("no session: %w", err), r.after)
}

// token is a token to post with, of a session that is made if there is none.
func (s *session) token(ctx context.Context) (string, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", fmt.Errorf("bluesky: %w", ctx.Err())
	}
	if s.Access != "" && !expires(s.Access, time.Now().Add(early)) {
		return s.Access, nil
	}
	if s.Refresh != "" {
		if err := s.refresh(ctx); err != nil {
			return "", err
		}
		if s.Access != "" {
			return s.Access, nil
		}
	}
	if wait := time.Until(s.until); wait > 0 {
		return "", refusal{s.why, wait}
	}
	return s.Access, s.signIn(ctx)
}

// drop forgets a token that was refused: the next call has another.
func (s *session) drop(ctx context.Context, token string) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return // whose token is refused once more
	}
	if s.Access == token {
		s.Access = ""
	}
}

// refresh gets new tokens for old ones. If those are refused there are none, which is no
// error.
func (s *session) refresh(ctx context.Context) error {
	s.Access = ""
	a := httpcall.Post(ctx, s.p.transport, s.p.method("com.atproto.server.refreshSession"), adapter.Bearer(s.Refresh), nil)
	switch {
	case a.Err != nil:
		return fmt.Errorf("bluesky: %w", a.Err)
	case a.Status == http.StatusOK:
		return s.take(a)
	case a.Status == http.StatusTooManyRequests, a.Status >= 500:
		return refusal{problem(a), reset(a.Header, time.Now())}
	}
	s.tokens = tokens{}
	return nil
}

// signIn makes a session.
func (s *session) signIn(ctx context.Context) error {
	body, err := json.Marshal(map[string]string{"identifier": s.account, "password": s.password})
	if err != nil {
		return err
	}
	h := adapter.Bearer("")
	h.Set("Content-Type", "application/json")
	a := httpcall.Post(ctx, s.p.transport, s.p.method("com.atproto.server.createSession"), h, body)
	switch {
	case a.Err != nil && !a.Connected:
		return fmt.Errorf("bluesky: %w", a.Err) // which nobody counts
	case a.Err != nil:
		return s.refuse(fmt.Errorf("bluesky: %w", a.Err), notSoon)
	case a.Status == http.StatusOK:
		if err := s.take(a); err != nil {
			return s.refuse(err, notAgain)
		}
		return nil
	case a.Status >= 500:
		return s.refuse(problem(a), notSoon)
	}
	wait := notAgain
	if a.Status == http.StatusTooManyRequests {
		wait = max(notSoon, reset(a.Header, time.Now()))
	}
	return s.refuse(problem(a), wait)
}

func (s *session) refuse(err error, wait time.Duration) error {
	s.until, s.why = time.Now().Add(wait), err
	return refusal{err, wait}
}

// take keeps a session, if it is the account's.
func (s *session) take(a httpcall.Answer) error {
	var made tokens
	if json.Unmarshal(a.Body, &made) != nil || made.Access == "" || made.Refresh == "" {
		return errors.New("bluesky: a session without tokens")
	}
	if !strings.EqualFold(made.Handle, s.account) && made.DID != s.account {
		return errors.New("bluesky: the session is of another account, or of another handle of it")
	}
	s.tokens = made
	return nil
}

// expires reports whether a token says that it is over by then. One that does not say is over
// when the server says so.
func expires(token string, then time.Time) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Expires int64 `json:"exp"`
	}
	return err == nil && json.Unmarshal(text, &claims) == nil && claims.Expires > 0 && !time.Unix(claims.Expires, 0).After(then)
}
