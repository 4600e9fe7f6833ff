package deed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// placesOrders is a database with a table of the application's own, and its pool.
func placesOrders(t *testing.T) (*pgtest.DB, *pgxpool.Pool) {
	t.Helper()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `
		create table public.orders (n int primary key, later int constraint once unique deferrable initially deferred);
		grant all on public.orders to public`)
	return db, db.Pool(pgtest.App)
}

// place makes an order; of two there is one too many, which the commit finds out.
func place(ctx context.Context, tx pgx.Tx, n int) error {
	_, err := tx.Exec(ctx, `insert into public.orders (n, later) values ($1, 1)`, n)
	return err
}

// What a transaction publishes is there with what it has done, in order, and its
// ids are known afterwards; of one without messages nothing is.
func TestInTx_StoresWithTheCommit(t *testing.T) {
	t.Parallel()
	db, pool := placesOrders(t)
	ctx := deed.WithTrace(t.Context(), deed.Trace{CorrelationID: "c-1"})
	published, err := deed.InTx(ctx, pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
		if err := tx.Publish(ctx, keyed("a", 1), message("jobs", 2)); err != nil {
			return err
		}
		if err := place(ctx, tx, 1); err != nil {
			return err
		}
		value := map[string]int{"n": 3}
		if err := tx.Publish(t.Context(), deed.Message{Topic: "jobs", Value: value}); err != nil {
			return err
		}
		value["n"] = 4 // too late
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		id          int64
		topic, body string
		correlation *string
	}
	rows, err := db.Pool(pgtest.Worker).Query(t.Context(), `select id, topic, convert_from(payload, 'UTF8'), headers ->> 'correlation-id' from deed.log order by id`)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (s row, err error) {
		return s, r.Scan(&s.id, &s.topic, &s.body, &s.correlation)
	})
	if err != nil || len(stored) != 3 || len(published) != 3 {
		t.Fatalf("stored %+v, returned %+v, %v", stored, published, err)
	}
	for i, s := range stored {
		if published[i].Seq != s.id || published[i].ID.Seq() != s.id {
			t.Errorf("message %d is number %d, and returned as %+v", i+1, s.id, published[i])
		}
	}
	if stored[0].topic != "orders" || stored[2].body != `{"n":3}` || stored[1].correlation == nil || *stored[1].correlation != "c-1" || stored[2].correlation != nil {
		t.Errorf("stored %+v", stored)
	}
	same(t, "orders", pgtest.One[int](t, pool, `select count(*) from public.orders`), 1)

	published, err = deed.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
		_, err := tx.Exec(t.Context(), `insert into public.orders (n) values (2)`)
		return err
	})
	if err != nil || len(published) > 0 || pgtest.One[int](t, pool, `select count(*) from public.orders`) != 2 {
		t.Errorf("without messages: %v, %v", published, err)
	}
	verified(t, db)
}

