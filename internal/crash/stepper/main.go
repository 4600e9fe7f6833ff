// Command stepper is a process that tests kill. It is an engine, whose handlers "once" and "again" note each of their calls
// with its key in the table public.effects.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/run"
)

func main() {
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "stepper:", err)
		os.Exit(1)
	}
}

func work() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("VICTIM_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	effect := func(ctx context.Context, _ map[string]any) (string, error) {
		_, err := pool.Exec(ctx, `insert into public.effects (key) values ($1)`, run.Key(ctx))
		return "done", err
	}
	e, err := local.New(ctx, pool, local.Options{
		Handlers: []local.Handler{local.Step("again", effect), local.Step("once", effect)},
		Lease:    time.Second, PollInterval: 20 * time.Millisecond, Concurrency: 4,
		AllowHosts: []string{"127.0.0.1"}, OnNewCluster: deed.Continue, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	fmt.Println("victim: runs") // what harness.Victim.Stop waits for
	return e.Run(ctx)
}
