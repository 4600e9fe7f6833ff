package campaign_test

import (
	"testing"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// A test whose people may not be called for now, as its run is paused or they sleep, cannot be decided, and a relay that ends when there is
// nothing to do does not wait for it; once it can be, it does.
func TestDrained_WhileNobodyOfATestMayBeCalled(t *testing.T) {
	t.Parallel()
	for name, asleep := range map[string]bool{"paused": false, "asleep": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			req := tested(t, db, 60, campaign.ByClicks)
			if asleep {
				req.QuietHours = quietNow()
			}
			run := deploy(t, db, req)
			db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() where part = 'test'`)
			expandAll(t, db)
			if !asleep {
				if _, err := campaign.Pause(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{}); err != nil {
					t.Fatal(err)
				}
			}
			drained := func(when string, want bool) {
				t.Helper()
				if got, err := worker(t, db).Drained(t.Context()); err != nil || got != want {
					t.Errorf("%s: drained %t, %v", when, got, err)
				}
			}
			db.Exec(t, pgtest.Owner, `update deed.campaign_runs set decide_at = now()`)
			drained("when the test is due for a look", true)
			want(t, "decided", decide(t, db), 0)
			drained("when it was looked at", true)
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where status = 'queued'`)
			endAll(t, db, "true", "sent", "")
			rollUp(t, db)
			anHourAgo(t, db)
			drained("when it can be decided", false)
			want(t, "decided", decide(t, db), 1)
		})
	}
}
