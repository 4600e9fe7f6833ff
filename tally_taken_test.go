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

// Who deletes what is finished waits for nobody who does, of whatever topics and in whatever order,
// and while one has not committed what was delivered is added up.
func TestPurge_DeletesWaitForNobody(t *testing.T) {
	t.Parallel()
	db := faces(t)
	worker, owner := db.Pool(pgtest.Worker), db.Pool(pgtest.Owner)
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	for _, id := range []tenant.ID{a, b} {
		if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), id, fmt.Sprint(id[0])); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[tenant.ID][]string{}
	for _, topic := range []string{"one", "two"} {
		subscribe(t, db, topic, "s")
		db.Exec(t, pgtest.Admin, `select deed.set_door($1, 's')`, topic)
		for _, id := range []tenant.ID{a, b} { // in a receipt each
			as(t, db, id, message(topic, 1))
			deliver(t, db, topic, "s", 10, 10)
			ids[id] = list(t, worker, `select id::text from public.outbox where tenant_id = $1::text::uuid order by created_at`, id.String())
		}
	}
	want := fmt.Sprint([]standing{{Topic: "one", Subscription: "s", Delivered: 2}, {Topic: "two", Subscription: "s", Delivered: 2}})
	same(t, "at first", told(t, operator(t, db)), want)
	db.Exec(t, pgtest.Worker, `select deed.tally()`) // notes up to where
	removed := func(when string, want int) {
		t.Helper()
		same(t, "receipts removed "+when, pgtest.One[int](t, worker, `select removed from deed.purge_history() where what = 'receipts'`), want)
	}

	one := `set local lock_timeout = '1s'; delete from public.outbox where id = '%s'`
	open := openTx(t, db, pgtest.Worker, fmt.Sprintf(one, ids[a][0]))
	other := openTx(t, db, pgtest.Worker, fmt.Sprintf(one, ids[b][1]))
	if _, err := open.Exec(t.Context(), fmt.Sprintf(one, ids[a][1])); err != nil {
		t.Fatal("the other topic:", err)
	}
	if _, err := other.Exec(t.Context(), fmt.Sprintf(one, ids[b][0])); err != nil {
		t.Fatal("the other topic, for the second:", err)
	}
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, "with two less", told(t, operator(t, db)), want)
	removed("before they are added up", 0)

	eventually(t, "receipts to be added up beside who has not committed", func() bool {
		db.Exec(t, pgtest.Worker, `select deed.tally()`)
		return pgtest.One[int64](t, owner, `select upto_n from deed.tallied`) > 0
	})
	same(t, "once they are added up", told(t, operator(t, db)), want)
	removed("once they are added up", 2)
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	removed("once all have gone", 2)
	same(t, "receipts", pgtest.One[int](t, owner, `select count(*) from deed.receipts`), 0)
	same(t, "with all gone", told(t, operator(t, db)), want)
}
