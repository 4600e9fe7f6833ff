package catcher

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// Receiver is a webhook's receiving end. It drops repeats by webhook-id if it
// is told to.
type Receiver struct {
	answers
	Mailbox *Mailbox
	// Verify, if not nil, refuses a request whose signature does not fit.
	Verify func(h http.Header, body []byte) error
	// DropRepeats accepts an id once, and says yes to its repeats.
	DropRepeats bool

	mu   sync.Mutex
	seen map[string]bool
}

// ServeHTTP takes POST on any path but /elsewhere.
func (s *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 10<<20))
	if err != nil {
		return
	}
	if r.URL.Path == "/elsewhere" || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	if s.Verify != nil {
		if err := s.Verify(r.Header, body); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
	}
	fault := s.Faults.next()
	if s.before(w, r, fault) {
		return
	}
	switch fault {
	case ForGood:
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	case ForNow:
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case ForNowAfter:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	id := r.Header.Get("Webhook-Id")
	s.mu.Lock()
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	repeat := s.seen[id]
	s.seen[id] = true
	s.mu.Unlock()
	if !repeat || !s.DropRepeats {
		s.Mailbox.Add(Mail{ID: id, Via: "webhook", Key: id, To: []string{r.URL.Path}, At: time.Now(), Raw: body})
	}
	if !s.after(w, r, fault) {
		w.WriteHeader(http.StatusNoContent)
	}
}
