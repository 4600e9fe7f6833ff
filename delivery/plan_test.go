package delivery_test

import (
	"testing"

	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// A claim touches a bounded number of buffers whatever else is queued, with
// tables that were never analysed and autovacuum off: what ten thousand tenants
// and three hundred thousand lanes have scheduled costs nothing, a thousand lanes
// that are leased or may take no more are looked at once; and one that finds
// nothing writes nothing, however many limits there are.
func TestPlan_ClaimsAmongManyTenantsAndLanes(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t) // others' transactions would keep pages from being tidied
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox set (autovacuum_enabled = off)`)
	conn := db.Conn(t, pgtest.Worker)
	const claim = `select * from deed.claim_deliveries('fake', 'w', 100, '1 minute', p_places => '{}')`
	pgtest.Measure(t, conn, pgtest.Any, claim) // the session's first call reads the catalogue
	check := func(what string, rows, buffers int, empty bool) {
		t.Helper()
		if empty { // the first look after a change tidies the pages that it reads
			pgtest.Measure(t, conn, pgtest.Any, claim)
		}
		c := pgtest.Measure(t, conn, buffers, claim)
		for again := 3; empty && c.WAL > 0 && again > 0; again-- { // or not the first, while autovacuum looks at another table
			c = pgtest.Measure(t, conn, buffers, claim)
		}
		t.Logf("%6d buffers, %3d rows, %6d bytes of WAL: %s", c.Buffers, c.Rows, c.WAL, what)
		if c.Rows != rows+1 || c.Buffers > buffers || (empty && c.WAL > 0) {
			t.Errorf("%s: %d buffers for %d rows and %d bytes of WAL, want at most %d for %d", what, c.Buffers, c.Rows-1, c.WAL, buffers, rows)
		}
	}
	check("nothing queued", 0, 100, true)

	manyTenants(t, db, 10_000, `now() + interval '1 day'`)
	lanes := 300_000
	if testing.Short() {
		lanes = 30_000
	}
	manyLanes(t, db, lanes, `now() + interval '1 day'`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.rate_limits (provider, lane, rate, burst, tokens, at)
		select 'fake', n || '.limited.example', 1, 1, 1, now() from generate_series(1, 500) n`)
	check("all of it scheduled", 0, 100, true)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where lane = '27777.example' or lane = '777.example'`)
	check("two lanes due", 2, 1000, false) // the catalogue again
	check("two lanes leased", 0, 250, true)

	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where lane ~ '^[0-9]{1,4}\.example$'`)
	check("ten thousand lanes due", 100, 4000, false)
	db.Exec(t, pgtest.Owner, `
		update deed.channel_outbox set claimed_at = now(), claimed_by = 'x', claim = 1, lease_until = now() + interval '1 hour' where process_after is null`)
	check("ten thousand lanes leased: a thousand are looked at", 0, 25_000, true)
	// Each lane has a limit that none names.
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claimed_at = null, claimed_by = null, claim = null, lease_until = null where process_after is null`)
	db.Exec(t, pgtest.Owner, `insert into deed.rate_limits (provider, lane, rate, burst, tokens, at) values ('fake', '*', 1, 1, 1, clock_timestamp())`)
	check("ten thousand lanes due, each with a limit", 100, 6000, false)
	db.ExecSteps(t, pgtest.Owner, lanes, `
		insert into deed.lane_tokens (provider, lane, tokens, at)
		select 'fake', n || '.example', 0, clock_timestamp() + interval '1 hour' from generate_series($1::int, $2::int) n
		on conflict on constraint lane_tokens_pkey do update set tokens = 0, at = excluded.at`)
	check("ten thousand lanes over their limits: a thousand are looked at", 0, 25_000, true)
	db.Exec(t, pgtest.Owner, `delete from deed.lane_tokens`)
	db.Exec(t, pgtest.Owner, `delete from deed.rate_limits where lane = '*'`)

	db.Exec(t, pgtest.Owner, `
		insert into deed.rate_limits (provider, lane, rate, burst, tokens, at) values ('fake', '', 1, 1, 0, clock_timestamp() + interval '1 hour')`)
	check("over the limit", 0, 150, true)
	looksAmongMany(t, db)
}

// looksAmongMany looks at what [TestPlan_ClaimsAmongManyTenantsAndLanes] has made,
// of which some are dead and one is in doubt.
func looksAmongMany(t *testing.T, db *pgtest.DB) {
	db.ExecSteps(t, pgtest.Owner, 200_000, `
		insert into deed.suppressions (tenant_id, channel, address, reason, actor, created_at)
		select '00000000-0000-0000-0000-000000000000', 'email', n || '@example.com', 'x', 'y', now() - interval '1 second' * n
		from generate_series($1::int, $2::int) n`)
	db.Exec(t, pgtest.Owner, `
		update deed.channel_outbox set status = 'dead', finished_at = now(), last_error = 'x', claim = null, claimed_at = null, claimed_by = null, lease_until = null
		where lane ~ '^1[0-9]{1,3}\.example$'`)
	db.Exec(t, pgtest.Owner, `
		update deed.channel_outbox set status = 'sending', request = 'x', attempts = 1, called_at = now(), first_called_at = now(), claimed_at = now(), claimed_by = 'x', claim = 1, lease_until = now() - interval '1 second'
		where lane = '2.example'`)
	db.Broken()
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		if mode == "force_generic_plan" { // and with statistics
			db.Exec(t, pgtest.Owner, `analyze deed.channel_outbox`)
		}
		conn := db.Conn(t, pgtest.Admin)
		if _, err := conn.Exec(t.Context(), "set plan_cache_mode = "+mode); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			q          string
			rows, most int
		}{
			{`select * from deed.look_at_deliveries(null, 100, 100)`, 100, 2000},
			{`select * from deed.look_at_deliveries(null, 100, 100, 'dead')`, 100, 2000},
			{`select * from deed.look_at_deliveries(null, 100, 100, 'dead', 'fake')`, 100, 2000},
			{`select * from deed.look_at_deliveries(null, 20000, 1000, 'sending')`, 1, 2000},
			{`select * from deed.look_at_deliveries(null, 20000, 1000, p_doubt => true)`, 1, 2000},
			{`select * from deed.look_at_suppressions('9999-01-01', '00000000-0000-0000-0000-000000000000', '', '', '', 100, 100)`, 100, 2000},
			{`select * from deed.look_at_suppressions(now() - interval '1 day', '00000000-0000-0000-0000-000000000000', '', '', '', 100, 100)`, 100, 2000},
			{`select * from deed.look_at_suppressions('9999-01-01', '00000000-0000-0000-0000-000000000000', '', '', '', 100, 100, '00000000-0000-0000-0000-000000000000')`, 100, 2000},
			{`select * from deed.look_at_suppressions('9999-01-01', '00000000-0000-0000-0000-000000000000', '', '', '', 20000, 100, p_channel => 'email')`, 100, 2000},
			// Ten thousand due and ten thousand scheduled, of as many destinations: each on a page of its own.
			{`select * from deed.look_at_providers(10000)`, 1, 25_000},
			// Where nothing but a look finds it: not much more than a row each.
			{`select * from deed.look_at_deliveries(null, 20000, 100, p_recipient => 'nobody@example.com')`, 1, 25_000},
		} {
			pgtest.Measure(t, conn, pgtest.Any, test.q)
			c := pgtest.Measure(t, conn, test.most, test.q)
			t.Logf("%6d buffers, %3d rows: %s", c.Buffers, c.Rows, test.q)
			if c.Buffers > test.most || c.Rows != test.rows {
				t.Errorf("%s: %s\ntouched %d buffers for %d rows, want at most %d for %d", mode, test.q, c.Buffers, c.Rows, test.most, test.rows)
			}
		}
	}
}

// What very many deliveries cost that come due at once among others' that are
// scheduled: a claim marks a thousand, and looks at a hundred tenants.
func TestPlan_VeryManyComeDue(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox set (autovacuum_enabled = off)`)
	manyTenants(t, db, 10_000, `now() + interval '1 day'`)
	manyLanes(t, db, 20_000, `now() - interval '1 hour' + n * interval '1 millisecond'`)
	conn := db.Conn(t, pgtest.Worker)
	const claim = `select * from deed.claim_deliveries('fake', 'w', 1, '1 minute', p_places => '{}')`
	pgtest.Measure(t, conn, pgtest.Any, claim) // the session's first call reads the catalogue
	const most = 14_000
	c := pgtest.Measure(t, conn, most, claim)
	t.Logf("%6d buffers, %6d bytes of WAL", c.Buffers, c.WAL)
	if c.Buffers > most {
		t.Errorf("%d buffers for a thousand that come due, want at most %d", c.Buffers, most)
	}
}

// A claim of doubts where nothing is in doubt, as every dispatcher makes several
// times a second, writes nothing: not even a claim's number is taken.
func TestPlan_ClaimsOfNoDoubtsWriteNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	manyLanes(t, db, 10, `now() + interval '1 day'`)
	conn := db.Conn(t, pgtest.Worker)
	const claim = `select * from deed.claim_doubts('fake', 'w', 100, '1 minute', true, true, p_places => '{}', p_batches => true)`
	pgtest.Measure(t, conn, pgtest.Any, claim) // the session's first call reads the catalogue
	for range 40 {                             // a sequence logs each thirty-second number
		if c := pgtest.Measure(t, conn, 100, claim); c.Rows != 1 || c.Buffers > 100 || c.WAL > 0 {
			t.Fatalf("%d buffers for %d rows and %d bytes of WAL, want at most 100 for none", c.Buffers, c.Rows-1, c.WAL)
		}
	}
}
