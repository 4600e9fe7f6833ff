// Command runner is a process that tests kill. It appends events to the runs of VICTIM_RUNS, in turn, half of them by
// an Appender, and projects all runs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/crash/process"
	"github.com/deedhq/deed/run"
)

func main() { process.Main(work) }

func work(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	p := run.NewProjector(pool, run.ProjectorOptions{Logger: log})
	c, err := deed.New(ctx, pool, deed.Options{
		Subscriptions: []deed.Subscription{{Topic: run.Topic, Name: run.Subscription, Sink: p, From: deed.FromBeginning, Lease: 2 * time.Second}}, OnNewCluster: deed.Continue,
	})
	if err != nil {
		return err
	}
	a, err := run.NewAppender(pool, run.AppenderOptions{Adapter: "runner/1"})
	if err != nil {
		return err
	}
	process.Runs()
	var beside sync.WaitGroup
	var appended error
	beside.Go(func() { appended = write(ctx, pool, a) })
	beside.Go(func() { _ = a.Run(ctx) })
	beside.Go(func() { _ = p.Run(ctx) })
	err = c.Run(ctx)
	beside.Wait()
	return errors.Join(err, appended)
}

// write appends fifty steps to each run, and waits after every ten until they are projected:
// a process that comes to its third projection has to have something left to project, however
// slow it is.
func write(ctx context.Context, pool *pgxpool.Pool, a *run.Appender) error {
	for n := range 50 {
		for i, id := range strings.Split(os.Getenv("VICTIM_RUNS"), ",") {
			e := run.New{
				Run: id, Type: run.StepCompleted, Step: "s" + strconv.Itoa(n), Attempt: 1, EngineAttempt: i + 1, Data: json.RawMessage(`{"started_at": "2026-01-02T03:04:05Z"}`),
			}
			var last run.Appended
			var err error
			if n%2 == 0 {
				last, err = appendOne(ctx, pool, e)
			} else {
				last, err = a.Append(ctx, e)
			}
			if err == nil && n%10 == 9 {
				err = untilProjected(ctx, pool, id, last.Seq)
			}
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

func appendOne(ctx context.Context, pool *pgxpool.Pool, e run.New) (a run.Appended, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		crash.Point("appending")
		list, err := run.Append(ctx, tx, "runner/1", e)
		crash.Point("appended")
		if err == nil {
			a = list[0]
		}
		return err
	})
	crash.Point("committed")
	return a, err
}

func untilProjected(ctx context.Context, pool *pgxpool.Pool, id string, seq int64) error {
	for {
		var projected int64
		if err := pool.QueryRow(ctx, `select coalesce(max(last_event_seq), 0) from deed.run_snapshots where run_id = $1::text::uuid`, id).Scan(&projected); err != nil || projected >= seq {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}
