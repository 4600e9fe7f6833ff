package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// receiver is the far end of a webhook. It answers 204, below /down 500 until it
// is repaired, and 409 to messages of the type that it refuses.
type receiver struct {
	URL string

	mu       sync.Mutex
	repaired bool              // guarded by mu
	refused  string            // guarded by mu: a type
	byID     map[string]string // guarded by mu: topic, key, type and body of each message
	arrived  [][2]string       // guarded by mu: key and id of each message, when it came first
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{byID: map[string]string{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	h := req.Header
	id := h.Get("webhook-id")
	switch {
	case err != nil || id == "" || h.Get("webhook-timestamp") == "" || !strings.HasPrefix(h.Get("webhook-signature"), "v1,"):
		w.WriteHeader(http.StatusBadRequest)
	case req.URL.Path == "/down" && !r.repaired:
		w.WriteHeader(http.StatusInternalServerError)
	case r.refused != "" && h.Get("deed-type") == r.refused:
		w.WriteHeader(http.StatusConflict)
	default:
		if r.byID[id] == "" {
			r.arrived = append(r.arrived, [2]string{h.Get("deed-key"), id})
		}
		r.byID[id] = fmt.Sprintf("%s %s %s %s", h.Get("deed-topic"), h.Get("deed-key"), h.Get("deed-type"), body)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (r *receiver) repair() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.repaired = true
}

// refuse makes messages of a type fail; "" none.
func (r *receiver) refuse(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = kind
}

// disorder returns a message that came after a later one of its key, or "".
func (r *receiver) disorder() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := map[string]string{}
	for _, a := range r.arrived {
		key, id := a[0], a[1]
		if key != "" && id < last[key] {
			return fmt.Sprintf("%s of key %s came after %s", id, key, last[key])
		}
		last[key] = id
	}
	return ""
}

// count is of messages; repeats count once.
func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byID)
}

func (r *receiver) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Values(r.byID))
}
