package campaign_test

import (
	"testing"

	"github.com/deedhq/deed/campaign"
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

// What has become of a job stands on it from its expansion on, where all its members wait; where some do not it is counted at the first look.
func TestRollUp_AnExpansionSaysWhatWaits(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	expand := func() string {
		t.Helper()
		db.Exec(t, pgtest.Worker, `select (deed.expand_job(c.id, c.claim, 'w')).state from deed.claim_queued_jobs('w', 1) c`)
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select concat_ws(' ', j.counted_at is not null, (j.sent, j.skipped, j.missed, j.failed, j.dead, j.queued, j.sending, j.in_doubt, j.held, j.reasons) is not distinct from
				(c.sent, c.skipped, c.missed, c.failed, c.dead, c.queued, c.sending, c.in_doubt, c.held, c.reasons), j.queued)
			from deed.job_queue j cross join lateral deed.count_job(j.run_id, j.id) c
			order by j.expanded_at desc limit 1`)
	}
	deploy(t, db, request(t, db, 30))
	want(t, "counted, rightly, and how many wait", expand(), "t t 30")
	db.Exec(t, pgtest.App, `select deed.suppress('email', array[$1], 'asked', 'w')`, address(campaign.Email, 3))
	req := request(t, db, 40)
	req.ID = "2"
	deploy(t, db, req)
	want(t, "where one is skipped", expand(), "f f")
	rollUp(t, db)
	want(t, "after the first look", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', queued, skipped, reasons) from deed.job_queue order by expanded_at desc limit 1`), `39 1 [["skipped", "suppressed", 1]]`)
}

// A job of which the first rows have ended is open while any other is; and a run ends with the last of its jobs, whichever that is.
func TestRollUp_EndsWithTheLastOne(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // what has ended was never called
	run := deploy(t, db, request(t, db, 1200))
	expandAll(t, db)
	const second = `job_id = (select id from deed.job_queue where from_n = 1001)`
	last := pgtest.One[string](t, db.Pool(pgtest.Owner), `select id::text from deed.channel_outbox where `+second+` order by id desc limit 1`)
	endAll(t, db, second+` and id <> '`+last+`'`, "sent", "")
	// It stands behind others in the index that looks go by, which has those of a job as they stand in the table. Its job is not due to be counted for its age.
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'sending', request = payload::text::bytea, claim = 1, attempts = 1, first_called_at = now(), called_at = now() where id = $1::text::uuid`, last)
	db.Exec(t, pgtest.Owner, `cluster deed.channel_outbox using channel_outbox_pkey`)
	want(t, "whether it is among the first", pgtest.One[bool](t, db.Pool(pgtest.Owner), `select bool_or(f.finished_at is null) from (select finished_at from deed.channel_outbox where `+second+` order by ctid limit 50) f`), false)
	db.Exec(t, pgtest.Owner, `update deed.job_queue set counted_at = clock_timestamp() + interval '1 hour'`)
	rollUp(t, db)
	want(t, "while one is called", states(t, db, run), "running: locked, locked")
	want(t, "what it has counted", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', sent, sending, queued) from deed.job_queue where from_n = 1001`), "199 1 0")
	endAll(t, db, `id = '`+last+`'`, "sent", "")
	rollUp(t, db)
	want(t, "when the last job has ended", states(t, db, run), "running: locked, completed 200/0/0/0/0")
	endAll(t, db, `true`, "sent", "")
	rollUp(t, db)
	want(t, "when the first has", states(t, db, run), "completed: completed 1000/0/0/0/0, completed 200/0/0/0/0")
}
