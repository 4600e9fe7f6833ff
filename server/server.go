// Package server serves a process's health over HTTP: whether the process
// lives, whether it can do its work, and its metrics. It does not know what
// that work is.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Listen opens a TCP address such as 127.0.0.1:8420.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // which names neither operation nor address
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}

// Handler answers GET /healthz (the process lives) and GET /readyz (ready
// returns nil; else 503 with the reason, without names of logins and hosts), and leaves GET /metrics to metrics.
func Handler(ready func(context.Context) error, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.Context()); err != nil {
			answer(w, http.StatusServiceUnavailable, map[string]string{"status": "not ready", "reason": reason(err)})
			return
		}
		answer(w, http.StatusOK, map[string]string{"status": "ready"})
	})
	return mux
}

// reason is what anybody may know of why it is not ready: where the database is
// and who asks it is for the log, and for who may read that.
func reason(err error) string {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return "the database cannot be reached"
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return "the database does not answer"
	}
	if _, ok := errors.AsType[*pgconn.PgError](err); ok {
		return "the database refuses: run deed doctor"
	}
	return err.Error()
}

func answer(w http.ResponseWriter, status int, body map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone; there is nobody to tell
}

// Serve answers on listener, which it closes, until ctx ends; then it lets
// requests finish, for five seconds. What is under way after that goes on, and is no error.
func Serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	return serve(ctx, listener, h, 5*time.Second)
}

func serve(ctx context.Context, listener net.Listener, h http.Handler, finish time.Duration) error {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10, // of each connection
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), finish)
	defer cancel()
	err := s.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // nobody new is let in; what is under way ends as it does, or with the process
	}
	if served := <-done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
