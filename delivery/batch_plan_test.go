package delivery_test

import (
	"fmt"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// batchesInDoubt makes n batches of ten as they are after their answers were lost: the first
// members are due at a time, the others when the window ends.
func batchesInDoubt(t testing.TB, db *pgtest.DB, n int, due string) {
	t.Helper()
	db.ExecSteps(t, pgtest.Owner, n*10, `
		insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, process_after, created_at, updated_at)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256(convert_to('batched' || n, 'UTF8')), 'email', 'fake', n || '.example', 'a@' || n || '.example',
		  jsonb_build_object('n', n), now() + interval '1 hour', now(), now()
		from generate_series($1::int, $2::int) n`)
	db.Exec(t, pgtest.Owner, `
		update deed.channel_outbox c
		set status = 'sending', request = 'x', claim = 1, attempts = 1, first_called_at = now(), called_at = now(), doubt_since = now(), doubt_reason = 'a timeout',
		  batch_id = md5((n / 10)::text)::uuid, batch_place = 1 + n % 10, batch_size = 10, batch_until = now() + interval '1 hour',
		  process_after = case when n % 10 = 0 then `+due+` else now() + interval '1 hour' end
		from (select o.id, (o.payload ->> 'n')::int - 1 as n from deed.channel_outbox o) o
		where o.id = c.id`)
}

// Whether batches may be repeated takes a bounded number of pages to find out, however many are in
// doubt, waiting or due, with tables that were never analysed; and each batch that may not be repeated any more has its turn.
func TestPlan_ManyBatchesInDoubt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox set (autovacuum_enabled = off)`)
	if err := ledger(t, db, fast(newVan(10))).Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	const few, batches = 50, 2000
	batchesInDoubt(t, db, batches, `now() + interval '30 minutes'`)
	conn := db.Conn(t, pgtest.Owner)
	check := func(what, q string, most int) {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		pgtest.Measure(t, conn, pgtest.Any, q) // the session's first call reads the catalogue
		b := pgtest.Measure(t, conn, most, q).Buffers
		t.Logf("%6d buffers: %s", b, what)
		if b > most {
			t.Errorf("%s: %d buffers, want at most %d", what, b, most)
		}
	}
	check("all wait", `select deed.break_batches('fake')`, 2500)
	check("one batch", `select deed.batch_stands('fake', md5('7')::uuid)`, 300)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where batch_place = 1`)
	check("all are due", `select deed.break_batches('fake')`, 5000)

	// Of a few the first member is gone: those are found among all the others, by and by.
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = now() + interval '1 hour' where batch_place = 1`)
	for i := range few {
		pgtest.One[string](t, db.Pool(pgtest.Admin), `select deed.settle_delivery(c.id, 'failed', 'cancelled', 'ann') from deed.channel_outbox c where c.batch_id = md5($1::text)::uuid and c.batch_place = 1`, fmt.Sprint(i*40))
	}
	eventually(t, "those whose first member is gone to be broken up", func() bool {
		db.Exec(t, pgtest.Owner, `select deed.break_batches('fake')`)
		return pgtest.One[int](t, conn, `select count(*)::int from deed.channel_outbox where status = 'sending' and batch_until is null`) == few*9
	})
	if n := pgtest.One[int](t, conn, `select count(distinct batch_id)::int from deed.channel_outbox where batch_until is not null and status = 'sending'`); n != batches-few {
		t.Errorf("%d batches are whole, want %d", n, batches-few)
	}
	db.Broken() // nobody has called them
}