// Whatever ends a transaction otherwise, nothing of it is stored, the error says
// what it was, and the connection goes back to the pool as it was.
func TestInTx_AllOrNothing(t *testing.T) {
	t.Parallel()
	db, pool := placesOrders(t)
	errOwn := errors.New("not today")
	big := deed.Message{Topic: "orders", Payload: []byte(`"` + strings.Repeat("x", 2<<20) + `"`)}
	for name, test := range map[string]struct {
		opts pgx.TxOptions
		do   func(ctx context.Context, tx *deed.Tx) error
		want func(err error) bool
	}{
		"its own error": {do: func(context.Context, *deed.Tx) error { return errOwn }, want: func(err error) bool { return err == errOwn }},
		"a message that is refused here": {
			do: func(ctx context.Context, tx *deed.Tx) error {
				return tx.Publish(ctx, deed.Message{Topic: "no topic", Value: 1})
			},
			want: func(err error) bool { return deed.CodeOf(err) == deed.Invalid },
		},
		"a message that the database refuses": {
			do: func(ctx context.Context, tx *deed.Tx) error { return tx.Publish(ctx, keyed("a", 1), big) },
			want: func(err error) bool {
				return deed.CodeOf(err) == deed.Invalid && strings.Contains(err.Error(), "message 2")
			},
		},
		"the only one": {
			do:   func(ctx context.Context, tx *deed.Tx) error { return tx.Publish(ctx, big) },
			want: func(err error) bool { return deed.CodeOf(err) == deed.Invalid },
		},
		"another tenant's": {
			do: func(ctx context.Context, tx *deed.Tx) error {
				if err := tenant.Set(ctx, tx, tenant.ID{0xa}); err != nil {
					return err
				}
				m := keyed("a", 1)
				m.Tenant = tenant.ID{0xb}
				return tx.Publish(ctx, m)
			},
			want: func(err error) bool { return deed.CodeOf(err) == deed.Forbidden },
		},
		"a constraint at the commit": {
			do: func(ctx context.Context, tx *deed.Tx) error {
				return errors.Join(place(ctx, tx, 101), place(ctx, tx, 102))
			},
			want: func(err error) bool { return sqlState(err) == "23505" },
		},
		"a failed statement that nobody minds": {
			do: func(ctx context.Context, tx *deed.Tx) error {
				_, _ = tx.Exec(ctx, `select 1/0`)
				return tx.Publish(ctx, keyed("a", 1))
			},
			want: func(err error) bool { return sqlState(err) == "25P02" },
		},
		"the same without messages": {
			do: func(ctx context.Context, tx *deed.Tx) error {
				_, _ = tx.Exec(ctx, `select 1/0`)
				return nil
			},
			want: func(err error) bool { return errors.Is(err, pgx.ErrTxCommitRollback) },
		},
		"a commit of its own": {
			do:   func(ctx context.Context, tx *deed.Tx) error { return tx.Commit(ctx) },
			want: func(err error) bool { return strings.Contains(err.Error(), "ends with its function") },
		},
		"a rollback of its own": {
			do:   func(ctx context.Context, tx *deed.Tx) error { return tx.Rollback(ctx) },
			want: func(err error) bool { return strings.Contains(err.Error(), "ends with its function") },
		},
		"one that may only read": {
			opts: pgx.TxOptions{AccessMode: pgx.ReadOnly},
			do:   func(ctx context.Context, tx *deed.Tx) error { return tx.Publish(ctx, keyed("a", 1)) },
			want: func(err error) bool { return sqlState(err) == "25006" },
		},
	} {
		published, err := deed.InTx(t.Context(), pool, test.opts, func(tx *deed.Tx) error {
			if test.opts.AccessMode == "" {
				if _, err := tx.Exec(t.Context(), `insert into public.orders (n) values (7)`); err != nil {
					return err
				}
			}
			return test.do(t.Context(), tx)
		})
		if err == nil || len(published) > 0 || !test.want(err) {
			t.Errorf("%s: %v, %v", name, published, err)
		}
	}
	func() {
		defer func() {
			if v := recover(); v != "mine" {
				t.Errorf("a panic became %v", v)
			}
		}()
		_, _ = deed.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx *deed.Tx) error { panic("mine") })
	}()
	ended, cancel := context.WithCancel(t.Context())
	if _, err := deed.InTx(ended, pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
		cancel()
		return tx.Publish(ended, keyed("a", 1))
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before the commit: %v", err)
	}
	same(t, "messages", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.log`), 0)
	same(t, "orders", pgtest.One[[]int](t, pool, `select coalesce(array_agg(n), '{}') from public.orders`), []int{})
	// One that was given up is let go of in the background.
	eventually(t, "the connections to be given back", func() bool { return pool.Stat().AcquiredConns() == 0 })
}

// Of two serializable transactions that contradict each other one is told 40001,
// and nothing of it is stored.
func TestInTx_SerializationFailure(t *testing.T) {
	t.Parallel()
	db, pool := placesOrders(t)
	serializable := pgx.TxOptions{IsoLevel: pgx.Serializable}
	read := func(tx pgx.Tx) error {
		var n int
		return tx.QueryRow(t.Context(), `select count(*) from public.orders`).Scan(&n)
	}
	_, err := deed.InTx(t.Context(), pool, serializable, func(tx *deed.Tx) error {
		if err := read(tx); err != nil {
			return err
		}
		_, err := deed.InTx(t.Context(), pool, serializable, func(other *deed.Tx) error {
			return errors.Join(read(other), place(t.Context(), other, 1), other.Publish(t.Context(), keyed("a", 1)))
		})
		if err != nil {
			t.Errorf("the first to commit: %v", err)
		}
		if _, err := tx.Exec(t.Context(), `insert into public.orders (n) values (2)`); err != nil {
			return err
		}
		return tx.Publish(t.Context(), keyed("a", 2))
	})
	if sqlState(err) != "40001" {
		t.Errorf("the second: %v", err)
	}
	same(t, "messages", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.log`), 1)
}

