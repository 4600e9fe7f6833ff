package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/sink/webhook"
)

const (
	topic = "flights"
	lease = 2 * time.Second // short, so that what a killed relay held comes back soon
)

// flight is what the demo needs to know of a line.
type flight struct {
	ID string `json:"id"`
}

// receiver is the webhook's far end: it checks the signature and writes a line
// a request into its own file.
func receiver(ctx context.Context) error {
	out, err := os.OpenFile(os.Getenv("DEMO_FILE"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	var mu sync.Mutex
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil {
			err = webhook.Verify([]string{os.Getenv("DEMO_SECRET")}, r.Header, body, 0, time.Now())
		}
		var f flight
		if err == nil {
			err = json.Unmarshal(body, &f)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if _, err := fmt.Fprintf(out, "%s %d\n", f.ID, time.Now().UnixNano()); err != nil {
			http.Error(w, "not written", http.StatusInternalServerError)
		}
	})
	listener, err := net.Listen("tcp", os.Getenv("DEMO_ADDRESS"))
	if err != nil {
		return err
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = s.Close() // the demo is over
	}()
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// relay drains the topic into the webhook and into a Go handler that writes to
// a table of its own.
func relay(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DEMO_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	hook, err := webhook.New(webhook.Options{
		URL: "http://" + os.Getenv("DEMO_ADDRESS") + "/flights", Secret: os.Getenv("DEMO_SECRET"), AllowHosts: []string{"127.0.0.1"},
	})
	if err != nil {
		return err
	}
	defer hook.Close()
	record := deed.Handle(topic, func(ctx context.Context, r deed.Received[flight]) error {
		_, err := pool.Exec(ctx, `insert into seen_by_handler (flight, arrived_at) values ($1, $2)`, r.Value.ID, time.Now())
		return err
	})
	record.Lease = lease
	subs := []deed.Subscription{{Topic: topic, Name: "webhook", Sink: hook, Lease: lease}, record}
	if os.Getenv("DEMO_SABOTAGE") != "" {
		for i := range subs {
			subs[i].Sink = hasty{subs[i].Sink}
		}
	}
	for {
		c, err := deed.New(ctx, pool, deed.Options{
			Subscriptions: subs, Deadline: 3 * time.Second, Grace: 5 * time.Second,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
		if err == nil {
			return c.Run(ctx)
		}
		if deed.CodeOf(err) != deed.Internal || ctx.Err() != nil {
			return err
		}
		select { // the server is being restarted
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// hasty acknowledges what it has not delivered yet: what a relay must not do.
type hasty struct{ sink deed.Sink }

func (h hasty) Deliver(ctx context.Context, ms []deed.Message) []error {
	ms = append([]deed.Message(nil), ms...)
	go func() {
		time.Sleep(500 * time.Millisecond)
		h.sink.Deliver(context.WithoutCancel(ctx), ms)
	}()
	return nil
}
