package deed_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
)

// An order and the message that it was placed exist both, or neither.
func ExamplePublish() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	order := struct {
		ID    string `json:"id"`
		Cents int64  `json:"cents"`
	}{"42", 1999}

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into orders (id, cents) values ($1, $2)`, order.ID, order.Cents); err != nil {
			return err
		}
		_, err := deed.Publish(ctx, tx, deed.Message{Topic: "orders", Key: order.ID, Type: "order.placed", Value: order})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The same with the message sent in the round trip of the commit.
func ExampleInTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	published, err := deed.InTx(ctx, pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
		if _, err := tx.Exec(ctx, `insert into orders (id, cents) values ($1, $2)`, "42", 1999); err != nil {
			return err
		}
		return tx.Publish(ctx, deed.Message{Topic: "orders", Key: "42", Type: "order.placed", Value: map[string]int{"cents": 1999}})
	})
	if err != nil {
		log.Fatal(err) // neither the order nor the message exists
	}
	fmt.Println("message", published[0].ID)
}

// A process that works on a queue until it is told to stop.
func ExampleHandle() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	type order struct {
		ID    string `json:"id"`
		Cents int64  `json:"cents"`
	}

	client, err := deed.New(ctx, pool, deed.Options{
		Logger: slog.Default(),
		Subscriptions: []deed.Subscription{
			deed.Handle("orders", func(_ context.Context, m deed.Received[order]) error {
				if m.Value.Cents < 0 {
					return deed.Permanent(errors.New("an order of less than nothing")) // a dead letter at once
				}
				fmt.Println("invoice", m.Value.ID, "attempt", m.Attempt)
				return nil // any other error is retried, with back-off
			}),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A stream keeps the order of each key; its sink is a function here, and may as
// well be one of sink/kafka, sink/nats or sink/webhook.
func ExampleClient_Run_stream() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	client, err := deed.New(ctx, pool, deed.Options{
		Topics: []deed.Topic{{Name: "order-events", Mode: deed.ModeStream}},
		Subscriptions: []deed.Subscription{{
			Topic: "order-events", Name: "ledger", From: deed.FromBeginning,
			Sink: deed.SinkFunc(func(_ context.Context, m deed.Message) error {
				fmt.Printf("%s %s: %s\n", m.Key, m.Type, m.Payload)
				return nil
			}),
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A sink that is down says so: that is no attempt, and the subscription waits.
func ExampleUnavailable() {
	err := deed.Unavailable(errors.New("connection refused"), 30*time.Second)

	wait, _ := deed.RetryAfter(err)
	fmt.Println(err, deed.IsUnavailable(err), wait)
	// Output: connection refused true 30s
}

// A message's id tells when it was published, and which number it has.
func ExampleParseID() {
	id, err := deed.ParseID("01a1fc88-7193-7000-8000-00000000002a")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(id.Seq(), id.Time().Format(time.RFC3339))
	// Output: 42 2026-11-21T05:16:02Z
}
