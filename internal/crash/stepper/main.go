// Command stepper is a process that tests kill. It is an engine, whose handlers "once", "again" and "slow" note each of their calls
// with its key in the table public.effects; "slow" then waits until that has the key "go on". VICTIM_JOURNAL is its journal,
// VICTIM_SECRET the value of secret://psp, and VICTIM_LEASE its lease, of a second if nothing is said.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/crash/process"
	"github.com/deedhq/deed/run"
)

func main() { process.Main(work) }

func work(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	effect := func(ctx context.Context, _ map[string]any) (string, error) {
		_, err := pool.Exec(ctx, `insert into public.effects (key) values ($1)`, run.Key(ctx))
		return "done", err
	}
	slow := func(ctx context.Context, in map[string]any) (string, error) {
		said, err := effect(ctx, in)
		for goOn := false; err == nil && !goOn; {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(20 * time.Millisecond):
				err = pool.QueryRow(ctx, `select exists (select from public.effects where key = 'go on')`).Scan(&goOn)
			}
		}
		return said, err
	}
	e, err := local.New(ctx, pool, local.Options{
		Handlers: []local.Handler{local.Step("again", effect), local.Step("once", effect), local.Step("slow", slow)},
		Secrets:  run.SecretSources{{Ref: "secret://psp", From: "env:VICTIM_SECRET"}},
		Journal:  os.Getenv("VICTIM_JOURNAL"), StateStore: local.StateStore{WriteLatencyBudget: 500 * time.Millisecond},
		Lease: process.Lease(), PollInterval: 20 * time.Millisecond, Concurrency: 4,
		AllowHosts: []string{"127.0.0.1"}, OnNewCluster: deed.Continue, Logger: log,
	})
	if err != nil {
		return err
	}
	process.Runs()
	return e.Run(ctx)
}
