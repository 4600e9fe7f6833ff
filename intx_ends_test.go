package deed_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// A transaction that is prepared for a commit of another's is not said to have been
// rolled back.
func TestInTx_Prepared(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, pool := placesOrders(t)
	gid := db.Name() + "_in_tx"
	published, err := deed.InTx(ctx, pool, pgx.TxOptions{CommitQuery: `prepare transaction '` + gid + `'`}, func(tx *deed.Tx) error {
		return tx.Publish(ctx, message("jobs", 1))
	})
	if err != nil || len(published) != 1 {
		t.Fatalf("%v, %v", published, err)
	}
	db.Exec(t, pgtest.App, `commit prepared '`+gid+`'`)
	same(t, "messages", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log`), 1)
}

// A savepoint that is kept does nothing to whoever has the connection next.
func TestInTx_ASavepointIsClosedAfterTheEnd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, _ := placesOrders(t)
	pool := db.NewPool(pgtest.App, 1)
	var kept pgx.Tx
	if _, err := deed.InTx(ctx, pool, pgx.TxOptions{}, func(tx *deed.Tx) (err error) {
		kept, err = tx.Begin(ctx)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(ctx, pool, func(other pgx.Tx) error {
		return pgx.BeginFunc(ctx, other, func(sp pgx.Tx) error {
			if err := place(ctx, sp, 1); err != nil {
				return err
			}
			_, exec := kept.Exec(ctx, `insert into public.orders (n) values (2)`)
			for what, err := range map[string]error{"exec": exec, "rollback": kept.Rollback(ctx), "commit": kept.Commit(ctx)} {
				if !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("%s: %v", what, err)
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	same(t, "orders", pgtest.One[[]int](t, pool, `select array_agg(n) from public.orders`), []int{1})
}

// Sent with the commit behind it, a message that the database refuses takes that along.
func TestStatement_Raising(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, pool := placesOrders(t)
	for n, size := range []int{2 << 20, 10} {
		st, err := deed.NewStatement(ctx, deed.Message{Topic: "orders", Payload: []byte(`"` + strings.Repeat("x", size) + `"`)})
		if err != nil {
			t.Fatal(err)
		}
		st = st.Raising()
		var published []deed.Published
		b := &pgx.Batch{}
		b.Queue(`begin`)
		b.Queue(`insert into public.orders (n) values ($1)`, n)
		b.Queue(st.SQL, st.Args...).Query(func(rows pgx.Rows) (err error) {
			published, err = st.Published(rows)
			return err
		})
		b.Queue(`commit`)
		conn, err := pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SendBatch(ctx, b).Close(); (err == nil) != (n == 1) || len(published) != n {
			t.Errorf("%d bytes: %v, %v", size, published, err)
		}
		if n == 0 {
			_, err = conn.Exec(ctx, `rollback`)
		}
		conn.Release()
		if err != nil {
			t.Error(err)
		}
		same(t, "orders", pgtest.One[int](t, pool, `select count(*) from public.orders`), n)
		same(t, "messages", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.log`), n)
	}
}
