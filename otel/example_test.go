package otel_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/otel"
)

// The span that publishes, and below it each delivery's, however much later. The
// spans go where the program's TracerProvider sends them.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	tracer := otel.New(otel.Options{})

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tracer.Publish(ctx, tx, deed.Message{Topic: "orders", Value: map[string]int{"order": 42}})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = deed.Options{Subscriptions: []deed.Subscription{
		tracer.Subscription(deed.Handle("orders", func(ctx context.Context, m deed.Received[map[string]int]) error {
			return nil // what is called with ctx continues the trace
		})),
	}}
}
