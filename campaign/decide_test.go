package campaign_test

import (
	"testing"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// While a test is counted, which takes as long as it is large, nobody waits for its run, nor for one that was put off before it in the same call.
func TestDecide_CountsBeforeItLocks(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	req := tested(t, db, 60, campaign.ByClicks)
	waits := deploy(t, db, req)
	req.ID = "2"
	run := deploy(t, db, req)
	expandAll(t, db)
	endAll(t, db, "run_id = '"+run+"'", "sent", "")
	anHourAgo(t, db)
	db.Exec(t, pgtest.Owner, `update deed.campaign_runs set decide_at = clock_timestamp() - interval '1 hour' where id = $1::text::uuid`, waits)
	db.Exec(t, pgtest.Owner, `update deed.campaign_runs set decide_at = clock_timestamp() - interval '1 minute' where id = $1::text::uuid`, run)
	counting, err := db.Pool(pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = counting.Rollback(ctx) }()
	if _, err := counting.Exec(ctx, `lock table deed.delivery_feedback in access exclusive mode`); err != nil { // of what deciding reads counting alone does
		t.Fatal(err)
	}
	decided := make(chan int, 1)
	go func() {
		var n int
		if err := db.Pool(pgtest.Worker).QueryRow(ctx, `select deed.decide_winners(1, 'w')`).Scan(&n); err != nil {
			t.Error(err)
		}
		decided <- n
	}()
	waitFor(t, "the test to be counted", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%deed.decide_winners%' and pid <> pg_backend_pid()`) == 1
	})
	for _, id := range []string{waits, run} {
		if _, err := counting.Exec(ctx, `select from deed.campaign_runs where id = $1::text::uuid for update nowait`, id); err != nil {
			t.Fatalf("while a test is counted: %v", err)
		}
	}
	if err := counting.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	want(t, "decided", <-decided, 1)
	want(t, "the other is looked at later", pgtest.One[bool](t, db.Pool(pgtest.Owner), `select decide_at > clock_timestamp() from deed.campaign_runs where id = $1::text::uuid`, waits), true)
}
