package deed_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// promoted is what is left where a standby takes over that has not heard of the
// last claims and windows: their numbers are there to be given out again.
func promoted(t testing.TB, db *pgtest.DB, fenced bool) {
	t.Helper()
	if fenced {
		line := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select deed.timeline()`)
		db.Exec(t, pgtest.Owner, fmt.Sprintf(`create or replace function deed.timeline() returns bigint language sql volatile set search_path = pg_catalog, pg_temp as 'select %d::bigint'`, line+1))
	}
}

// Who holds a claim from before a failover that forgot it records no outcome of
// a message that was published, and claimed, under the same numbers since.
func TestContract_O14_AForgottenClaimIsNobodyElses(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprint("the timeline in front: ", fenced), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			id := subscribe(t, db, "orders", "s")
			publish(t, db, message("orders", 1))
			worker := db.Pool(pgtest.Worker)
			before := claim(t, worker, "orders", "w", 1)
			// Neither the claim nor its number has reached the standby.
			db.Exec(t, pgtest.Owner, `update deed.pending set claim = null, claimed_at = null, claimed_by = null, lease_until = null`)
			db.Exec(t, pgtest.Owner, `select setval('deed.claim_seq', ($1::bigint & (1::bigint << 40) - 1) - 1)`, before[0].Claim)
			promoted(t, db, fenced)
			after := claim(t, worker, "orders", "w", 1)
			if same := before[0].Claim == after[0].Claim; same == fenced {
				t.Fatalf("claim %d, then %d", before[0].Claim, after[0].Claim)
			}
			want := 0
			if !fenced {
				want = 1
			}
			same(t, "finished under the forgotten claim", finish(t, worker, id, before[0].Claim, ids(before)...), want)
		})
	}
}

// Nor is a window, which is known by its number and transaction id, another's,
// and the numbers never go back, as after a restore from a later timeline.
func TestWindows_NumbersAfterTimeWentBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	first := pgtest.One[int64](t, worker, `select deed.open_window()`)
	db.Exec(t, pgtest.Owner, `delete from deed.windows where n = $1`, first)
	db.Exec(t, pgtest.Owner, `select setval(pg_get_serial_sequence('deed.windows', 'n'), $1::bigint & (1::bigint << 40) - 1, false)`, first)
	promoted(t, db, true)
	second := pgtest.One[int64](t, worker, `select deed.open_window()`)
	if second == first {
		t.Errorf("window %d was opened twice", first)
	}
	if _, err := db.Pool(pgtest.Owner).Exec(context.Background(), `create or replace function deed.timeline() returns bigint language sql volatile set search_path = pg_catalog, pg_temp as 'select 1::bigint'`); err != nil {
		t.Fatal(err)
	}
	if third := pgtest.One[int64](t, worker, `select deed.open_window()`); third <= second {
		t.Errorf("window %d was opened after window %d", third, second)
	}
}
