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

// A step of which a worker appended an end, as could be before migration 0122, and that its engine begins again and again, is found by its run, with what
// to do: after that nobody finds anything.
func stuckSteps(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.App, `select deed.put_plan('{"plan": "p", "version": "1", "steps": {"a": {"kind": "go", "handler": "h", "retry": {"attempts": 2}}}}')`)
	begin := func(id string) string {
		return pgtest.One[string](t, db.Pool(pgtest.App), `select run_id::text from deed.start_run('p', '1', $1)`, id)
	}
	claim := func() {
		db.Exec(t, pgtest.Owner, `update deed.run_steps set lease_until = now() - interval '1 second' where claim is not null`)
		db.Exec(t, pgtest.Worker, `select deed.claim_steps('{go:h}', 'w', 10)`)
	}
	stuck := []string{begin("completed"), begin("failed")}
	claim()
	for i, typ := range []string{"StepCompleted", "StepFailed"} {
		db.Exec(t, pgtest.Owner, `select deed.write_events(array[$1]::text[]::uuid[], array[$2], '{a}', '{1}', p_data => array['{"started_at": "2026-01-02T03:04:05Z"}'::jsonb])`, stuck[i], typ)
	}
	sound := begin("sound")
	claim()
	claim()
	found := examine(t, worker, impatient)
	for _, id := range stuck {
		f := find(t, found, "step-stuck", doctor.Fail, id)
		says(t, f, "attempt 1 of step a", "cannot go on")
		if !strings.Contains(f.Remedy, "deed run cancel "+id) {
			t.Errorf("the remedy is %q", f.Remedy)
		}
	}
	for _, f := range found {
		if f.Name == "step-stuck" && f.Subject == sound {
			t.Errorf("a run that goes on: %+v", f)
		}
	}
	verified := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(invariant || ' ' || detail, E'\n'), '') from deed.verify()`)
	}
	for _, id := range stuck {
		if got := verified(); !strings.Contains(got, id) {
			t.Errorf("deed.verify does not name run %s: %s", id, got)
		}
		db.Exec(t, pgtest.Admin, `select deed.stop_run($1::text::uuid, 'it is stuck')`, id)
	}
	find(t, examine(t, worker, impatient), "step-stuck", doctor.OK, "")
	if got := verified(); got != "" {
		t.Errorf("when they are cancelled, deed.verify has %s", got)
	}
}

// A run that has failed as its plan is not what was stored is found for a day; one that has failed otherwise is not.
func damagedPlan(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.App, `select deed.put_plan('{"plan": "p", "version": "1", "steps": {"a": {"kind": "sleep"}}}')`)
	fail := func(id, code string) string {
		run := pgtest.One[string](t, db.Pool(pgtest.App), `select run_id::text from deed.start_run('p', '1', $1)`, id)
		db.Exec(t, pgtest.Worker, `
			select deed.finish_steps(array[c.run_id], array[c.place], array[c.claim], array[c.step_id], array[c.attempt], '{failed}', array[jsonb_build_object('error', jsonb_build_object('code', $1::text, 'retryable', false))])
			from deed.claim_steps('{deed}', 'w', 1) c`, code)
		return run
	}
	fail("other", "STEP_FAILED")
	find(t, examine(t, worker, impatient), "plan-integrity", doctor.OK, "")
	damaged := fail("damaged", "PLAN_INTEGRITY_VALIDATION_FAILED")
	found := examine(t, worker, impatient)
	says(t, find(t, found, "plan-integrity", doctor.Fail, damaged), "PLAN_INTEGRITY_VALIDATION_FAILED", "step a")
	n := 0
	for _, f := range found {
		if f.Name == "plan-integrity" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d runs are found, want 1", n)
	}
	db.Broken()
	db.Exec(t, pgtest.Owner, `do $$ begin
		perform set_config('deed.act', 'run redaction', true);
		update deed.run_log set persisted_at = persisted_at - interval '2 days';
	end $$`)
	find(t, examine(t, worker, impatient), "plan-integrity", doctor.OK, "")
	// However many failures there were since: it is asked who has refused it.
	db.Exec(t, pgtest.Worker, `select from deed.load_plan('p', '1', p_sha256 => '\x00', p_tenant => '00000000-0000-0000-0000-000000000000')`)
	says(t, find(t, examine(t, worker, impatient), "plan-integrity", doctor.Fail, "plan p@1"), "PLAN_INTEGRITY_VALIDATION_FAILED", "refused")
}
