package deed_test

import (
	"fmt"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// What a DELETE on a face's relation, or a tenant's removal, takes out of the receipts
// was delivered all the same, whether it was added up before or not.
func TestTally_OutlivesWhatIsTakenOut(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"deleted", "deleted after it was added up", "its tenant is removed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			db := faces(t)
			a, b := tenant.ID{0xa}, tenant.ID{0xb}
			for _, id := range []tenant.ID{a, b} {
				if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), id, fmt.Sprint(id[0])); err != nil {
					t.Fatal(err)
				}
			}
			backfill(t, db, subscribe(t, db, "jobs", "s"))
			db.Exec(t, pgtest.Admin, `select deed.set_door('jobs', 's')`)
			for _, id := range []tenant.ID{a, b, b, b} {
				as(t, db, id, message("jobs", 1), message("loose", 1))
			}
			deliver(t, db, "jobs", "s", 10, 10)
			deliver(t, db, "", "default", 10, 10)
			want := fmt.Sprint([]standing{{Topic: "jobs", Subscription: "s", Delivered: 4}, {Topic: "loose", Subscription: "default", Delivered: 4}})
			same(t, "at first", told(t, operator(t, db)), want)
			if how == "deleted after it was added up" {
				tally(t, db)
			}
			if how == "its tenant is removed" {
				askRemoval(t, db, b)
				removed(t, db, b)
				same(t, "with one tenant less", told(t, operator(t, db)), want)
			} else {
				for _, id := range []tenant.ID{a, b} { // a part of each receipt, then what is left of it
					db.Exec(t, pgtest.Admin, `delete from public.outbox where delivered_at is not null and tenant_id = $1::text::uuid`, id.String())
					same(t, "with less of it", told(t, operator(t, db)), want)
				}
				same(t, "receipts", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.receipts where finished > 0`), 0)
			}
			as(t, db, a, message("jobs", 1)) // its receipt is above all others
			deliver(t, db, "jobs", "s", 10, 10)
			tally(t, db)
			want = fmt.Sprint([]standing{{Topic: "jobs", Subscription: "s", Delivered: 5}, {Topic: "loose", Subscription: "default", Delivered: 4}})
			same(t, "once it is added up", told(t, operator(t, db)), want)
		})
	}
}
