package delivery_test

import (
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// A claim of doubts reads nothing of what is held for a person, of which there may be very many,
// with tables that were never analysed: it finds the one whose lease ran out, and what is due.
func TestPlan_ManyAreHeld(t *testing.T) {
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
		b, n, _ := cost(t, conn, q)
		t.Logf("%6d buffers, %d rows: %s", b, n, what)
		if b > most {
			t.Errorf("%s: %d buffers, want at most %d", what, b, most)
		}
	}
	_, _, _ = cost(t, conn, `select from deed.claim_doubts('fake', 'w', 0, '1 minute', true, true)`) // the session's first call reads the catalogue
	check("nothing but what is held", 300)
	// Five are being called, the lease of one has run out, and one is in doubt and due.
	reserved("open", 7)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set `+called+`, claimed_at = now(), claimed_by = 'w', lease_until = now() + interval '1 hour' where correlation_id like 'open%' and correlation_id < 'open6'`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set `+called+`, claimed_at = now(), claimed_by = 'w', lease_until = now() - interval '1 second' where correlation_id = 'open6'`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set `+called+`, doubt_since = now(), doubt_reason = 'a timeout' where correlation_id = 'open7'`)
	check("one whose lease ran out, and one that is due", 1200)
	// The lease that ran out is found, and both are looked up.
	db.Exec(t, pgtest.Owner, `select from deed.claim_doubts('fake', 'w', 8, '1 minute', true, true)`)
	if n := pgtest.One[int](t, conn, `select count(*)::int from deed.channel_outbox where lost_claims = 1 and doubt_since is not null`); n != 1 {
		t.Errorf("%d leases that ran out were found, want 1", n)
	}
	if n := pgtest.One[int](t, conn, `select count(*)::int from deed.channel_outbox where doubt_since is not null and held_at is null and lease_until is not null`); n != 2 {
		t.Errorf("%d were taken, want 2", n)
	}
}
