package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
)

// What a call's time-out leaves unbegun costs no attempt: behind one that is slow they would be
// dead without having been sent.
func TestDeliver_WhatTheTimeOutLeavesUnbegun(t *testing.T) {
	t.Parallel()
	var ms []deed.Message
	for _, key := range []string{"slow", "slow", "other"} {
		m := testMessage() // that has failed before, and goes by itself
		m.Key = key
		ms = append(ms, m)
	}
	for name, deliver := range map[string]func(context.Context, string) []error{
		"one by one": func(ctx context.Context, url string) []error { return newSink(t, url).Deliver(ctx, ms) },
		"by a batch sink": func(ctx context.Context, url string) []error {
			s, err := NewBatch(Options{URL: url, Secret: testSecret, AllowHosts: []string{"127.0.0.1"}}, 10)
			if err != nil {
				t.Fatal(err)
			}
			return s.Deliver(ctx, ms)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := make(chan struct{}, 10)
			srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				requests <- struct{}{}
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			}))
			t.Cleanup(srv.Close)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			outcomes := deliver(ctx, srv.URL)
			var kinds []string
			for _, err := range outcomes {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("outcome %v, want the context's error", err)
				}
				kinds = append(kinds, kindOf(err))
			}
			if got := strings.Join(kinds, ", "); got != "attempt, unavailable, unavailable" {
				t.Errorf("outcomes %s: only the first was begun", got)
			}
			if n := len(requests); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}
