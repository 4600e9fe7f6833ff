package campaign_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// What runs have queued that are held, without a token or asleep costs a claim a look at each
// run, however many deliveries and lanes there are: a hundred runs with a hundred thousand of them.
// And who has no run pays next to nothing for there being runs at all.
func TestPlan_ClaimsAmongManyRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	db.Broken() // deliveries of runs that are none
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	db.Providers(t, "fake", "fake")
	conn := db.Conn(t, pgtest.Worker)
	const claim, without = `select * from deed.claim_deliveries('fake', 'w', 100, '1 minute', p_places => '{}', p_runs => true)`, `select * from deed.claim_deliveries('fake', 'w', 100, '1 minute', p_places => '{}')`
	look := func(what, q string, most int) {
		t.Helper()
		pgtest.Measure(t, conn, pgtest.Any, q) // it may tidy pages, and read the catalogue
		b := pgtest.Measure(t, conn, most, q).Buffers
		t.Logf("%6d buffers: %s", b, what)
		if b > most {
			t.Errorf("%s: %d buffers, want at most %d", what, b, most)
		}
	}
	look("nothing queued", claim, 60)
	db.ExecSteps(t, pgtest.Owner, n, `
		insert into deed.channel_outbox (id, tenant_id, workspace_id, idempotency_key, channel, provider, lane, recipient, payload, guarantee, run_id, due, payload_bytes, created_at, updated_at)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', sha256(n::text::bytea), 'email', 'fake', n % 30011 || '.example',
			n || '@' || n % 30011 || '.example', '{}', 'at_most_once', md5((n % 100)::text)::uuid, true, 2, now(), now()
		from generate_series($1::int, $2::int) n`)
	db.Exec(t, pgtest.Owner, `insert into deed.delivery_holds (run_id, tenant_id, at) select md5(n::text)::uuid, '00000000-0000-0000-0000-000000000000', now() from generate_series(0, 49) n`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.rate_limits (provider, lane, rate, burst, tokens, at, run_id)
		select 'fake', md5(n::text)::uuid::text, 1, 1, 0, now() + interval '1 hour', md5(n::text)::uuid from generate_series(50, 99) n`)
	look("fifty runs held, and fifty without a token", claim, 1200)
	look("and by who does none of runs", without, 200)
	db.Exec(t, pgtest.App, `select deed.reserve('{email}', '{fake}', '{reset@d.example}', '{"{}"}', array[sha256('x')])`)
	look("what is of no run, beside them", claim, 1500)
}

// A look at a run costs the same however many deliveries of its jobs are open: what has become of a job
// stands on it, and the rows of five are counted.
func TestPlan_ALookAtARun(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	db.Broken() // deliveries of nobody
	text, err := os.ReadFile("queries.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, look, _ := strings.Cut(string(text), "-- name: progress\n")
	look, _, _ = strings.Cut(look, ";\n\n-- name")
	req := request(t, db, 1)
	run := deploy(t, db, req)
	expandAll(t, db)
	conn := db.Conn(t, pgtest.Owner)
	costs := map[int]int{}
	sizes := []int{8, 40}
	if n, err := strconv.Atoi(os.Getenv("DEED_LOOK_JOBS")); err == nil {
		sizes = []int{8, n}
	}
	made := 1
	for _, jobs := range sizes {
		db.Exec(t, pgtest.Owner, `
			insert into deed.job_queue (id, run_id, tenant_id, workspace_id, job_type, process_after, from_n, upto_n, created_at)
			select gen_random_uuid(), q.run_id, q.tenant_id, q.workspace_id, q.job_type, now(), n * 1000 + 1, n * 1000 + 1000, now() from deed.job_queue q, generate_series($1::int, $2::int) n where q.from_n = 1`, made, jobs)
		db.Exec(t, pgtest.Owner, `
			insert into deed.channel_outbox (id, tenant_id, workspace_id, idempotency_key, channel, provider, lane, recipient, payload, guarantee, run_id, job_id, due, payload_bytes, created_at, updated_at)
			select gen_random_uuid(), j.tenant_id, j.workspace_id, sha256((j.from_n || ' ' || n)::bytea), 'email', 'fake', n % 301 || '.example', n || '@example.com', '{}', 'at_most_once', j.run_id, j.id, true, 2, now(), now()
			from deed.job_queue j, generate_series(1, 1000) n where j.status = 'queued'`)
		db.Exec(t, pgtest.Owner, `update deed.job_queue set status = 'locked', claim = 1, claimed_by = 'w', lease_until = now() where status = 'queued'`)
		db.Exec(t, pgtest.Owner, `update deed.job_queue set expanded_at = now(), claim = null, claimed_by = null, lease_until = null, process_after = now() where expanded_at is null`)
		db.Exec(t, pgtest.Owner, `vacuum analyze deed.job_queue, deed.channel_outbox`)
		for range jobs/200 + 1 {
			db.Exec(t, pgtest.Worker, `select deed.roll_up(200, 'w')`)
		}
		made = jobs + 1
		q := strings.ReplaceAll(look, "$1", "'"+run+"'")
		pgtest.Measure(t, conn, pgtest.Any, q)
		costs[jobs] = pgtest.Measure(t, conn, pgtest.Least, q).Buffers
		begun := time.Now()
		s, err := campaign.Show(t.Context(), db.Pool(pgtest.App), run)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "queued", s.Progress.Queued, int64(jobs)*1000+1)
		t.Logf("%d members: %d buffers, shown in %s", jobs*1000, costs[jobs], time.Since(begun))
	}
	if more := costs[sizes[1]] - costs[sizes[0]]; more > 50+(sizes[1]-sizes[0])/8 {
		t.Errorf("a look at five times as many costs %d buffers more: %v", more, costs)
	}
}

// What a run waits for is said however much of its tenant's comes before it, and a look reads a bounded part of
// what waits.
func TestPlan_WaitsBehindAnotherRun(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	db.Broken() // deliveries of nobody
	n := 200_000
	if testing.Short() {
		n = 15_000
	}
	run := deploy(t, db, request(t, db, 3))
	expandAll(t, db)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = now() + interval '2 days'`)
	conn := db.Conn(t, pgtest.Owner)
	look := `select * from deed.run_waits('` + run + `')`
	waits := func() string {
		t.Helper()
		s, err := campaign.Show(t.Context(), db.Pool(pgtest.App), run)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, w := range s.Waits {
			list = append(list, w.Why+" "+strconv.FormatInt(w.Deliveries, 10))
		}
		return strings.Join(list, ", ")
	}
	want(t, "alone", waits(), "scheduled 3")
	db.ExecSteps(t, pgtest.Owner, n, `
		insert into deed.channel_outbox (id, tenant_id, workspace_id, idempotency_key, channel, provider, lane, recipient, payload, guarantee, run_id, due, payload_bytes, process_after, created_at, updated_at)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', sha256(n::text::bytea), 'email', 'fake', 'd.example',
			n || '@d.example', '{}', 'at_most_once', md5('other')::uuid, false, 2, now() + interval '1 day', now(), now()
		from generate_series($1::int, $2::int) n`)
	db.Exec(t, pgtest.Owner, `vacuum analyze deed.channel_outbox`)
	want(t, "behind another's", waits(), "scheduled 3")
	pgtest.Measure(t, conn, pgtest.Any, look)
	if b := pgtest.Measure(t, conn, 25_000, look).Buffers; b > 25_000 {
		t.Errorf("a look at what waits among %d reads %d buffers", n, b)
	} else {
		t.Logf("a look at what waits among %d: %d buffers", n, b)
	}
}

