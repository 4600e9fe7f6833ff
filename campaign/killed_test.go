package campaign_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// killed runs what it is given in a transaction of a login, and has its session end in the middle, as
// that of a process that is killed does.
func killed(t *testing.T, db *pgtest.DB, login pgtest.Role, within func(tx pgx.Tx) error) {
	t.Helper()
	ctx := context.Background()
	conn := db.Conn(t, login)
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := within(tx); err != nil {
		t.Fatal(err)
	}
	pid := int32(conn.PgConn().PID())
	db.Exec(t, pgtest.Owner, `select pg_terminate_backend($1)`, pid)
	if err := tx.Commit(ctx); err == nil {
		t.Fatal("what was killed has committed")
	}
	waitFor(t, "the session to be gone", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select not exists (select from pg_stat_activity where pid = $1)`, pid)
	})
}

// Who is killed within a retry has made nothing, and who is before he has the answer makes the
// same run when he asks again.
func TestContract_C7_KilledWithinRetry(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // what ends stands in no audit row
	run := deploy(t, db, request(t, db, 1001))
	expandAll(t, db)
	endAll(t, db, "true", "dead", "")
	rollUp(t, db)
	before := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select concat_ws(' ', (select count(*) from deed.campaign_runs), (select count(*) from deed.job_queue), (select count(*) from deed.audiences), (select count(*) from deed.audience_members),
				(select count(*) from deed.audit_log where action = 'retry'))`)
	}
	was := before()
	killed(t, db, pgtest.App, func(tx pgx.Tx) error {
		_, err := campaign.Retry(context.Background(), tx, campaign.Scope{}, run, campaign.RetryOptions{}, audit.Act{})
		return err
	})
	want(t, "what a retry that was killed has left", before(), was)
	var made [2]campaign.Retried
	for i := range made {
		var err error
		if made[i], err = campaign.Retry(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, campaign.RetryOptions{}, audit.Act{}); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "asked again", made[1], campaign.Retried{Run: made[0].Run, Members: made[0].Members})
	want(t, "members", made[0].Members, 1001)
	expandAll(t, db)
	want(t, "deliveries of the retry", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where run_id = $1::text::uuid`, made[0].Run), 1001)
}

// Who is killed while he puts a job back has not done so: it is taken back when its lease is over,
// which is an attempt, and nothing that he does afterwards counts. One whose answer was lost has.
func TestContract_C5_KilledWhilePuttingBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	run := deploy(t, db, request(t, db, 3))
	worker := db.Pool(pgtest.Worker)
	job := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', status, attempts, (claim is not null)::text) from deed.job_queue`)
	}
	claim := func() int64 {
		return pgtest.One[int64](t, worker, `select coalesce(max(claim), 0) from deed.claim_queued_jobs('w', 1)`)
	}
	const back = `select coalesce(deed.put_back_job(j.id, $1, 'somebody holds it', 'w'), 'not his') from deed.job_queue j`
	first := claim()
	killed(t, db, pgtest.Worker, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, back, first)
		return err
	})
	want(t, "after the kill", job(), "locked 0 true")
	db.Exec(t, pgtest.Owner, `update deed.job_queue set lease_until = now() - interval '1 second'`)
	second := claim() // takes it back, and has it
	want(t, "taken back and claimed", job(), "locked 1 true")
	want(t, "put back by who was killed", pgtest.One[string](t, worker, back, first), "not his")
	want(t, "put back", pgtest.One[string](t, worker, back, second), "queued")
	want(t, "put back again, as the answer was lost", pgtest.One[string](t, worker, back, second), "not his")
	want(t, "after it was put back", job(), "queued 1 false")
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() - interval '1 second'`)
	expandAll(t, db)
	want(t, "deliveries", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where run_id = $1::text::uuid`, run), 3)
}
