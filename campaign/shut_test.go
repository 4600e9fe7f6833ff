package campaign_test

import (
	"context"
	"testing"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// split makes a job of each member of the runs that are there, as if each had a thousand times as many.
func split(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `alter table deed.job_queue disable trigger user`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.job_queue (id, run_id, tenant_id, workspace_id, job_type, process_after, from_n, upto_n, members, created_at)
		select deed.new_id(), j.run_id, j.tenant_id, j.workspace_id, j.job_type, j.process_after, n, n, null, j.created_at
		from deed.job_queue j cross join lateral generate_series(2, j.upto_n) n`)
	db.Exec(t, pgtest.Owner, `update deed.job_queue set upto_n = from_n where from_n = 1`)
	db.Exec(t, pgtest.Owner, `alter table deed.job_queue enable trigger user`)
}

// heldOpen pauses runs in a transaction that stays open.
func heldOpen(t testing.TB, db *pgtest.DB, runs ...string) {
	t.Helper()
	ctx := context.Background()
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(ctx) })
	for _, run := range runs {
		if _, err := campaign.Pause(ctx, tx, campaign.Scope{}, run, audit.Act{}); err != nil {
			t.Fatal(err)
		}
	}
}

// However many jobs a run has that somebody keeps locked, and however many such runs there are, the jobs behind them have their turn at once.
func TestPause_LeftOpenCostsOthersNoTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ runs, jobs, steps int }{"50 jobs": {1, 50, 1}, "50 runs": {50, 3, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			req := request(t, db, c.jobs)
			var held []string
			for n := range c.runs {
				req.ID = address(campaign.Chat, n)
				held = append(held, deploy(t, db, req))
			}
			split(t, db)
			req.ID = "other"
			other := deploy(t, db, req)
			heldOpen(t, db, held...)
			w := worker(t, db)
			for range c.steps {
				if _, err := w.Step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			want(t, "deliveries of the other run", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where run_id = $1::text::uuid`, other), c.jobs)
			want(t, "jobs of what is held that were begun", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.job_queue where run_id <> $1::text::uuid and status <> 'queued'`, other), 0)
		})
	}
}

// Nor do jobs that would be dead, but whose run is locked, keep others that were lost from being taken back.
func TestPause_LeftOpenKeepsNoLostJob(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 10)
	held := deploy(t, db, req)
	split(t, db)
	req.ID = "2"
	other := deploy(t, db, req)
	db.Exec(t, pgtest.Worker, `select from deed.claim_queued_jobs('gone', 11)`)
	db.Exec(t, pgtest.Owner, `update deed.job_queue set attempts = case when run_id = $1::text::uuid then 4 else 0 end, lease_until = now() - case when run_id = $1::text::uuid then interval '2 minutes' else interval '1 minute' end`, held)
	heldOpen(t, db, held)
	if _, err := worker(t, db).Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "deliveries of the other run", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where run_id = $1::text::uuid`, other), 10)
}
