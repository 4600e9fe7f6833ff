// Command victim is a worker that tests kill. It drains one topic into a file,
// a line a delivery, which is the oracle of what was delivered.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "victim:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("clock", time.Now().UTC().Format(time.RFC3339))
	pool, err := pgxpool.New(ctx, os.Getenv("VICTIM_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	out, err := os.OpenFile(os.Getenv("VICTIM_FILE"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	r := &receiver{out: out, slow: duration("VICTIM_SLOW", 0)}
	c, err := connect(ctx, pool, deed.Options{
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Deadline: duration("VICTIM_DEADLINE", 2*time.Second),
		Grace:    duration("VICTIM_GRACE", 2*time.Second),
		Subscriptions: []deed.Subscription{{
			Topic: os.Getenv("VICTIM_TOPIC"), Name: "s", Sink: r,
			Concurrency: 4, BatchSize: number("VICTIM_BATCH", 20),
		}},
	})
	if err != nil {
		return err
	}
	defer func() { fmt.Printf("stats %+v\n", c.Stats()) }()
	return c.Run(ctx)
}

// connect waits for the server, which a test may be restarting.
func connect(ctx context.Context, pool *pgxpool.Pool, opts deed.Options) (*deed.Client, error) {
	for {
		c, err := deed.New(ctx, pool, opts)
		if err == nil || deed.CodeOf(err) != deed.Internal || ctx.Err() != nil {
			return c, err
		}
		fmt.Fprintln(os.Stderr, "victim: waiting for the database:", err)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

type receiver struct {
	mu   sync.Mutex
	out  *os.File
	slow time.Duration
}

// Deliver appends a line in one write, so that a SIGKILL leaves it whole or
// not at all.
func (r *receiver) Deliver(ctx context.Context, ms []deed.Message) []error {
	if r.slow > 0 {
		select {
		case <-time.After(r.slow):
		case <-ctx.Done():
			return []error{ctx.Err()}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := fmt.Fprintf(r.out, "%d %s %d\n", ms[0].Seq, ms[0].ID, os.Getpid())
	return []error{err}
}

func duration(name string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(os.Getenv(name)); err == nil {
		return d
	}
	return otherwise
}

func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}