// turns counts how often a connection has been written to after it was read.
type turns struct {
	net.Conn
	n       *atomic.Int64
	reading atomic.Bool
}

func (c *turns) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.reading.Store(true)
	return n, err
}

func (c *turns) Write(b []byte) (int, error) {
	if c.reading.Swap(false) {
		c.n.Add(1)
	}
	return c.Conn.Write(b)
}

// A transaction that publishes, one message or many, takes as many round trips as
// one that does not.
func TestInTx_NoRoundTripOfItsOwn(t *testing.T) {
	t.Parallel()
	db, _ := placesOrders(t)
	cfg, err := pgxpool.ParseConfig(db.URL(pgtest.App))
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &turns{Conn: conn, n: &n}, err
	}
	cfg.MaxConns = 1
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // as it is after a second of rest
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	trips := map[string][]int64{}
	order := 0
	for _, kind := range []string{"none", "one", "many", "plain"} {
		for range 5 { // the first prepares the statements
			order++
			before := n.Load()
			insert := func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `insert into public.orders (n) values ($1)`, order)
				return err
			}
			var err error
			if kind == "plain" {
				err = pgx.BeginFunc(t.Context(), pool, insert)
			} else {
				_, err = deed.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
					var list []deed.Message
					for i := range map[string]int{"one": 1, "many": 20}[kind] {
						list = append(list, keyed(fmt.Sprint(i), i))
					}
					return errors.Join(insert(tx), tx.Publish(t.Context(), list...))
				})
			}
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			trips[kind] = append(trips[kind], n.Load()-before)
		}
	}
	t.Log(trips)
	for kind, list := range trips {
		if got, want := slices.Min(list), slices.Min(trips["plain"]); got != want || list[4] != want {
			t.Errorf("%s: %v round trips, want %d", kind, list, want)
		}
	}
}

