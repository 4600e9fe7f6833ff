// Package process is what the programs that tests kill begin with.
package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Main does the program's work until SIGTERM, on the database of VICTIM_DATABASE_URL, with its log on stderr. If that
// fails it says why there, and the process ends with 1.
func Main(work func(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error) {
	if err := run(work); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

func run(work func(context.Context, *pgxpool.Pool, *slog.Logger) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("VICTIM_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	return work(ctx, pool, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// Runs says that the program can be stopped: harness.Victim.Stop waits for it.
func Runs() { fmt.Println("victim: runs") }

// Lease is for how long the program has what it works at: VICTIM_LEASE or, as others are to take over soon what it had when it was
// killed, a second.
func Lease() time.Duration {
	if lease, err := time.ParseDuration(os.Getenv("VICTIM_LEASE")); err == nil {
		return lease
	}
	return time.Second
}
