package delivery_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/smtp"
)

// An e-mail that is owed if and only if the order is shipped, and once however
// often this runs.
func ExampleReserve() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `update orders set shipped_at = now() where id = $1`, "42"); err != nil {
			return err
		}
		_, err := delivery.Reserve(ctx, tx, delivery.Delivery{
			Channel: delivery.Email, Provider: "mail", Recipient: "ada@example.com",
			Payload: delivery.EmailPayload{Subject: "Your order", Text: "It is on its way."}.JSON(),
			Key:     delivery.NewKey("order-shipped", "42"),
		})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A process that makes the calls that are owed, until it is told to stop.
func ExampleLedger_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	mail, err := smtp.New(smtp.Options{Address: "mail.example.com:587", User: "shop", Password: os.Getenv("SMTP_PASSWORD"), From: "shop@example.com"})
	if err != nil {
		log.Fatal(err)
	}

	ledger, err := delivery.New(ctx, pool, delivery.Options{
		Environment: "production",
		Providers:   map[string]delivery.ProviderOptions{"mail": {Provider: mail, Rate: 10}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := ledger.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// Nobody knows what became of a call whose answer was lost. A person looks at the
// provider's log, and says what to do.
func ExampleLedger_Settle() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	ledger, err := delivery.New(ctx, pool, delivery.Options{})
	if err != nil {
		log.Fatal(err)
	}

	doubts, err := ledger.List(ctx, delivery.Filter{InDoubt: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range doubts.Items {
		status, err := ledger.Settle(ctx, d.ID, delivery.SendAgain, "", audit.Act{By: "ann", Reason: "no trace of it in the log of " + d.Provider})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.ID, status)
	}
}

// The same parts give the same key, so that what is reserved twice is one
// delivery.
func ExampleNewKey() {
	first, again := delivery.NewKey("order-shipped", "42"), delivery.NewKey("order-shipped", "42")
	other := delivery.NewKey("order", "shipped42")
	fmt.Println(first == again, first == other)
	// Output: true false
}
