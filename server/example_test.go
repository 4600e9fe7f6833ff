package server_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/server"
)

// A worker's health beside its work.
func ExampleServe() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	client, err := deed.New(ctx, pool, deed.Options{}) // and its subscriptions
	if err != nil {
		log.Fatal(err)
	}

	listener, err := server.Listen(ctx, "127.0.0.1:8420")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := server.Serve(ctx, listener, server.Handler(client.Ready, http.NotFoundHandler())); err != nil {
			log.Print(err)
		}
	}()
	if err := client.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// What a process answers that cannot do its work.
func ExampleHandler() {
	h := server.Handler(func(context.Context) error { return fmt.Errorf("no connection") }, http.NotFoundHandler())
	for _, path := range []string{"/healthz", "/readyz"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 {"status":"ok"}
	// 503 {"reason":"no connection","status":"not ready"}
}
