package inbound_test

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
)

// A bot that repeats what it is told: once for each message, however often Telegram sends
// it, and whatever dies meanwhile.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // a login that holds deed_worker
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	telegram, err := inbound.Telegram(inbound.TelegramOptions{Secrets: []string{os.Getenv("TG_SECRET")}})
	if err != nil {
		log.Fatal(err)
	}
	r, err := inbound.New(ctx, pool, inbound.Options{
		Sources: map[string]inbound.SourceOptions{"support": {
			Source: telegram,
			Executor: func(_ context.Context, m inbound.Message) (inbound.Result, error) {
				if m.Text == "" {
					return inbound.Deny("no_text"), nil
				}
				return inbound.Say("You wrote: " + m.Text), nil
			},
			Reply: inbound.ReplyBy{Provider: "bot", Channel: delivery.Chat},
		}},
		Environment: "production",
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(r.Run(ctx)) }()
	log.Fatal(http.ListenAndServe(":8443", r.Handler())) // at /in/support
}
