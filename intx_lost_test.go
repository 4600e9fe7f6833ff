package deed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// A function of InTx that goes on after a failure: its orders are committed with their
// messages, or not at all.
func TestInTx_NoFailureIsForgotten(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	order := func(ctx context.Context, tx *deed.Tx, n int) error {
		return errors.Join(note(ctx, tx, n), tx.Publish(ctx, message("jobs", n)))
	}
	elsewhere := errors.New("elsewhere")
	for name, c := range map[string]struct {
		fn    func(ctx context.Context, tx *deed.Tx) error
		fails bool
	}{
		"a statement whose time is over, then another": {fn: func(ctx context.Context, tx *deed.Tx) error {
			err := order(ctx, tx, 1)
			_, _ = tx.Exec(over, `select 1`)
			return errors.Join(err, order(ctx, tx, 2), note(ctx, tx, 3), tx.Publish(ctx, message("jobs", 3)))
		}},
		"a statement whose time is over, then a savepoint that is rolled back": {fn: func(ctx context.Context, tx *deed.Tx) error {
			err := order(ctx, tx, 1)
			_, _ = tx.Exec(over, `select 1`)
			if back := pgx.BeginFunc(ctx, tx, func(pgx.Tx) error { return elsewhere }); !errors.Is(back, elsewhere) {
				return back
			}
			return err
		}},
		"a statement beside rows that are read": {fn: func(ctx context.Context, tx *deed.Tx) error {
			rows, err := tx.Query(ctx, `select generate_series(1, 3)`)
			if err != nil {
				return err
			}
			err = tx.Publish(ctx, message("jobs", 1))
			_, _ = tx.Exec(ctx, `select 1`)
			rows.Close()
			return errors.Join(err, note(ctx, tx, 1))
		}},
		"a savepoint whose time is over": {fails: true, fn: func(ctx context.Context, tx *deed.Tx) error {
			ended, cancel := context.WithCancel(ctx)
			err := pgx.BeginFunc(ended, tx, func(sp pgx.Tx) error {
				err := order(ctx, sp.(*deed.Tx), 1)
				cancel()
				return errors.Join(err, elsewhere)
			})
			if !errors.Is(err, elsewhere) {
				return err
			}
			return nil
		}},
		"a savepoint whose time is over, in one that is rolled back": {fn: func(ctx context.Context, tx *deed.Tx) error {
			outer, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			inner, err := outer.Begin(ctx)
			if err != nil {
				return err
			}
			err = order(ctx, inner.(*deed.Tx), 1)
			if back := inner.Rollback(over); back == nil {
				return errors.New("it was rolled back nevertheless")
			}
			if more := inner.(*deed.Tx).Publish(ctx, message("jobs", 9)); !errors.Is(more, pgx.ErrTxClosed) {
				return fmt.Errorf("it takes messages: %w", more)
			}
			if more := outer.(*deed.Tx).Publish(ctx, message("jobs", 9)); more == nil {
				return errors.New("what has failed takes messages")
			}
			return errors.Join(err, outer.Rollback(ctx), order(ctx, tx, 2))
		}},
		"a refused message, then others": {fails: true, fn: func(ctx context.Context, tx *deed.Tx) error {
			err := errors.Join(order(ctx, tx, 1), tx.Publish(ctx, deed.Message{Topic: "jobs", Payload: []byte(`"` + strings.Repeat("x", 2<<20) + `"`)}))
			_, _ = tx.Exec(ctx, `select 1`)
			if more := tx.Publish(ctx, message("jobs", 2)); deed.CodeOf(more) != deed.Invalid {
				return fmt.Errorf("what has failed takes messages: %w", more)
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, pool := placesOrders(t)
			published, err := deed.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx *deed.Tx) error { return c.fn(t.Context(), tx) })
			if (err != nil) != c.fails {
				t.Errorf("error %v", err)
			}
			ordersAndMessages(t, db, 0, len(published))
		})
	}
}

// note makes an order, of which there may be many.
func note(ctx context.Context, tx pgx.Tx, n int) error {
	_, err := tx.Exec(ctx, `insert into public.orders (n) values ($1)`, n)
	return err
}

// ordersAndMessages are the same numbers, above one, and as many as were returned.
func ordersAndMessages(t *testing.T, db *pgtest.DB, above, returned int) {
	t.Helper()
	orders := pgtest.One[[]int](t, db.Pool(pgtest.Owner), `select coalesce(array_agg(n order by n), '{}') from public.orders where n > $1`, above)
	messages := pgtest.One[[]int](t, db.Pool(pgtest.Worker), `
		select coalesce(array_agg(m.n order by m.n), '{}') from (select (convert_from(payload, 'UTF8')::jsonb ->> 'n')::int as n from deed.log where topic = 'jobs') m where m.n > $1`, above)
	same(t, "messages", messages, orders)
	same(t, "returned", returned, len(orders))
}

// Beside rows that are being read nothing can be sent: however much is published
// there, it waits.
func TestInTx_MuchBesideOpenRows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, pool := placesOrders(t)
	m := deed.Message{Topic: "jobs", Payload: []byte(`"` + strings.Repeat("x", 1<<20-100) + `"`)}
	published, err := deed.InTx(ctx, pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
		rows, err := tx.Query(ctx, `select generate_series(1, 20)`)
		if err != nil {
			return err
		}
		for rows.Next() {
			err = errors.Join(err, tx.Publish(ctx, m))
		}
		return errors.Join(err, rows.Err())
	})
	if err != nil || len(published) != 20 {
		t.Errorf("%d results, %v", len(published), err)
	}
	same(t, "messages", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log`), 20)
}

// Programs of orders, failing statements, contexts that have ended and savepoints in
// each other: whatever they pass over, what is committed are orders with their
// messages.
func TestInTx_RandomPrograms(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	over, cancel := context.WithCancel(ctx)
	cancel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	db, pool := placesOrders(t)
	n, committed := 0, 0
	var trace []string
	did := func(what string, err error) error {
		trace = append(trace, fmt.Sprint(what, ": ", err))
		return err
	}
	someContext := func() context.Context {
		if r.IntN(8) == 0 {
			return over
		}
		return ctx
	}
	var program func(tx *deed.Tx, depth int)
	program = func(tx *deed.Tx, depth int) {
		for range 1 + r.IntN(5) {
			switch k := r.IntN(10); {
			case k < 4:
				n++
				if did(fmt.Sprint("order ", n), note(someContext(), tx, n)) == nil {
					_ = did("publish", tx.Publish(ctx, message("jobs", n))) // refused once the transaction has failed
				}
			case k < 5:
				_, err := tx.Exec(someContext(), `select 1`)
				_ = did("select", err)
			case k < 6 && depth > 0:
				_, err := tx.Exec(ctx, `select 1/0`)
				_ = did("fail", err)
			case depth < 3:
				sp, err := tx.Begin(someContext())
				if did("begin", err) != nil {
					continue
				}
				program(sp.(*deed.Tx), depth+1)
				if r.IntN(2) == 0 {
					_ = did("release", sp.Commit(someContext()))
				} else {
					_ = did("back", sp.Rollback(someContext()))
				}
			}
		}
	}
	for range 300 {
		above := n
		trace = nil
		published, err := deed.InTx(ctx, pool, pgx.TxOptions{}, func(tx *deed.Tx) error { program(tx, 0); return nil })
		if err == nil {
			committed++
		}
		ordersAndMessages(t, db, above, len(published))
		if t.Failed() {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(trace, "\n"))
		}
	}
	if committed < 100 {
		t.Errorf("seed %d: %d of 300 programs were committed: it shows little", seed, committed)
	}
}
