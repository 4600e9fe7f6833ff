package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/server"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	var reason error
	h := server.Handler(func(context.Context) error { return reason }, http.NotFoundHandler())
	for _, test := range []struct {
		method, path string
		reason       error
		status       int
		body         string
	}{
		{"GET", "/healthz", errors.New("away"), 200, `{"status":"ok"}`},
		{"GET", "/readyz", nil, 200, `{"status":"ready"}`},
		{"GET", "/readyz", errors.New("away"), 503, `{"reason":"away","status":"not ready"}`},
		{"GET", "/readyz", fmt.Errorf("schema: %w", connectError(t)), 503, `{"reason":"the database cannot be reached","status":"not ready"}`},
		{"GET", "/readyz", fmt.Errorf("schema: %w", &pgconn.PgError{Message: "role \"who\" does not exist"}), 503, `{"reason":"the database refuses: run deed doctor","status":"not ready"}`},
		{"GET", "/", nil, 404, "404"},
		{"POST", "/healthz", nil, 405, "Method Not Allowed"},
	} {
		reason = test.reason
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(test.method, test.path, nil))
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.body) {
			t.Errorf("%s %s: %d %s, want %d %s", test.method, test.path, w.Code, w.Body, test.status, test.body)
		}
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := server.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := listener.Addr()
	done := make(chan error, 1)
	go func() {
		done <- server.Serve(ctx, listener, server.Handler(func(context.Context) error { return nil }, http.NotFoundHandler()))
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + a.String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if r.StatusCode != 200 || !strings.Contains(string(body), "ready") {
		t.Errorf("%s %s", r.Status, body)
	}
	large, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.String()+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	large.Header.Set("X-Large", strings.Repeat("x", 100<<10))
	if r, err = client.Do(large); err != nil || r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("headers of 100 KiB: %v, %v", r, err)
	} else {
		r.Body.Close()
	}
	if _, err := server.Listen(ctx, a.String()); err == nil || !strings.Contains(err.Error(), a.String()) {
		t.Errorf("a port that is taken: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func connectError(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := pgconn.Connect(ctx, "postgres://secret_login@127.0.0.1:1/secret_database")
	if err == nil || !strings.Contains(err.Error(), "secret_login") {
		t.Fatalf("connecting to nobody: %v", err)
	}
	return err
}
