package campaign_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// ends has n of what is open of a run end as a status.
func ends(t testing.TB, db *pgtest.DB, run string, n int, status string) {
	t.Helper()
	endAll(t, db, fmt.Sprintf("id in (select id from deed.channel_outbox where finished_at is null and run_id = '%s' order by id limit %d)", run, n), status, "suppressed: asked")
}

// complain has n recipients of what went out complain.
func complain(t testing.TB, db *pgtest.DB, run string, n int) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `
		insert into deed.delivery_feedback (delivery_id, tenant_id, run_id, complained_at)
		select c.id, c.tenant_id, c.run_id, now() from deed.channel_outbox c
		where c.run_id = $1::text::uuid and c.status = 'sent' and not exists (select from deed.delivery_feedback f where f.delivery_id = c.id) limit $2`, run, n)
}

// longAgo has what has ended have done so a minute ago.
func longAgo(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox disable trigger user; update deed.channel_outbox set finished_at = finished_at - interval '1 minute' where finished_at > now() - interval '10 seconds';
		alter table deed.channel_outbox enable trigger user`)
}

// judged rolls up, counting each job, and has runs pause themselves; it returns why a run has, or "".
func judged(t testing.TB, db *pgtest.DB, run string) string {
	t.Helper()
	db.Exec(t, pgtest.Owner, `update deed.job_queue set counted_at = counted_at - interval '1 hour'`)
	rollUp(t, db)
	db.Exec(t, pgtest.Worker, `select deed.pause_failing('w')`)
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(paused_why, '') from deed.campaign_runs where id = $1::text::uuid and (paused_why is null or paused_at is not null)`, run)
}

