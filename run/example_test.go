package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/run"
)

// A run is asked for in the transaction that owes it: the same request, however often it is
// made, makes one.
func ExampleCreate() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		made, err := run.Create(ctx, tx, run.Request{
			Plan: "nightly-load", Version: "3", ID: "2026-01-02",
			Input: json.RawMessage(`{"day": "2026-01-02"}`),
		})
		if err == nil {
			log.Printf("run %s, new: %t", made.ID, made.New)
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A worker says that a step is done in the transaction that holds what it did: both are
// there or neither.
func ExampleAppend() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // a login that holds deed_worker
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into loaded (day) values ('2026-01-02')`); err != nil {
			return err
		}
		_, err := run.Append(ctx, tx, "loader/1.4", run.New{
			Run: id, Type: run.StepCompleted, Step: "load", Attempt: 1,
			Data: json.RawMessage(`{"started_at": "2026-01-02T03:00:00Z", "artifacts": [{"uri": "s3://bucket/manifest.json", "kind": "dbt-manifest"}]}`),
		})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Many goroutines append, each an event that is a transaction of its own: what waits at a time goes in
// one commit.
func ExampleAppender() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // a login that holds deed_worker
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	a, err := run.NewAppender(pool, run.AppenderOptions{Adapter: "loader/1.4"})
	if err != nil {
		log.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	var beside, wg sync.WaitGroup
	beside.Go(func() { _ = a.Run(running) })
	for n := range 64 {
		wg.Go(func() {
			got, err := a.Append(ctx, run.New{Run: "01890a5d-ac96-774b-bcce-b302099a8057", Type: run.StepStarted, Step: fmt.Sprint("load-", n), Attempt: 1})
			log.Print(got.Seq, err)
		})
	}
	wg.Wait()
	stop()
	beside.Wait()
}
