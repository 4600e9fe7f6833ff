package delivery_test

import (
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// A claim of doubts reads nothing of what is held for a person, nor of what is not due, of which there may be very
// many, with tables that were never analysed: it finds the one whose lease ran out, and what is due.
func TestPlan_ManyAreHeldOrWait(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox set (autovacuum_enabled = off)`)
	const held = 20_000
	reserved := func(name string, n int) {
		t.Helper()
		db.ExecSteps(t, pgtest.Owner, n, `
			insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, correlation_id, created_at, updated_at)
			select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256(convert_to('`+name+`' || n, 'UTF8')), 'email', 'fake', n || '.example', 'a@' || n || '.example',
			  '{}', '`+name+`' || n, now() - interval '1 day', now()
			from generate_series($1::int, $2::int) n`)
	}
	const called = `status = 'sending', request = 'x', claim = 1, attempts = 1, first_called_at = now(), called_at = now()`
	reserved("held", held)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set `+called+`, doubt_since = now(), doubt_reason = 'a timeout', held_at = now()`)
	conn := db.Conn(t, pgtest.Owner)
	check := func(what string, most int) {
		t.Helper()
		const q = `select from deed.claim_doubts('fake', 'w', 8, '1 minute', true, true, p_places => '{}')`
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		c := pgtest.Measure(t, conn, most, q)
		t.Logf("%6d buffers, %d rows: %s", c.Buffers, c.Rows, what)
		if c.Buffers > most {
			t.Errorf("%s: %d buffers, want at most %d", what, c.Buffers, most)
		}
	}
	pgtest.Measure(t, conn, pgtest.Any, `select from deed.claim_doubts('fake', 'w', 0, '1 minute', true, true)`) // the session's first call reads the catalogue
	check("nothing but what is held", 300)
	const waits = 20_000
	reserved("waits", waits)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set `+called+`, doubt_since = now(), doubt_reason = 'a timeout', process_after = now() + interval '1 hour' where correlation_id like 'waits%'`)
	check("what is held, and what is not due", 300)
	// Five are being called, the lease of one has run out, and one is in doubt and due.
	reserved("open", 7)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set `+called+`, claimed_at = now(), claimed_by = 'w', lease_until = now() + interval '1 hour' where correlation_id like 'open%' and correlation_id < 'open6'`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set `+called+`, claimed_at = now(), claimed_by = 'w', lease_until = now() - interval '1 second' where correlation_id = 'open6'`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set `+called+`, doubt_since = now(), doubt_reason = 'a timeout' where correlation_id = 'open7'`)
	check("the session's first that finds something reads the catalogue, too", 3000)
	check("one whose lease ran out, and one that is due", 600)
	// The lease that ran out is found, and both are looked up.
	db.Exec(t, pgtest.Owner, `select from deed.claim_doubts('fake', 'w', 8, '1 minute', true, true)`)
	if n := pgtest.One[int](t, conn, `select count(*)::int from deed.channel_outbox where lost_claims = 1 and doubt_since is not null`); n != 1 {
		t.Errorf("%d leases that ran out were found, want 1", n)
	}
	if n := pgtest.One[int](t, conn, `select count(*)::int from deed.channel_outbox where doubt_since is not null and held_at is null and lease_until is not null`); n != 2 {
		t.Errorf("%d were taken, want 2", n)
	}
}

// Of a batch that somebody had in hand whose lease ran out all members are found: by the first one,
// whenever the others are due, and by and by where that one is gone.
func TestDoubts_LeasesOfBatchesRanOut(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // nobody has called them
	if err := ledger(t, db, fast(newVan(10))).Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	batchesInDoubt(t, db, 40, `now() - interval '1 second'`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claimed_at = now(), claimed_by = 'gone', lease_until = now() - interval '1 second' where batch_id in (md5('7')::uuid, md5('8')::uuid)`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'sent', finished_at = now(), sent_at = now(), doubt_since = null, doubt_reason = null, claimed_at = null, claimed_by = null, lease_until = null, batch_until = null
		where batch_id = md5('8')::uuid and batch_place = 1`)
	lost := func(batch string) int {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.channel_outbox where batch_id = md5($1)::uuid and lost_claims = 1`, batch)
	}
	const claim = `select from deed.claim_doubts('fake', 'w', 0, '1 minute', true, false, p_kind => 'fake', p_batches => true)`
	db.Exec(t, pgtest.Worker, claim)
	if n := lost("7"); n != 10 {
		t.Errorf("%d of ten members were found", n)
	}
	eventually(t, "those without a first member to be found", func() bool {
		db.Exec(t, pgtest.Worker, claim)
		return lost("8") == 9
	})
}
