package delivery_test

import (
	"fmt"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// A repeat that was not made takes its own attempt back, once: the first call's stays, whether the outcome is settled twice, since
// the answer to the first time was lost, or comes from the call itself whose lease ran out. With no attempt left
// the row could not be written, and the relay asked for that without end.
func TestContract_D5_ARepeatIsTakenBackOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"deferred", "unreachable", "outage", "unrepeated"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			worker := db.Pool(pgtest.Worker)
			d := email("a@example.com")
			d.Guarantee = delivery.AtLeastOnce
			id := reserve(t, db, d)[0].ID
			settle := func(what, kind string, claim int64, attempts int) {
				t.Helper()
				got := pgtest.One[string](t, worker, `
					select status || ' ' || attempts from deed.settle(array[$1::text::uuid], array[$2::bigint], array[$3], '{null}', '{null}', '{null}', 'w')`, id, claim, kind)
				if want := fmt.Sprintf("sending %d", attempts); got != want {
					t.Errorf("%s: %s, want %s", what, got, want)
				}
			}
			due := func() { db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = now()`) }
			repeated := func() int64 {
				t.Helper()
				due()
				return pgtest.One[int64](t, worker, `select claim from deed.claim_doubts('fake', 'w', 10, '1 minute', true, false)`)
			}
			lose := func() { // and nothing more: the provider is another's
				t.Helper()
				db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = now()`)
				due()
				db.Exec(t, pgtest.Worker, `select deed.claim_doubts('fake', 'w', 10, '1 minute', true, false, p_kind => 'another')`)
			}
			first := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'w', 10, '1 minute')`)
			db.Exec(t, pgtest.Worker, `select deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], '1 day', '1 minute', 'w')`, id, first)
			lose()
			settle("the call whose lease ran out", kind, first, 1)
			second := repeated()
			settle("a repeat that was not made", kind, second, 1)
			settle("the same again", kind, second, 1)
			third := repeated()
			lose()
			settle("a repeat whose lease ran out", kind, third, 2)
		})
	}
}
