// Command service is a shop with one table, as docs/go.md walks through it: an
// order is stored, published and confirmed by e-mail in one transaction; the same
// process invoices it from a queue, lists it from a stream, and sends the e-mail.
//
//	MIGRATE_URL=postgres://owner@… DATABASE_URL=postgres://shop@… SMTP_ADDRESS=127.0.0.1:25 go run ./examples/service
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbox"
	"github.com/deedhq/deed/provider/smtp"
	"github.com/deedhq/deed/schema"
	"github.com/deedhq/deed/server"
	"github.com/deedhq/deed/server/metrics"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := settings{
		migrate: os.Getenv("MIGRATE_URL"), database: os.Getenv("DATABASE_URL"),
		smtp: os.Getenv("SMTP_ADDRESS"), listen: cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"),
	}
	if err := run(ctx, s, slog.Default()); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

type settings struct {
	migrate  string // of the schema's owner; empty: it is installed
	database string // of a login that holds deed_app and deed_worker
	smtp     string // host:port
	listen   string
}

type order struct {
	ID    string `json:"id"`
	Email string `json:"email"`
	Cents int64  `json:"cents"`
}

const tables = `
	create table if not exists orders (id text primary key, email text not null, cents bigint not null);
	create table if not exists invoices (order_id text primary key, cents bigint not null);
	grant select, insert on orders, invoices to deed_app`

// install makes the schema, which any number of processes may do at once, and
// what the service itself needs.
func install(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := schema.Up(ctx, conn); err != nil {
		return err
	}
	if err := inbox.Install(ctx, conn, "deed_app"); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, tables)
	return err
}

// place stores an order with all that it owes to the world, or nothing.
func place(ctx context.Context, pool *pgxpool.Pool, o order) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into orders (id, email, cents) values ($1, $2, $3)`, o.ID, o.Email, o.Cents); err != nil {
			return err
		}
		_, err := deed.Publish(ctx, tx,
			deed.Message{Topic: "orders", Type: "order.placed", Value: o},
			deed.Message{Topic: "order-events", Key: o.Email, Type: "order.placed", Value: o})
		if err != nil {
			return err
		}
		_, err = delivery.Reserve(ctx, tx, delivery.Delivery{
			Channel: delivery.Email, Provider: "mail", Recipient: o.Email,
			Payload: delivery.EmailPayload{Subject: "Your order " + o.ID, Text: "We have it, and thank you."}.JSON(),
			Key:     delivery.NewKey("order-placed", o.ID),
		})
		return err
	})
}

// invoice handles an order once, however often its message comes: the note and
// the invoice are one transaction.
func invoice(pool *pgxpool.Pool) func(context.Context, deed.Received[order]) error {
	return func(ctx context.Context, m deed.Received[order]) error {
		if m.Value.Cents < 0 {
			return deed.Permanent(errors.New("an order of less than nothing"))
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := inbox.Once(ctx, tx, "invoices", m.ID, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `insert into invoices (order_id, cents) values ($1, $2)`, m.Value.ID, m.Value.Cents)
				return err
			})
			return err
		})
	}
}

func run(ctx context.Context, s settings, log *slog.Logger) error {
	if s.migrate != "" {
		if err := install(ctx, s.migrate); err != nil {
			return fmt.Errorf("install: %w", err)
		}
	}
	pool, err := pgxpool.New(ctx, s.database)
	if err != nil {
		return err
	}
	defer pool.Close()

	events := deed.SinkFunc(func(_ context.Context, m deed.Message) error {
		log.Info("event", "type", m.Type, "customer", m.Key, "seq", m.Seq)
		return nil
	})
	client, err := deed.New(ctx, pool, deed.Options{
		Logger: log,
		Topics: []deed.Topic{{Name: "order-events", Mode: deed.ModeStream}},
		Subscriptions: []deed.Subscription{
			deed.Handle("orders", invoice(pool)),
			{Topic: "order-events", Name: "log", Sink: events},
		},
	})
	if err != nil {
		return err
	}
	mail, err := smtp.New(smtp.Options{Address: s.smtp, Security: smtp.Plain, From: "shop@example.com"})
	if err != nil {
		return err
	}
	ledger, err := delivery.New(ctx, pool, delivery.Options{
		Logger:    log,
		Providers: map[string]delivery.ProviderOptions{"mail": {Provider: mail}},
	})
	if err != nil {
		return err
	}
	if err := ledger.Register(ctx); err != nil { // or the first order finds no provider
		return err
	}
	operator, err := admin.New(ctx, pool, admin.Options{})
	if err != nil {
		return err
	}
	measured := metrics.New(client, operator, metrics.Options{Ledger: ledger, Logger: log})
	registry := prometheus.NewRegistry()
	registry.MustRegister(measured)

	mux := http.NewServeMux()
	mux.Handle("/", server.Handler(client.Ready, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var o order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := place(r.Context(), pool, o); err != nil {
			log.Error("order not stored", "order", o.ID, "error", err)
			http.Error(w, "try again", http.StatusInternalServerError)
			return
		}
		client.Wake() // optional: saves the rest of a poll interval
		w.WriteHeader(http.StatusCreated)
	})
	listener, err := server.Listen(ctx, s.listen)
	if err != nil {
		return err
	}

	// The first that fails ends the others; each ends what it has begun.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	errs := make(chan error, 3)
	for _, part := range []func(context.Context) error{
		client.Run,
		ledger.Run,
		func(ctx context.Context) error { return server.Serve(ctx, listener, mux) },
	} {
		running.Go(func() {
			err := part(ctx)
			errs <- err
			cancel(err)
		})
	}
	running.Go(func() { measured.Run(ctx) })
	running.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}
