// Command deliverer is a worker that tests kill. It reserves deliveries and
// makes them through one provider.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/resend"
	"github.com/deedhq/deed/provider/smtp"
	"github.com/deedhq/deed/provider/webhook"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "deliverer:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("VICTIM_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	p, channel, recipient, err := provider(os.Getenv("VICTIM_PROVIDER"), os.Getenv("VICTIM_ADDRESS"))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(os.Getenv("VICTIM_DELIVERIES"))
	if err != nil {
		return err
	}
	l, err := delivery.New(ctx, pool, delivery.Options{
		Providers:    map[string]delivery.ProviderOptions{"p": {Provider: p, Concurrency: 2, PerDomain: 2, Hanging: -1, Timeout: 5 * time.Second}},
		Environment:  "crash",
		PollInterval: 50 * time.Millisecond, ClaimBatch: 4, Lease: time.Second, BaseRetry: 50 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := l.Register(ctx); err != nil {
		return err
	}
	// Every worker reserves all of them: a key is one delivery, whoever comes
	// first.
	for i := 0; i < n; i += 5 {
		var list []delivery.Delivery
		for k := i; k < min(i+5, n); k++ {
			list = append(list, delivery.Delivery{
				Channel: channel, Provider: "p", Recipient: recipient, Guarantee: delivery.Guarantee(os.Getenv("VICTIM_GUARANTEE")),
				Payload: delivery.EmailPayload{From: "a@example.com", Subject: "n", Text: fmt.Sprint(k)}.JSON(), Key: delivery.NewKey("crash", fmt.Sprint(k)),
			})
		}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := delivery.Reserve(ctx, tx, list...)
			return err
		})
		if err != nil {
			return err
		}
	}
	fmt.Println("victim: runs") // what harness.Victim.Stop waits for
	return l.Run(ctx)
}

func provider(kind, address string) (delivery.Provider, delivery.Channel, string, error) {
	switch kind {
	case "smtp":
		p, err := smtp.New(smtp.Options{Address: address, Security: smtp.Plain})
		return p, delivery.Email, "bob@example.org", err
	case "resend":
		p, err := resend.New(resend.Options{APIKey: "re_x", Endpoint: "http://" + address})
		return p, delivery.Email, "bob@example.org", err
	case "webhook":
		p, err := webhook.New(webhook.Options{Secret: "a secret of the tests", AllowHosts: []string{"127.0.0.1"}})
		return p, delivery.Webhook, "http://" + address + "/hook", err
	}
	return nil, "", "", errors.New("VICTIM_PROVIDER is none of smtp, resend and webhook")
}
