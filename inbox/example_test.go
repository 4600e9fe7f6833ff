package inbox_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/inbox"
)

// A consumer invoices an order once, however often its message comes: that it has
// is noted in the transaction of the invoice, in the consumer's own database.
func ExampleOnce() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("CONSUMER_DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	receive := func(ctx context.Context, m deed.Message) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := inbox.Once(ctx, tx, "invoices", m.ID, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `insert into invoices (data) values ($1)`, m.Payload)
				return err
			})
			return err
		})
	}
	// A relay gives it to a subscription; behind a broker, acknowledge when it
	// returns nil.
	_ = deed.Subscription{Topic: "orders", Name: "invoices", Sink: deed.SinkFunc(receive)}
}