// A run of which more fails than it allows pauses itself as a person would, and says why: to who
// looks, and in the audit log. Once it is resumed what had failed counts no more.
func TestContract_C3_ARunPausesItself(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // what ends stands in no audit row
	req := request(t, db, 400)
	req.PauseOn = &campaign.PauseOn{Failed: "5%", Complained: "0.5%", From: 100}
	run := deploy(t, db, req)
	expandAll(t, db)
	ends(t, db, run, 30, "skipped") // nobody was called for these
	ends(t, db, run, 89, "sent")
	ends(t, db, run, 10, "dead")
	want(t, "of 99", judged(t, db, run), "")
	ends(t, db, run, 1, "failed")
	want(t, "of 100", judged(t, db, run), "failed: 11 of 100 that have ended, over 5%")
	if of, _ := claimed(t, db, run, 100); of != 0 {
		t.Errorf("%d were claimed of a run that has paused itself", of)
	}
	s, err := campaign.Show(t.Context(), db.Pool(pgtest.App), run)
	if err != nil || s.PausedAt == nil || s.PausedWhy == "" || *s.PauseOn != *req.PauseOn {
		t.Errorf("shown as %+v, %v", s.Run, err)
	}
	want(t, "the audit log", pgtest.One[string](t, db.Pool(pgtest.App), `select string_agg(actor || ' ' || action || ': ' || reason, ', ') from deed.campaign_audit_log where subject_type = 'run' and action = 'pause'`),
		"w pause: failed: 11 of 100 that have ended, over 5%")

	longAgo(t, db)
	if err := campaign.Resume(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	want(t, "after it was resumed", judged(t, db, run), "")
	ends(t, db, run, 99, "sent")
	complain(t, db, run, 1)
	want(t, "of 99 since", judged(t, db, run), "")
	ends(t, db, run, 1, "sent")
	want(t, "of 100 since", judged(t, db, run), "complained: 1 of 100 that have ended, over 0.5%")
	if _, err := campaign.Cancel(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
	want(t, "after it was cancelled", judged(t, db, run), "")
}

// In whatever order deliveries end, people complain, looks come, and persons pause and resume: a
// look pauses the run if, and only if, what has ended since it was resumed last says so.
func TestContract_C3_PausesInAnyOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	req := request(t, db, 1500)
	req.PauseOn = &campaign.PauseOn{Failed: "20%", Complained: "10%", From: 15}
	pauses := 0
	for seed := range uint64(4) {
		req.ID = fmt.Sprint("walk ", seed)
		run := deploy(t, db, req)
		expandAll(t, db)
		r := rand.New(rand.NewPCG(seed, 16))
		var ended, failed, complained, sent int
		var base [3]int
		paused, why := false, ""
		for step := range 60 {
			switch r.IntN(9) {
			case 0, 1:
				n := 1 + r.IntN(12)
				ends(t, db, run, n, "sent")
				ended, sent = ended+n, sent+n
			case 2:
				n := 1 + r.IntN(7)
				ends(t, db, run, n, []string{"failed", "dead"}[r.IntN(2)])
				ended, failed = ended+n, failed+n
			case 3:
				n := min(r.IntN(3), sent-complained)
				complain(t, db, run, n)
				complained += n
			case 4:
				if r.IntN(2) == 0 {
					longAgo(t, db)
				}
				if err := campaign.Resume(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{}); err != nil {
					t.Fatal(err)
				}
				if paused {
					base, paused, why = [3]int{ended, failed, complained}, false, ""
				}
			case 5:
				if r.IntN(4) > 0 {
					continue
				}
				if _, err := campaign.Pause(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{}); err != nil {
					t.Fatal(err)
				}
				paused = true
			default:
				of := ended - base[0]
				if f, c := failed-base[1], complained-base[2]; !paused && of >= 15 && f*5 > of {
					paused, why = true, fmt.Sprintf("failed: %d of %d that have ended, over 20%%", f, of)
				} else if !paused && of >= 15 && c*10 > of {
					paused, why = true, fmt.Sprintf("complained: %d of %d that have ended, over 10%%", c, of)
				}
				if got := judged(t, db, run); got != why {
					t.Fatalf("seed %d, step %d: %q, want %q", seed, step, got, why)
				}
				if why != "" {
					pauses++
				}
			}
			if got := pgtest.One[bool](t, db.Pool(pgtest.Owner), `select paused_at is not null from deed.campaign_runs where id = $1::text::uuid`, run); got != paused {
				t.Fatalf("seed %d, step %d: paused %t, want %t", seed, step, got, paused)
			}
		}
	}
	if pauses == 0 {
		t.Error("no run ever paused itself")
	}
}

// What had ended before a run was resumed and does not stand on its job yet counts neither as what ended since: a run of which one job was counted
// later than another is judged by its deliveries.
func TestContract_C3_AResumedRunIsJudgedByItsDeliveries(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // what ends stands in no audit row
	req := request(t, db, 2000)
	req.PauseOn = &campaign.PauseOn{Failed: "20%", From: 10}
	run := deploy(t, db, req)
	expandAll(t, db)
	end := func(from, n int, status string) {
		t.Helper()
		endAll(t, db, fmt.Sprintf(`id in (select c.id from deed.channel_outbox c join deed.job_queue j on j.id = c.job_id where j.from_n = %d and c.finished_at is null order by c.id limit %d)`, from, n), status, "")
	}
	look := func() string { // at the first job alone
		t.Helper()
		db.Exec(t, pgtest.Owner, `update deed.job_queue set counted_at = now() - interval '1 hour', process_after = now() + case from_n when 1 then interval '-1 second' else interval '1 hour' end`)
		db.Exec(t, pgtest.Worker, `select deed.roll_up(1000, 'w')`)
		db.Exec(t, pgtest.Worker, `select deed.pause_failing('w')`)
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(paused_why, '') from deed.campaign_runs`)
	}
	end(1001, 100, "sent")
	if _, err := campaign.Pause(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
	if err := campaign.Resume(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
	end(1, 109, "sent")
	end(1, 3, "failed")
	want(t, "of 112 of which 3 failed", look(), "")
	want(t, "what stands on the jobs", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(sent || ' ' || failed, ', ' order by from_n) from deed.job_queue`), "109 3, 0 0")
	end(1, 30, "failed")
	want(t, "of 142 of which 33 failed", look(), "failed: 33 of 142 that have ended, over 20%")
}

// Bounds that are none are named, and so are complaints of a provider that reports none; nothing
// is deployed then.
func TestContract_C8_PauseOnIsSound(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 1)
	for on, want := range map[campaign.PauseOn]string{
		{}:                         "failed, complained, or both",
		{Failed: "0%"}:             "failed of pause_on is a share over 0% and below 100%",
		{Failed: "0.0%"}:           "failed of pause_on is a share",
		{Failed: "101%"}:           "failed of pause_on is a share",
		{Failed: "100%"}:           "failed of pause_on is a share",
		{Failed: "5"}:              "failed of pause_on is a share",
		{Complained: "-1%"}:        "complained of pause_on is a share",
		{Failed: "5%", From: -1}:   "from of pause_on is a number from 1",
		{Failed: "5%", From: 1e10}: "from of pause_on is a number from 1",
	} {
		req.PauseOn = &on
		_, err := campaign.Deploy(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, req)
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", on, err, want)
		}
	}
	for options, want := range map[string]string{
		`"5%"`: "pause_on is such as", `{"bounced": "5%"}`: "and not 'bounced'", `{"failed": "5%", "from": "many"}`: "from of pause_on", `{"failed": 5}`: "failed of pause_on",
	} {
		if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select deed.pause_problem(jsonb_build_object('pause_on', $1::text::jsonb))`, options); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", options, got, want)
		}
	}
	req.PauseOn = &campaign.PauseOn{Complained: "0.3%"}
	db.Exec(t, pgtest.Owner, `update deed.providers set reports = '{delivered}'`)
	if _, err := campaign.Deploy(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, req); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "no_complaints: ") {
		t.Errorf("complaints of a provider that reports none: %v", err)
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.campaign_runs`), 0)
	db.Exec(t, pgtest.Owner, `update deed.providers set reports = '{delivered,complained}'`)
	deploy(t, db, req)
}

