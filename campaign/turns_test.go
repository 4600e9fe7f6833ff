package campaign_test

import (
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// When a job of a run ends, those behind it are looked at, and soon again: an old run's end is not seen a minute late.
// Jobs further behind wait as long as they did.
func TestRollUp_LooksAtWhoseTurnItIs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // what has ended was never called
	owner := db.Pool(pgtest.Owner)
	run := deploy(t, db, request(t, db, 5001))
	expandAll(t, db)
	db.Exec(t, pgtest.Owner, `alter table deed.job_queue disable trigger user`)
	db.Exec(t, pgtest.Owner, `update deed.job_queue set expanded_at = now() - interval '1 hour'`)
	db.Exec(t, pgtest.Owner, `alter table deed.job_queue enable trigger user`)
	rollUp(t, db)
	due := func(interval string) string {
		t.Helper()
		return pgtest.One[string](t, owner, `
			select coalesce(string_agg((from_n / 1000)::text, ',' order by from_n), '') from deed.job_queue
			where run_id = $1::text::uuid and finished_at is null and process_after <= clock_timestamp() + $2::text::interval`, run, interval)
	}
	want(t, "due within half a minute, of an old run", due("30 seconds"), "")
	endAll(t, db, `job_id = (select id from deed.job_queue where from_n = 1)`, "sent", "")
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() - interval '1 second' where from_n = 1`)
	db.Exec(t, pgtest.Worker, `select deed.roll_up(1000, 'w')`)
	want(t, "due once the first has ended", due("0"), "1,2,3")
	db.Exec(t, pgtest.Worker, `select deed.roll_up(1000, 'w')`)
	want(t, "due soon again, though they are open", due("30 seconds"), "1,2,3")
	endAll(t, db, `true`, "sent", "")
	for range 3 {
		db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() where process_after < now() + interval '30 seconds' and finished_at is null`)
		db.Exec(t, pgtest.Worker, `select deed.roll_up(1000, 'w')`)
	}
	want(t, "the run", pgtest.One[string](t, owner, `select status from deed.campaign_runs`), "completed")
}
