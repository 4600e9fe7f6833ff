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

// receiver is the far end of a webhook. It answers 204, and below /down 500
// until it is repaired.
type receiver struct {
	URL string

	mu       sync.Mutex
	repaired bool              // guarded by mu
	byID     map[string]string // guarded by mu: topic, key, type and body of each message
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
	default:
		r.byID[id] = fmt.Sprintf("%s %s %s %s", h.Get("deed-topic"), h.Get("deed-key"), h.Get("deed-type"), body)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (r *receiver) repair() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.repaired = true
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