// What a run has is counted before it is locked to go on: who waits for its deliveries to be counted holds up
// nobody who pauses or cancels it, and of two that resume it at once one does.
func TestResume_CountsBeforeItLocks(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // what ends stands in no audit row
	ctx := t.Context()
	req := request(t, db, 20)
	req.PauseOn = &campaign.PauseOn{Failed: "5%", From: 4}
	run := deploy(t, db, req)
	expandAll(t, db)
	ends(t, db, run, 5, "failed")
	longAgo(t, db)
	want(t, "before", judged(t, db, run), "failed: 5 of 5 that have ended, over 5%")
	counting, err := db.Pool(pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = counting.Rollback(ctx) }()
	if _, err := counting.Exec(ctx, `lock table deed.channel_outbox in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	resumed := make(chan error, 2)
	for range 2 {
		go func() {
			resumed <- campaign.Resume(ctx, db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{By: "ann"})
		}()
	}
	waitFor(t, "both to count", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%deed.resume_run%' and pid <> pg_backend_pid()`) == 2
	})
	if _, err := counting.Exec(ctx, `select from deed.campaign_runs where id = $1::text::uuid for update nowait`, run); err != nil {
		t.Errorf("while its deliveries are counted: %v", err)
	}
	// These end after it was counted, and before it goes on; this transaction may have begun long before.
	if _, err := counting.Exec(ctx, `update deed.channel_outbox set status = 'dead', finished_at = clock_timestamp() where id in (select id from deed.channel_outbox where run_id = $1::text::uuid and status = 'queued' limit 3)`, run); err != nil {
		t.Fatal(err)
	}
	if err := counting.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-resumed; err != nil {
			t.Error(err)
		}
	}
	want(t, "what counts no more", pgtest.One[string](t, db.Pool(pgtest.Owner), `select pause_base ->> 'ended' || ' ' || (pause_base ->> 'failed') from deed.campaign_runs where id = $1::text::uuid`, run), "8 8")
	want(t, "how often it was resumed", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where action = 'resume'`), 1)
	want(t, "after it was resumed", judged(t, db, run), "")
}

// What was stamped as ended long before a run is resumed, and commits between its first count and its second, is in the second: what was open
// in the first, and in somebody's hands, is looked at again. Else it would count as failed since, and pause the run again at once.
func TestResume_CountsWhatIsStampedEarlyAndCommittedLate(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // what ends stands in no audit row
	ctx := t.Context()
	owner := db.Pool(pgtest.Owner)
	req := request(t, db, 20)
	req.PauseOn = &campaign.PauseOn{Failed: "5%", From: 4}
	run := deploy(t, db, req)
	expandAll(t, db)
	ends(t, db, run, 5, "failed")
	if of, _ := claimed(t, db, run, 3); of != 3 {
		t.Fatalf("%d were claimed, want 3", of)
	}
	longAgo(t, db)
	want(t, "before", judged(t, db, run), "failed: 5 of 5 that have ended, over 5%")
	begin := func(lock string) pgx.Tx {
		t.Helper()
		tx, err := owner.Begin(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, lock)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	const dead = `update deed.channel_outbox set status = 'dead', finished_at = clock_timestamp() - interval '1 minute', lease_until = null, claimed_at = null, claimed_by = null where status = 'queued' and `
	// As deed.give_up_deliveries has it, which has written by then, and as deed.settle, which waits for others of its call after it has looked at the time.
	given := begin(dead + `id in (select id from deed.channel_outbox where status = 'queued' and claim is null limit 4)`)
	between := begin(`select from deed.campaign_runs for no key update`)
	resumed := make(chan error, 1)
	go func() {
		resumed <- campaign.Resume(ctx, db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{By: "ann"})
	}()
	waitFor(t, "it to have counted", func() bool {
		return pgtest.One[bool](t, owner, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%deed.resume_run%' and pid <> pg_backend_pid())`)
	})
	if err := given.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, dead+`claim is not null`)
	if err := between.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-resumed; err != nil {
		t.Fatal(err)
	}
	want(t, "what counts no more", pgtest.One[string](t, owner, `select pause_base ->> 'ended' || ' ' || (pause_base ->> 'failed') from deed.campaign_runs where id = $1::text::uuid`, run), "12 12")
	want(t, "after it was resumed", judged(t, db, run), "")
}
