package deed_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
	"github.com/deedhq/deed/tenant"
)

// faces returns a database with both packs of published SQL.
func faces(t testing.TB) *pgtest.DB {
	t.Helper()
	db := pgtest.New(t)
	if _, err := schema.InstallContracts(context.Background(), db.Conn(t, pgtest.Owner), schema.Packs(), false); err != nil {
		t.Fatal(err)
	}
	return db
}

// The faces' relations show an application its tenant's messages, both halves,
// and a worker all of them.
func TestContract_D7_FacesShowOnesOwnTenant(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := faces(t)
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	conn := db.Conn(t, pgtest.App)
	as := func(id *tenant.ID, fn func(pgx.Tx)) {
		t.Helper()
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if id != nil {
				if err := tenant.Set(ctx, tx, *id); err != nil {
					return err
				}
			}
			fn(tx)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []tenant.ID{a, b} {
		as(&id, func(tx pgx.Tx) {
			for range 2 {
				if got := pgtest.One[string](t, tx, `insert into public.outbox (topic, payload) values ('t', '{}') returning tenant_id::text`); got != id.String() {
					t.Errorf("the message is tenant %s's, want %s's", got, id)
				}
			}
			// Nobody publishes for somebody else.
			nested, err := tx.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_, err = nested.Exec(ctx, `insert into public.outbox (topic, payload, tenant_id) values ('t', '{}', $1)`, tenant.ID{0xc}.String())
			if sqlState(err) != "DDTEN" {
				t.Errorf("published for another tenant: %v", err)
			}
			if err := nested.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
		})
		n := pgtest.One[int](t, db.Pool(pgtest.Worker), `
			with mine as (select id from app.outbox_claim(1, '11111111-1111-1111-1111-111111111111', $1::text::uuid))
			select app.outbox_mark_delivered('11111111-1111-1111-1111-111111111111', (select array_agg(id) from mine))`, id.String())
		if n != 1 {
			t.Fatalf("delivered %d", n)
		}
	}
	sees := func(q pgtest.Queryer) string {
		t.Helper()
		return pgtest.One[string](t, q, `
			select coalesce(string_agg(substr(tenant_id::text, 1, 2) || case when delivered_at is null then '' else '!' end, ' ' order by tenant_id, delivered_at), 'nothing')
			from public.outbox`)
	}
	for id, want := range map[*tenant.ID]string{&a: "0a! 0a", &b: "0b! 0b", nil: "nothing"} {
		as(id, func(tx pgx.Tx) {
			if got := sees(tx); got != want {
				t.Errorf("tenant %v sees %s, want %s", id, got, want)
			}
			if n := pgtest.One[int](t, tx, `select count(*) from m10_recovery.outbox`); (n == 2) != (id != nil) {
				t.Errorf("tenant %v sees %d events", id, n)
			}
		})
	}
	for _, role := range []pgtest.Role{pgtest.Worker, pgtest.Admin} {
		if got := sees(db.Pool(role)); got != "0a! 0a 0b! 0b" {
			t.Errorf("%s sees %s", role, got)
		}
	}
	for _, q := range []string{
		`select app.outbox_claim(1, gen_random_uuid(), null)`, `select app.outbox_mark_delivered(gen_random_uuid(), '{}')`,
		`select m10_recovery.claim_outbox_events('w')`, `select m10_recovery.complete_outbox_event(1, 'w', true)`,
		`delete from public.outbox`, `select deed.purge()`, `select deed.set_door('t', 's')`, `select deed.adopt('app')`,
	} {
		if _, err := conn.Exec(ctx, q); sqlState(err) != "42501" {
			t.Errorf("the application may run %q: %v", q, err)
		}
	}
}