// A payload is what it was when it was published, whatever becomes of its bytes.
func TestInTx_CopiesPayloads(t *testing.T) {
	t.Parallel()
	db, pool := placesOrders(t)
	var b bytes.Buffer
	_, err := deed.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
		for i := range 3 {
			b.Reset()
			fmt.Fprintf(&b, `{"n":%d}`, i)
			if err := tx.Publish(t.Context(), deed.Message{Topic: "jobs", Payload: b.Bytes()}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(convert_from(payload, 'UTF8'), ' ' order by id) from deed.log`)
	if want := `{"n":0} {"n":1} {"n":2}`; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
}

// Once it has ended nothing goes through it: its connection is another's.
func TestInTx_IsClosedAfterItsEnd(t *testing.T) {
	t.Parallel()
	db, pool := placesOrders(t)
	for _, failure := range []error{nil, errors.New("rolled back")} {
		var kept *deed.Tx
		if _, err := deed.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx *deed.Tx) error { kept = tx; return failure }); !errors.Is(err, failure) {
			t.Fatal(err)
		}
		ctx := t.Context()
		_, exec := kept.Exec(ctx, `insert into public.orders (n) values (1)`)
		rows, query := kept.Query(ctx, `select 1`)
		_, begin := kept.Begin(ctx)
		_, copied := kept.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"n"}, pgx.CopyFromRows(nil))
		for name, err := range map[string]error{
			"publish": kept.Publish(ctx, message("jobs", 1)), "exec": exec, "query": query, "rows": rows.Err(), "row": kept.QueryRow(ctx, `select 1`).Scan(nil),
			"batch": kept.SendBatch(ctx, &pgx.Batch{}).Close(), "begin": begin, "copy": copied,
		} {
			if !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select (select count(*) from deed.log) + (select count(*) from public.orders)`); n != 0 {
		t.Errorf("%d rows were stored", n)
	}
}

// Of a function that ends the transaction by SQL what it had published stands or
// falls with the rest, and the error says so.
func TestInTx_EndedByItsFunction(t *testing.T) {
	t.Parallel()
	db, pool := placesOrders(t)
	stored := 0
	for _, end := range []string{"rollback", "commit"} {
		published, err := deed.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
			if err := errors.Join(place(t.Context(), tx, 1), tx.Publish(t.Context(), message("jobs", 1))); err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), end); err != nil {
				return err
			}
			return tx.Publish(t.Context(), message("jobs", 2)) // of none
		})
		if err == nil || len(published) > 0 || !strings.Contains(err.Error(), "has ended its transaction") {
			t.Errorf("%s: %v", end, err)
		}
		if end == "commit" {
			stored++
		}
		same(t, "orders after "+end, pgtest.One[int](t, pool, `select count(*) from public.orders`), stored)
		same(t, "messages after "+end, pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log`), stored)
	}
	if _, err := deed.InTx(t.Context(), pool, pgx.TxOptions{CommitQuery: "commit and no chain"}, func(tx *deed.Tx) error {
		return tx.Publish(t.Context(), message("jobs", 1))
	}); err != nil {
		t.Errorf("with a commit of one's own: %v", err)
	}
}

// Through the client it is the same, and what it works on itself comes; what fails
// stores nothing.
func TestClient_InTx(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	c, _ := runOn(t, db.Pool(pgtest.Team), stream(sink))
	for i := range 20 {
		published, err := c.InTx(t.Context(), pgx.TxOptions{}, func(tx *deed.Tx) error {
			return tx.Publish(t.Context(), keyed("a", i))
		})
		if err != nil || len(published) != 1 || published[0].Seq == 0 {
			t.Fatalf("%+v, %v", published, err)
		}
	}
	refused := errors.New("no")
	if _, err := c.InTx(t.Context(), pgx.TxOptions{}, func(tx *deed.Tx) error {
		if err := tx.Publish(t.Context(), keyed("a", 20)); err != nil {
			return err
		}
		return refused
	}); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	eventually(t, "all to come", func() bool { n, _ := sink.counts(); return n == 20 })
	drained(t, c)
	if n, repeats := sink.counts(); n != 20 || repeats != 0 {
		t.Errorf("%d came, %d again", n, repeats)
	}
}

// A message without a tenant is the one's that was set when it was published, as with
// Publish, whatever is set later or within a savepoint that is rolled back.
func TestContract_D7_InTxKeepsTheTenantOfThePublish(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.New(t)
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	for id, name := range map[tenant.ID]string{a: "a", b: "b"} {
		if err := tenant.Add(ctx, db.Pool(pgtest.Admin), id, name); err != nil {
			t.Fatal(err)
		}
	}
	_, err := deed.InTx(ctx, db.Pool(pgtest.App), pgx.TxOptions{}, func(tx *deed.Tx) error {
		for _, id := range []tenant.ID{a, b} {
			if err := errors.Join(tenant.Set(ctx, tx, id), tx.Publish(ctx, message(id.String(), 1))); err != nil {
				return err
			}
		}
		undone := errors.New("this part is undone")
		if err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
			return errors.Join(tenant.Set(ctx, sp, a), tx.Publish(ctx, message("undone", 1)), undone)
		}); !errors.Is(err, undone) {
			t.Error(err)
		}
		return tx.Publish(ctx, message(b.String(), 2))
	})
	if err != nil {
		t.Fatal(err)
	}
	got := pgtest.One[string](t, db.Pool(pgtest.Worker), `select string_agg(case when topic = tenant_id::text then left(topic, 2) else 'wrong' end, ' ' order by id) from deed.log`)
	same(t, "the tenants' topics", got, "0a 0b 0b")
}

// What is published within a savepoint stands or falls with it, and the results are of
// what stands, in order.
func TestInTx_Savepoints(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, pool := placesOrders(t)
	undone := errors.New("undone")
	within := func(tx pgx.Tx, end error, fn func(sp *deed.Tx) error) error {
		err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error { return errors.Join(fn(sp.(*deed.Tx)), end) })
		if errors.Is(err, undone) {
			return nil
		}
		return err
	}
	big := deed.Message{Topic: "jobs", Payload: []byte(`"` + strings.Repeat("x", 2<<20) + `"`)}
	n := 0
	publish := func(tx *deed.Tx) error { n++; return tx.Publish(ctx, message("jobs", n)) }
	published, err := deed.InTx(ctx, pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
		return errors.Join(
			publish(tx), // 1
			within(tx, undone, func(sp *deed.Tx) error { return errors.Join(place(ctx, sp, 1), publish(sp)) }), // 2
			within(tx, nil, func(sp *deed.Tx) error {
				return errors.Join(
					publish(sp), // 3
					within(sp, undone, func(deeper *deed.Tx) error { return errors.Join(publish(deeper), publish(tx)) }), // 4, 5
					publish(sp), // 6
				)
			}),
			within(tx, undone, func(sp *deed.Tx) error {
				return errors.Join(publish(sp), within(sp, nil, publish), publish(sp)) // 7, 8, 9
			}),
			within(tx, undone, func(sp *deed.Tx) error {
				if err := sp.Publish(ctx, big); err != nil {
					return err
				}
				if err := place(ctx, sp, 2); deed.CodeOf(err) != deed.Invalid {
					t.Errorf("behind a message that the database refuses: %v", err)
				}
				return nil
			}),
			publish(tx), // 10
			place(ctx, tx, 3),
			publish(tx), // 11
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := db.Pool(pgtest.Worker).Query(ctx, `select id, convert_from(payload, 'UTF8') from deed.log order by id`)
	var ids []int64
	var bodies []string
	var id int64
	var body string
	if _, err := pgx.ForEachRow(rows, []any{&id, &body}, func() error { ids, bodies = append(ids, id), append(bodies, body); return nil }); err != nil {
		t.Fatal(err)
	}
	same(t, "stored", bodies, []string{`{"n":1}`, `{"n":3}`, `{"n":6}`, `{"n":10}`, `{"n":11}`})
	var returned []int64
	for _, p := range published {
		returned = append(returned, p.Seq)
	}
	same(t, "returned", returned, ids)
	same(t, "orders", pgtest.One[[]int](t, pool, `select array_agg(n) from public.orders`), []int{3})
}

// A message that the database refuses fails the transaction, wherever that finds out
// and whether or not the function minds.
func TestInTx_RefusedBeforeTheCommit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, pool := placesOrders(t)
	big := deed.Message{Topic: "jobs", Payload: []byte(`"` + strings.Repeat("x", 2<<20) + `"`)}
	published, err := deed.InTx(ctx, pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
		if err := errors.Join(place(ctx, tx, 1), tx.Publish(ctx, message("jobs", 1), big)); err != nil {
			return err
		}
		_ = place(ctx, tx, 2)
		return nil
	})
	if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "message 2") || len(published) > 0 {
		t.Errorf("%v, %v", published, err)
	}
	same(t, "rows", pgtest.One[int](t, db.Pool(pgtest.Owner), `select (select count(*) from deed.log) + (select count(*) from public.orders)`), 0)
}

// Messages of more bytes than one statement can hold are sent as they come.
func TestInTx_ManyBytes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, pool := placesOrders(t)
	m := deed.Message{Topic: "jobs", Payload: []byte(`"` + strings.Repeat("x", 1<<20-100) + `"`)}
	var sent int
	published, err := deed.InTx(ctx, pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
		for range 40 {
			if err := tx.Publish(ctx, m); err != nil {
				return err
			}
		}
		return tx.Conn().QueryRow(ctx, `select count(*) from pg_stat_activity where pid = pg_backend_pid() and backend_xid is not null`).Scan(&sent)
	})
	if err != nil || len(published) != 40 || sent != 1 {
		t.Errorf("%d results, %d, %v", len(published), sent, err)
	}
	same(t, "messages", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log`), 40)
}
