package campaign_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// jobsBesideSnapshot is a run whose jobs were looked at so often, while somebody holds a snapshot, that the index
// which looks go by has 5,000 entries of what they were.
func jobsBesideSnapshot(t *testing.T) (db *pgtest.DB, run string) {
	t.Helper()
	db = pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	run = deploy(t, db, request(t, db, 4001))
	expandAll(t, db)
	held := db.Conn(t, pgtest.Owner)
	if _, err := held.Exec(t.Context(), `begin isolation level repeatable read; select count(*) from deed.runs`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = held.Exec(context.Background(), `rollback`) })
	db.Exec(t, pgtest.Owner, `
		do $$
		declare
		  v_rows tid[] := array(select ctid from deed.job_queue where status = 'locked');
		begin
		  for n in 1..1000 loop
		    with looked as (
		      update deed.job_queue set process_after = now() - interval '1 hour' + interval '1 millisecond' * n where ctid = any (v_rows) returning ctid
		    )
		    select array_agg(l.ctid) into v_rows from looked l;
		    commit;
		  end loop;
		end $$`)
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() where status = 'locked'`)
	return db, run
}

// A look at jobs beside a snapshot that is held, which has the index keep what they were at each look since, steps over that
// now and then, and not each time.
func TestPlan_LooksAtJobsBesideAnOldSnapshot(t *testing.T) {
	t.Parallel()
	db, _ := jobsBesideSnapshot(t)
	conn := db.Conn(t, pgtest.Worker)
	var mark time.Time
	var rest float64
	begun := time.Now()
	if err := conn.QueryRow(t.Context(), `select mark, rest from deed.roll_up(200, 'w')`).Scan(&mark, &rest); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	if ago := time.Since(mark); ago < 5*time.Second || ago > time.Minute || rest < 1 || rest > max(1, 20*took.Seconds()) {
		t.Fatalf("the next look begins %s ago for %g s, want some five seconds ago, for one or twenty times the %s that this one took at most", ago, rest, took)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() - interval '10 minutes' where from_n > 1`)
	var hidden bool
	if err := tx.QueryRow(t.Context(), `select r.mark > (select min(j.process_after) from deed.job_queue j) from deed.roll_up(2, 'w') r`).Scan(&hidden); err != nil {
		t.Fatal(err)
	}
	want(t, "a mark behind a job that was left", hidden, false)
	whole := pgtest.Measure(t, conn, pgtest.Any, `select * from deed.roll_up(200, 'w')`).Buffers
	short := pgtest.Any
	for range 10 { // jobs come due again, and who is slow counts some: a look of which that is a part has seen to them for the next one
		short = min(short, pgtest.Measure(t, conn, pgtest.Any, fmt.Sprintf(`select * from deed.roll_up(200, 'w', '%s')`, mark.UTC().Format(time.RFC3339Nano))).Buffers)
	}
	t.Logf("%d buffers from the beginning, %d from the mark", whole, short)
	if whole < 200 || short > 30 {
		t.Errorf("a look touches %d buffers from the beginning and %d from its mark, want at least 200 and at most 30", whole, short)
	}
}

// What comes due in front of where a worker's looks begin is found soon all the same, and a backlog is never behind it.
func TestWorker_LooksFromTheBeginningAgain(t *testing.T) {
	t.Parallel()
	db, run := jobsBesideSnapshot(t)
	var w *campaign.Worker
	owner := db.Pool(pgtest.Owner)
	step := func() {
		t.Helper()
		if _, err := w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	due := func() int64 {
		t.Helper()
		return pgtest.One[int64](t, owner, `select count(*) from deed.job_queue where process_after < now() - interval '1 minute'`)
	}
	for begun := time.Now(); due() == 0; {
		w = worker(t, db)
		looked := time.Now()
		step()
		want(t, "jobs that are due after a look", due(), 0)
		db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() - interval '30 minutes' where from_n = 1`)
		step()
		// The first look's mark is for a second at the least; whoever takes as long for the next one has not seen whether it goes by that.
		if took := time.Since(looked); due() == 0 && (took < time.Second || time.Since(begun) > pgtest.Patience) {
			t.Fatalf("a look from the beginning after one from the beginning, in %s: it steps over 5,000 entries each time", took)
		}
	}
	waitFor(t, "what came due in front of the mark to be found", func() bool { step(); return due() == 0 })
	s, err := campaign.Show(t.Context(), db.Pool(pgtest.App), run)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "queued", s.Progress.Queued, int64(4001))
}

// Where all that the server knows of is due and nothing is marked as visible to all, as beside a snapshot that is held, a look that
// finds nothing still goes by what is due, and does not read all deliveries there are.
func TestPlan_LooksThatFindNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	db.Broken() // deliveries of a run that is none
	db.Providers(t, "fake", "fake")
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox set (autovacuum_enabled = off)`)
	db.ExecSteps(t, pgtest.Owner, 20_000, `
		insert into deed.channel_outbox (id, tenant_id, workspace_id, idempotency_key, channel, provider, lane, recipient, payload, guarantee, run_id, due, payload_bytes, created_at, updated_at)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', sha256(n::text::bytea), 'email', 'fake', n % 50 || '.example',
			n || '@' || n % 50 || '.example', '{}', 'at_most_once', md5('run')::uuid, true, 2, now(), now()
		from generate_series($1::int, $2::int) n`)
	db.Exec(t, pgtest.Owner, `analyze deed.channel_outbox`)
	conn := db.Conn(t, pgtest.Owner)
	nothing, known := `'00000000-0000-0000-0000-000000000000'`, `'{00000000-0000-0000-0000-000000000001}'`
	for what, look := range map[string]string{
		"tenants with something in doubt":  `select deed.due_tenants('fake', 'sending', null, null, 100)`,
		"tenants behind one":               `select deed.due_tenants('fake', 'sending', ` + nothing + `, ` + nothing + `, 100)`,
		"tenants before one that is known": `select deed.due_tenants('fake', 'sending', null, null, 100, ` + known + `)`,
	} {
		pgtest.Measure(t, conn, pgtest.Any, look) // it reads the catalogue
		if b := pgtest.Measure(t, conn, 30, look).Buffers; b > 30 {
			t.Errorf("%s: %d buffers, want at most 30", what, b)
		} else {
			t.Logf("%s: %d buffers", what, b)
		}
	}
}
