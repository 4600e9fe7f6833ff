package local_test

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/run"
)

// A program asks for a run of a plan that is stored, in the transaction that owes it, and does the
// steps of all runs until it is stopped. Any number of programs may.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // a login that holds deed_worker
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	type order struct{ Order string }
	type paid struct{ Amount int }
	engine, err := local.New(ctx, pool, local.Options{Handlers: []local.Handler{
		local.Step("charge", func(ctx context.Context, o order) (paid, error) {
			log.Printf("charge %s once, by its key %s", o.Order, run.Key(ctx))
			return paid{Amount: 42}, nil
		}),
	}})
	if err != nil {
		log.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := run.Start(ctx, tx, run.Request{Plan: "ship-order", Version: "3", ID: "order-7", Input: json.RawMessage(`{"order": "7"}`)})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	engine.Wake()
	if err := engine.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
