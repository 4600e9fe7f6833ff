package server

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"
)

// A stop while a request is under way is none that failed, and the request has its answer.
func TestServe_StopsBesideARequest(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	listener, err := Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reached, release := make(chan struct{}), make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- serve(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(reached)
			<-release
			_, _ = io.WriteString(w, "done") // who reads it says what came
		}), time.Millisecond)
	}()
	type reply struct {
		body string
		err  error
	}
	answered := make(chan reply, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := client.Get("http://" + listener.Addr().String())
		if err != nil {
			answered <- reply{err: err}
			return
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		answered <- reply{string(body), err}
	}()
	<-reached
	stop()
	if err := <-served; err != nil {
		t.Errorf("the stop is an error: %v", err)
	}
	close(release)
	if got := <-answered; got.err != nil || got.body != "done" {
		t.Errorf("the request that was under way has %q, %v", got.body, got.err)
	}
}
