// Command victim is a worker that tests kill. It drains one topic into a file,
// a line a delivery, which is the oracle of what was delivered; or a line for
// each begin and end of an attempt.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash/process"
)

func main() { process.Main(work) }

func work(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	fmt.Println("clock", time.Now().UTC().Format(time.RFC3339))
	out, err := os.OpenFile(os.Getenv("VICTIM_FILE"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	var sink deed.Sink = &receiver{out: out, slow: duration("VICTIM_SLOW", 0)}
	if n, err := strconv.Atoi(os.Getenv("VICTIM_FAILS")); err == nil {
		sink = &witness{out: out, slow: duration("VICTIM_SLOW", 0), fails: n}
	}
	c, err := connect(ctx, pool, deed.Options{
		// Neither a crash nor a promoted standby is a new cluster.
		OnNewCluster: deed.Hold, Environment: "crash",
		Logger:   log,
		Deadline: duration("VICTIM_DEADLINE", 2*time.Second),
		Grace:    duration("VICTIM_GRACE", 2*time.Second),
		Subscriptions: []deed.Subscription{{
			Topic: os.Getenv("VICTIM_TOPIC"), Name: "s", Sink: sink,
			Concurrency: 4, BatchSize: number("VICTIM_BATCH", 20),
		}},
	})
	if err != nil {
		return err
	}
	defer func() { fmt.Printf("stats %+v\n", c.Stats()) }()
	process.Runs()
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

// witness tells when each attempt begins and what it came to, a line each, for
// an oracle that judges the order afterwards. Of a hundred attempts so many fail.
// It does not look at its context: what it has begun it ends.
type witness struct {
	out   *os.File
	slow  time.Duration
	fails int
}

func (w *witness) Deliver(_ context.Context, ms []deed.Message) []error {
	m := ms[0]
	if err := w.tell("began", m); err != nil {
		return []error{err}
	}
	if w.slow > 0 {
		time.Sleep(rand.N(w.slow))
	}
	if rand.IntN(100) < w.fails {
		return []error{cmp.Or(w.tell("failed", m), deed.AfterError(rand.N(300*time.Millisecond), errors.New("this attempt is to fail")))}
	}
	return []error{w.tell("delivered", m)}
}

// tell appends a line in one write: the order of lines is that of the writes.
func (w *witness) tell(what string, m deed.Message) error {
	_, err := fmt.Fprintf(w.out, "%s %d %d %d %s %s\n", what, os.Getpid(), m.Seq, m.Attempt, m.ID, m.Key)
	return err
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
