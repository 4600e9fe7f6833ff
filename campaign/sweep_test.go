package campaign_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// skipped is how many of a run's deliveries are, and of how many.
func skipped(t testing.TB, db *pgtest.DB, run string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select concat(count(*) filter (where skip_reason = 'cancelled'), ' of ', count(*)) from deed.channel_outbox where run_id = $1::text::uuid`, run)
}

func cancel(t testing.TB, db deed.DB, run string) {
	t.Helper()
	if _, err := campaign.Cancel(t.Context(), db, campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
}

// A small run ends beside a large one that was cancelled before it, and what the small one leaves of its share the large one has.
func TestSweep_ALargeRunDelaysNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	large := request(t, db, 300)
	small := large
	small.ID, small.Audience = "2", people(t, db, "a few", campaign.Email, 5).ID
	a, b := deploy(t, db, large), deploy(t, db, small)
	expandAll(t, db)
	cancel(t, db.Pool(pgtest.App), a)
	cancel(t, db.Pool(pgtest.App), b)
	for range 2 {
		want(t, "swept", pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.sweep_runs(100, 'w')`), 100)
	}
	want(t, "skipped of the large one", skipped(t, db, a), "195 of 300")
	want(t, "skipped of the small one", skipped(t, db, b), "5 of 5")
}

// Nor do many runs of a tenant delay another's, however many more they are than one statement skips.
func TestSweep_ManyRunsOfATenantDelayNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 5)
	var runs []string
	for i := range 12 {
		req.ID = fmt.Sprint(i)
		runs = append(runs, deploy(t, db, req))
	}
	last := deployElsewhere(t, db, req)
	expandAll(t, db)
	within(t, db, tenant.Default, func(tx pgx.Tx) {
		for _, run := range runs {
			cancel(t, tx, run)
		}
	})
	within(t, db, another, func(tx pgx.Tx) { cancel(t, tx, last) })
	want(t, "swept", pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.sweep_runs(10, 'w')`), 10)
	want(t, "skipped of the other tenant's", skipped(t, db, last), "5 of 5")
	for what, n := range []int{10, 10, 10, 10, 10, 5, 0} {
		want(t, fmt.Sprint("swept by sweep ", what), pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.sweep_runs(10, 'w')`), n)
	}
}

var another = tenant.ID{15: 1}

// within has fn in a transaction of a tenant's.
func within(t testing.TB, db *pgtest.DB, of tenant.ID, fn func(pgx.Tx)) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
		if err := tenant.Set(t.Context(), tx, of); err != nil {
			return err
		}
		fn(tx)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// deployElsewhere deploys as req a campaign of another tenant, to five members.
func deployElsewhere(t testing.TB, db *pgtest.DB, req campaign.Request) (run string) {
	t.Helper()
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), another, "another"); err != nil {
		t.Fatal(err)
	}
	within(t, db, another, func(tx pgx.Tx) {
		audience, err := campaign.OpenAudience(t.Context(), tx, campaign.Scope{}, "a few", campaign.Email)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			if err := audience.Add(t.Context(), tx, campaign.Member{Address: address(campaign.Email, i), Data: json.RawMessage(`{"name": "P"}`)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := audience.Finish(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		c, err := campaign.Put(t.Context(), tx, campaign.Scope{}, "spring", spring)
		if err != nil {
			t.Fatal(err)
		}
		req.Campaign, req.Audience = c.ID, audience.ID
		d, err := campaign.Deploy(t.Context(), tx, campaign.Scope{}, req)
		if err != nil {
			t.Fatal(err)
		}
		run = d.Run
	})
	return run
}
