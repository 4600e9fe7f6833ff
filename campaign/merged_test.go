package campaign_test

import (
	"fmt"
	"testing"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// Who of a test's cell becomes one with somebody of the rest, once the one has got it, gets no second one by
// the other name; and before, one of them.
func TestContract_C4_MergedBetweenTestAndRest(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{true, false} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			run := deploy(t, db, tested(t, db, 60, campaign.ByPerson))
			list, err := campaign.Members(t.Context(), db.Pool(pgtest.App), run, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			first, rest := "", ""
			for _, m := range list {
				if m.Variant == "" {
					rest = m.Contact
				} else {
					first = m.Contact
				}
			}
			if late {
				expandAll(t, db)
			}
			db.Exec(t, pgtest.App, `select deed.merge_contacts($1::text::uuid, $2::text::uuid, 'the same')`, first, rest)
			if _, err := campaign.Winner(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, "B", audit.Act{}); err != nil {
				t.Fatal(err)
			}
			expandAll(t, db)
			want(t, "the two", pgtest.One[string](t, db.Pool(pgtest.Owner), `
				select string_agg(coalesce(skip_reason, status), ', ' order by contact_id = $2::text::uuid) from deed.channel_outbox where run_id = $1::text::uuid and contact_id in ($2::text::uuid, $3::text::uuid)`,
				run, rest, first), map[bool]string{true: "queued, merged", false: "merged, queued"}[late])
			proved(t, db, run)
		})
	}
}

// Two of a test's cells who become one before the rest is reserved keep both of theirs, and the rest of their ranges gets its own.
func TestContract_C4_MergedWithinTheTest(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]int64{"in one range": 1000, "in two": 2000} {
		for _, cancelled := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " cancelled ", cancelled), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				run := deploy(t, db, tested(t, db, 1100, campaign.ByPerson))
				list, err := campaign.Members(t.Context(), db.Pool(pgtest.App), run, 0, 1100)
				if err != nil {
					t.Fatal(err)
				}
				one, other := "", ""
				for _, m := range list {
					if m.Variant != "" && one == "" {
						one = m.Contact
					} else if m.Variant != "" && m.N <= last {
						other = m.Contact
					}
				}
				expandAll(t, db)
				db.Exec(t, pgtest.App, `select deed.merge_contacts($1::text::uuid, $2::text::uuid, 'the same')`, one, other)
				if cancelled {
					_, err = campaign.Cancel(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{})
				} else {
					_, err = campaign.Winner(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, "B", audit.Act{})
				}
				if err != nil {
					t.Fatal(err)
				}
				expandAll(t, db)
				want(t, "deliveries", deliveriesOf(t, db, run), 1100)
				want(t, "the two", pgtest.One[int](t, db.Pool(pgtest.Owner), `
					select count(*) from deed.channel_outbox where run_id = $1::text::uuid and contact_id in ($2::text::uuid, $3::text::uuid) and (status = 'queued' or skip_reason = 'cancelled')`, run, one, other), 2)
				endAll(t, db, "true", "sent", "")
				rollUp(t, db)
				proved(t, db, run)
				r, err := campaign.Show(t.Context(), db.Pool(pgtest.App), run)
				if err != nil || r.FinishedAt == nil {
					t.Errorf("the run has not ended: %s %v", r.Status, err)
				}
				db.Broken() // no ledger has called anybody
			})
		}
	}
}