// What is done while a run is locked, to go on or to be held, costs the same however much it has sent and has queued: what
// ended lately, and what its provider is sending, is counted.
func TestPlan_HeldAndResumedWhateverItHas(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	db.Broken() // deliveries of nobody
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	run := deploy(t, db, request(t, db, 3))
	expandAll(t, db)
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox disable trigger user`) // what is new is not sent
	db.ExecSteps(t, pgtest.Owner, n, `
		insert into deed.channel_outbox (id, tenant_id, workspace_id, idempotency_key, channel, provider, lane, recipient, payload, guarantee, run_id, job_id, due, payload_bytes, status, sent_at, finished_at, created_at, updated_at)
		select gen_random_uuid(), j.tenant_id, j.workspace_id, sha256(n::text::bytea), 'email', 'fake', 'd.example', n || '@d.example', '{}', 'at_most_once', j.run_id, j.id, n % 2 = 0, 2,
			case n % 2 when 0 then 'queued' else 'sent' end, case n % 2 when 1 then now() end, case n % 2 when 1 then now() - interval '1 hour' end, now(), now()
		from generate_series($1::int, $2::int) n, deed.job_queue j`)
	db.ExecSteps(t, pgtest.Owner, n/10, `
		insert into deed.channel_outbox (id, tenant_id, workspace_id, idempotency_key, channel, provider, lane, recipient, payload, guarantee, run_id, due, payload_bytes, status, request, claim, claimed_by, claimed_at, lease_until, attempts, first_called_at, called_at, created_at, updated_at)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', sha256(('other ' || n)::bytea), 'email', 'other', 'd.example', n || '@d.example', '{}', 'at_most_once', md5('other')::uuid, true, 2,
			'sending', 'x', 1, 'w', now(), now() + interval '1 hour', 1, now(), now(), now(), now()
		from generate_series($1::int, $2::int) n`)
	conn := db.Conn(t, pgtest.Owner)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			db.Exec(t, pgtest.Owner, `vacuum analyze deed.channel_outbox`)
		}
		for what, q := range map[string]string{
			"what has ended lately": `select * from deed.run_ends_since('` + run + `', now() - interval '10 seconds')`,
			"holding it":            `select deed.hold_run('` + run + `', '00000000-0000-0000-0000-000000000000')`,
		} {
			for range 3 { // the first ones hold it, and read the catalogue
				pgtest.Measure(t, conn, pgtest.Any, q)
			}
			if b := pgtest.Measure(t, conn, 40, q).Buffers; b > 40 {
				t.Errorf("%s: %d buffers among %d, want at most 40", what, b, n)
			} else {
				t.Logf("%3d buffers: %s, analyzed %t", b, what, analyzed)
			}
		}
	}
}

// A job whose turn is far is looked at when it is counted, and no sooner: of a run of a million with a thousand open jobs each once
// a minute, whatever their age, and the first three as ever.
func TestPlan_LooksAtManyOpenJobs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // deliveries of nobody
	run := deploy(t, db, request(t, db, 1))
	expandAll(t, db)
	db.Exec(t, pgtest.Owner, `alter table deed.job_queue disable trigger user; alter table deed.campaign_runs disable trigger user; update deed.campaign_runs set members = 1000000`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.job_queue (id, run_id, tenant_id, workspace_id, job_type, process_after, from_n, upto_n, created_at, status, expanded_at)
		select gen_random_uuid(), q.run_id, q.tenant_id, q.workspace_id, q.job_type, now(), n * 1000 + 1, n * 1000 + 1000, now(), 'locked', now() from deed.job_queue q, generate_series(1, 999) n`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.channel_outbox (id, tenant_id, workspace_id, idempotency_key, channel, provider, lane, recipient, payload, guarantee, run_id, job_id, due, payload_bytes, created_at, updated_at)
		select gen_random_uuid(), j.tenant_id, j.workspace_id, sha256(j.from_n::text::bytea), 'email', 'fake', 'd.example', j.from_n || '@example.com', '{}', 'at_most_once', j.run_id, j.id, true, 2, now(), now()
		from deed.job_queue j where j.from_n > 1`)
	second := func() (looked int) { // as if one had passed
		db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = process_after - interval '1 second', expanded_at = expanded_at - interval '1 second', counted_at = counted_at - interval '1 second'`)
		for {
			n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select looked from deed.roll_up(200, 'w')`)
			if looked += n; n < 200 {
				return looked
			}
		}
	}
	second()
	looks, begun := 0, time.Now()
	for range 60 {
		looks += second()
	}
	minutes := 1 + time.Since(begun).Minutes() // what this takes goes by, too
	t.Logf("%d looks in %.2f minutes", looks, minutes)
	if looks < 900 || float64(looks) > 1500*minutes {
		t.Errorf("%d looks in %.2f minutes, want about 1,100 in each", looks, minutes)
	}
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox disable trigger user; update deed.channel_outbox set status = 'sent', sent_at = now(), finished_at = now()`)
	ended := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.job_queue where run_id = $1::text::uuid and finished_at is not null`, run)
	}
	for range 61 {
		second()
	}
	want(t, "jobs that have ended within a minute", ended(), 1000)
}
