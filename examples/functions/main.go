// Command functions ships orders with a plain Go function that goes on where it was after a crash, as docs/functions.md
// walks through it: an order is stored, and its run begun, in one transaction; the same process does the runs.
//
//	DATABASE_URL=postgres://shop@… go run ./examples/functions
//
// The login holds deed_app and deed_worker and, since it makes its table, shop_orders, may create in the schema public.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/run"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err == nil {
		_, err = pool.Exec(ctx, `create table if not exists public.shop_orders (id text primary key, cents bigint not null, shipped_at timestamptz)`)
	}
	if err == nil {
		err = serve(ctx, &shop{pool: pool, psp: printer{}, coolOff: 24 * time.Hour}, order{ID: "7", Cents: 1250})
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "functions:", err)
		os.Exit(1)
	}
}

// psp takes money: what is asked again under the same key is not taken again.
type psp interface {
	Charge(ctx context.Context, o order, key string) (string, error)
}

type printer struct{}

func (printer) Charge(_ context.Context, o order, key string) (string, error) {
	slog.Info("charge", "order", o.ID, "cents", o.Cents, "key", key)
	return "tx-" + o.ID, nil
}

type shop struct {
	pool    *pgxpool.Pool
	psp     psp
	coolOff time.Duration
}

type order struct {
	ID    string `json:"id"`
	Cents int64  `json:"cents"`
}

type receipt struct {
	Transaction string `json:"transaction"`
}

// ship is what becomes of an order.
func (s *shop) ship(ctx context.Context, o order) (receipt, error) {
	paid, err := run.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		return s.psp.Charge(ctx, o, run.Key(ctx))
	})
	if err != nil {
		return receipt{}, err
	}
	if err := run.Sleep(ctx, "cool-off", s.coolOff); err != nil {
		return receipt{}, err
	}
	err = run.Tx(ctx, "ship", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update public.shop_orders set shipped_at = now() where id = $1`, o.ID)
		return err
	})
	return receipt{Transaction: paid}, err
}

// engine does the runs.
func (s *shop) engine(ctx context.Context) (*local.Engine, error) {
	return local.New(ctx, s.pool, local.Options{Handlers: []local.Handler{
		local.Func("ship-order", 1, s.ship).With(local.Policy{Attempts: 5, Backoff: 2 * time.Second}),
	}})
}

// place stores an order and begins its run.
func (s *shop) place(ctx context.Context, o order) (started run.Started, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into public.shop_orders (id, cents) values ($1, $2) on conflict do nothing`, o.ID, o.Cents); err != nil {
			return err
		}
		started, err = run.Start(ctx, tx, run.Request{Plan: "ship-order", ID: o.ID, Input: o})
		return err
	})
	return started, err
}

func serve(ctx context.Context, s *shop, o order) error {
	engine, err := s.engine(ctx)
	if err != nil {
		return err
	}
	started, err := s.place(ctx, o)
	if err != nil {
		return err
	}
	slog.Info("placed", "order", o.ID, "run", started.ID, "new", started.New)
	return engine.Run(ctx)
}
