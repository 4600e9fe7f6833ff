package run_test

import (
	"fmt"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// crowd makes n runs of the week 2800 that have ended long ago, each of two events, of
// tables that nobody has analysed.
func crowd(t *testing.T, db *pgtest.DB, n int) {
	t.Helper()
	old(t, db, 0, true)
	db.Broken()
	const id = `(lpad(to_hex(2800 * 604800000::bigint + 1000 + n), 12, '0') || '70008000000000000000')::uuid`
	for _, table := range []string{"runs", "run_requests", "run_snapshots", "run_log_w2800"} {
		db.Exec(t, pgtest.Owner, `alter table deed.`+table+` set (autovacuum_enabled = off)`)
	}
	db.ExecSteps(t, pgtest.Owner, n, `
		with made as (
		  insert into deed.runs (run_id, tenant_id, input_sha256, created_at, finished_at, project, environment, plan_id, plan_version, engine, status, input)
		  select `+id+`, '00000000-0000-0000-0000-000000000000', sha256(''), now() - interval '1 year', now() - interval '100 days', 'p', 'e', case when n % 1000 = 0 then 'rare' else 'p' end, '1', 'local',
		    case when n % 1000 = 0 then 'FAILED' else 'COMPLETED' end, '{}'
		  from generate_series($1::int, $2::int) n
		  returning run_id, tenant_id
		),
		asked as (
		  insert into deed.run_requests (request_key, run_id, tenant_id) select sha256(uuid_send(m.run_id)), m.run_id, m.tenant_id from made m
		),
		projected as (
		  insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot) select m.run_id, m.tenant_id, 2, now(), '{}' from made m
		)
		insert into deed.run_log (run_id, tenant_id, run_seq, emitted_at, persisted_at, logical_attempt, event_type, idempotency_key, event_data)
		select m.run_id, m.tenant_id, s, now() - interval '1 year', now() - interval '100 days', 1, 'RunApproved', sha256(int8send(s)), '{}' from made m cross join generate_series(1, 2) s`)
}

// The looks at runs, the projector's read and a step of retention touch what they need: not
// all runs, nor all events of one, whatever was analysed.
func TestPlan_LooksAtRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	crowd(t, db, 20_000)
	r := running(t, db, "long")
	db.Exec(t, pgtest.Owner, `alter table `+pgtest.One[string](t, db.Pool(pgtest.Owner), `select tableoid::regclass::text from deed.run_log where run_id = $1::text::uuid limit 1`, r)+` set (autovacuum_enabled = off)`)
	for n := range 5 {
		appendAs(t, db, steps(func(int) string { return r }, 1000, fmt.Sprint("s", n, "/"))...)
	}
	db.Exec(t, pgtest.Owner, `
		insert into deed.run_stale (run_id, tenant_id, since, expected_seq) select r.run_id, r.tenant_id, now(), 2 from deed.runs r where r.plan_id = 'rare' order by r.run_id limit 1;
		insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot) select '`+r+`'::uuid, '00000000-0000-0000-0000-000000000000', 4990, now(), '{}'`)
	list := run.Statements.List
	worker := db.Conn(t, pgtest.Worker)
	for _, test := range []struct {
		what, sql string
		args      []any
		most      int
	}{
		{"a page of runs", list, []any{nil, nil, nil, nil, nil, nil, false, nil, 100, nil}, 600},
		{"those that go on", list, []any{nil, nil, "RUNNING", nil, nil, nil, false, nil, 100, nil}, 600},
		{"those that failed", list, []any{nil, nil, "FAILED", nil, nil, nil, false, nil, 20, nil}, 600},
		{"those that are stale", list, []any{nil, nil, nil, nil, nil, nil, true, nil, 100, nil}, 60},
		{"those that no worker serves", list, []any{nil, nil, nil, nil, nil, nil, false, nil, 100, []string{"go:ship@2"}}, 60},
		{"a run", run.Statements.Run, []any{r}, 50},
		{"the steps by which a run goes on", run.Statements.Due, []any{r}, 50},
		{"the newest snapshot", run.Statements.Newest, []any{r, nil}, 50},
		{"events at the end of a long run", run.Statements.Events, []any{r, 4990, 100}, 50},
		{"the projector's snapshots", run.Statements.Snapshots, []any{[]string{r}}, 100},
		{"the projector's events", run.Statements.Tails, []any{[]string{r}, []int64{4990}, 1000}, 50},
		{"a step of retention", `select deed.retain_runs('90 days', 100)`, nil, 8_000},
	} {
		pgtest.Measure(t, worker, pgtest.Any, test.sql, test.args...) // the session's first reads the catalogue
		got := pgtest.Measure(t, worker, test.most, test.sql, test.args...).Buffers
		t.Logf("%6d pages: %s", got, test.what)
		if got > test.most {
			t.Errorf("%s touches %d pages, want at most %d", test.what, got, test.most)
		}
	}
	want(t, "runs that went", pgtest.One[int](t, db.Pool(pgtest.Owner), `select 20002 - count(*)::int from deed.runs`), 200)
}
