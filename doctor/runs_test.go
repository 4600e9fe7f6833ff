package doctor_test

import (
	"strings"
	"testing"

	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/pgtest"
)

// Runs that miss an event are found by their ids, and a projector that is behind.
func runTroubles(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.Admin, `select deed.subscribe('deed.run_events', 'projector', 'beginning')`)
	run := pgtest.One[string](t, worker, `select run_id::text from deed.create_run('p', '1', 'a', p_tenant => '00000000-0000-0000-0000-000000000000')`)
	found := examine(t, worker, impatient)
	find(t, found, "projector-gap", doctor.OK, "")
	find(t, found, "projector-lag", doctor.OK, "")
	db.Exec(t, pgtest.Owner, `select deed.write_events(array[$1]::text[]::uuid[], '{RunApproved}', '{null}', '{1}')`, run)
	db.Exec(t, pgtest.Owner, `update deed.log set created_at = created_at - interval '10 seconds'`)
	db.Exec(t, pgtest.Owner, `insert into deed.run_stale (run_id, tenant_id, since, expected_seq) select r.run_id, r.tenant_id, now(), 2 from deed.runs r`)
	found = examine(t, worker, impatient)
	says(t, find(t, found, "projector-gap", doctor.Fail, run), "PROJECTOR_GAP_DETECTED", "event 2 is missing")
	db.Exec(t, pgtest.Owner, `update deed.run_stale set expected_seq = 1`)
	says(t, find(t, examine(t, worker, impatient), "projector-gap", doctor.Fail, run), "PROJECTOR_RUN_HALTED", "events from 1 on")
	says(t, find(t, found, "projector-lag", doctor.Warn, "deed.run_events/projector"), "PROJECTOR_LAG_HIGH", "behind by 1 events")
}

// Steps that are due are found by their queue, until a worker says that it serves it.
func unservedSteps(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.App, `select deed.put_plan('{"plan": "p", "version": "1", "steps": {"a": {"kind": "go", "handler": "ship@3"}}}')`)
	db.Exec(t, pgtest.App, `select deed.start_run('p', '1', 'r')`)
	f := find(t, examine(t, worker, impatient), "steps-unserved", doctor.Warn, "go:ship@3")
	says(t, f, "1 steps of runs are due that no worker serves")
	if !strings.Contains(f.Remedy, "the version of the function, ship@3") {
		t.Errorf("the remedy is %q", f.Remedy)
	}
	db.Exec(t, pgtest.Worker, `select deed.serve_queues('w', gen_random_uuid(), '{go:ship@3}')`)
	find(t, examine(t, worker, impatient), "steps-unserved", doctor.OK, "")
}
