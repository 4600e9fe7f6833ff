package run_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// What the tables of runs say is written by functions: no role writes them, and a status is set by what appends, and by
// nothing else. A run that begins with its request is made with the status that its first events give it, by the one function that has
// both done (TestContract_R12_BegunAtOnce); and one that steps end, with its last events, by the one that writes both (TestContract_R1_EndsAreWrittenAlike).
func TestContract_R1_OnlyAnAppendSetsAStatus(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	want(t, "what sets the status of runs", pgtest.One[string](t, owner, `
		select string_agg(p.proname, ' ' order by p.proname)
		from pg_proc p
		cross join lateral regexp_matches(p.prosrc, 'update deed\.runs\M.*?(?:\mwhere\M|;)', 'g') m
		where p.pronamespace = 'deed'::regnamespace and m[1] ~ '\mstatus\s*='`), "write_ends write_events")
	want(t, "what makes runs", pgtest.One[string](t, owner, `
		select string_agg(p.proname, ' ' order by p.proname) from pg_proc p where p.pronamespace = 'deed'::regnamespace and p.prosrc ~ 'insert into deed\.runs\M'`), "create_runs")
	want(t, "what makes them, and begins them", pgtest.One[string](t, owner, `
		select string_agg(distinct p.proname || ':' || m[1], ' ' order by p.proname || ':' || m[1])
		from pg_proc p cross join lateral regexp_matches(p.prosrc, 'deed\.(create_runs|write_beginnings)\(', 'g') m
		where p.pronamespace = 'deed'::regnamespace`), "begin_requests:create_runs begin_requests:write_beginnings create_run:create_runs")
	want(t, "what appends", pgtest.One[string](t, owner, `
		select string_agg(p.proname, ' ' order by p.proname) from pg_proc p where p.pronamespace = 'deed'::regnamespace and p.prosrc ~ 'insert into deed\.run_log\M'`), "write_beginnings write_ends write_event write_events")
	want(t, "who may write them", pgtest.One[string](t, owner, `
		select coalesce(string_agg(r.rolname || ' ' || p || ' ' || c.relname, ', '), '')
		from pg_class c
		cross join pg_roles r
		cross join unnest('{INSERT,UPDATE,DELETE,TRUNCATE}'::text[]) p
		where c.relnamespace = 'deed'::regnamespace and c.relname ~ '^run(s|_requests|_log|_log_.*|_events|_transitions|_snapshots|_stale|_behind|_partitions)$' and c.relkind in ('r', 'p', 'v')
		  and r.rolname in ('deed_app', 'deed_worker', 'deed_admin') and has_table_privilege(r.oid, c.oid, p)`), "")
}

// A run's row has no index but its key, its tenant's list and those of some statuses: what changes it but for its status
// writes none.
func TestRuns_AChangeWritesNoIndex(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	want(t, "the columns of indexes", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(distinct a.attname, ' ' order by a.attname)
		from pg_index i
		cross join lateral (
			select unnest(i.indkey::int2[]) as n
			union
			select (regexp_matches(i.indpred::text, ':varattno (\d+)', 'g'))[1]::int2
		) k
		join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.n
		where i.indrelid = 'deed.runs'::regclass`), "run_id status tenant_id")
	r := running(t, db, "a")
	e := run.New{Run: r, Type: run.StepCompleted, Step: "s", Attempt: 1, Data: begun}
	appendAs(t, db, e)
	for n := range 3 { // a repeat that says something else is counted in the run's row
		e.Data = json.RawMessage(fmt.Sprintf(`{"started_at": "2026-01-02T03:04:05Z", "n": %d}`, n))
		if err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.Worker), func(tx pgx.Tx) error {
			if _, err := run.Append(t.Context(), tx, "", e); err != nil {
				return err
			}
			var changed, without int // of this session
			err := tx.QueryRow(t.Context(), `select pg_stat_get_xact_tuples_updated('deed.runs'::regclass), pg_stat_get_xact_tuples_hot_updated('deed.runs'::regclass)`).Scan(&changed, &without)
			if changed == 0 || without != changed {
				t.Errorf("of %d changes %d wrote no index", changed, without)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
