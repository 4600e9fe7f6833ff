// Command coder is a process that tests kill. It is an engine, whose handler "code" has inner steps of all kinds; each of their
// calls is noted with its key in the table public.effects, and what Tx does is a row of public.orders.
package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/crash/process"
	"github.com/deedhq/deed/run"
)

func main() { process.Main(work) }

func work(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	effect := func(ctx context.Context) (string, error) {
		_, err := pool.Exec(ctx, `insert into public.effects (key) values ($1)`, run.Key(ctx))
		return run.Key(ctx), err
	}
	// Each passes on what the steps before it have returned, so that one that is not remembered shows.
	code := func(ctx context.Context, _ map[string]any) (string, error) {
		first, err := run.Step(ctx, "first", effect)
		if err != nil {
			return "", err
		}
		if err := run.Tx(ctx, "order", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `insert into public.orders (first) values ($1)`, first)
			return err
		}); err != nil {
			return "", err
		}
		if err := run.Sleep(ctx, "cool-off", 1100*time.Millisecond); err != nil {
			return "", err
		}
		if err := run.Parallel(ctx,
			run.Branch{Name: "left", Do: func(ctx context.Context) error {
				if _, err := run.Step(ctx, "a", effect); err != nil {
					return err
				}
				_, err := run.Step(ctx, "b", effect)
				return err
			}},
			run.Branch{Name: "right", Do: func(ctx context.Context) error {
				if err := run.Sleep(ctx, "short", time.Millisecond); err != nil {
					return err
				}
				_, err := run.Step(ctx, "a", effect)
				return err
			}},
		); err != nil {
			return "", err
		}
		return run.Step(ctx, "last", func(ctx context.Context) (string, error) {
			_, err := effect(ctx)
			return first, err
		})
	}
	e, err := local.New(ctx, pool, local.Options{
		Handlers: []local.Handler{local.Step("code", code)},
		Lease:    time.Second, PollInterval: 20 * time.Millisecond, Concurrency: 4,
		OnNewCluster: deed.Continue, Logger: log,
	})
	if err != nil {
		return err
	}
	process.Runs()
	return e.Run(ctx)
}
