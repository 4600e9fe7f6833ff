// Command stepper is a process that tests kill. It is an engine, whose handlers "once", "again" and "slow" note each of their calls
// with its key in the table public.effects; "slow" then waits until that has the key "go on". VICTIM_JOURNAL is its journal,
// VICTIM_SECRET the value of secret://psp, and VICTIM_LEASE its lease, of a second if nothing is said. Where VICTIM_REQUESTS is a number it starts the runs
// of so many requests of the plan p beside itself, four at a time, and says of each what it was answered: "answered REQUEST RUN".
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/crash/process"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
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
	if n, err := strconv.Atoi(os.Getenv("VICTIM_REQUESTS")); err == nil {
		go beside(ctx, pool, e, n)
	}
	return e.Run(ctx)
}

// beside starts runs, and is over when the process is.
func beside(ctx context.Context, pool *pgxpool.Pool, e *local.Engine, requests int) {
	s, err := run.NewStarter(pool, run.StarterOptions{Engine: e, Deadline: time.Minute}) // or what a busy machine holds up fails
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() { _ = s.Run(ctx) }()
	taking := e.Beside()
	for c := taking.Claim(1); ; c = taking.Claim(1) { // or nothing of it is claimed as it is started
		if c != nil {
			c.Take(nil, time.Now())
			break
		}
		time.Sleep(time.Millisecond)
	}
	for c := range 4 {
		go func() {
			for n := c; n < requests; n += 4 {
				started, err := s.StartFor(ctx, tenant.Default, run.Request{Plan: "p", Version: "1", ID: strconv.Itoa(n)})
				if err != nil {
					fmt.Fprintf(os.Stderr, "request %d: %v\n", n, err)
					os.Exit(1)
				}
				fmt.Printf("answered %d %s\n", n, started.ID)
			}
		}()
	}
}
