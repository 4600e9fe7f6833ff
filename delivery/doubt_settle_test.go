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

// What the only call that was ever made of a delivery says counts, as long as nobody has taken over, however late it
// comes: what is refused by it was certainly not sent. Of one that was called again nobody knows.
func TestContract_D5_ALateRefusalOfTheOnlyCall(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{"refused": "failed", "bad_address": "failed", "opted_out": "skipped"} {
		for name, c := range map[string]struct {
			guarantee             delivery.Guarantee
			held, repeated, again bool
			want                  string
		}{
			"in doubt":                {guarantee: delivery.AtMostOnce, want: want},
			"in doubt, at least once": {guarantee: delivery.AtLeastOnce, want: want},
			"held":                    {guarantee: delivery.AtMostOnce, held: true, want: want},
			"repeated":                {guarantee: delivery.AtMostOnce, repeated: true, want: "sending, held"},
			"sent again":              {guarantee: delivery.AtMostOnce, held: true, again: true, want: "sending, held"},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				worker := db.Pool(pgtest.Worker)
				d := email("a@example.com")
				d.Guarantee = c.guarantee
				id := reserve(t, db, d)[0].ID
				call := func() int64 {
					t.Helper()
					claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'w', 1, '1 minute')`)
					pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], '1 day', '1 minute', 'w')`, id, claim)
					return claim
				}
				lose := func() { // and nothing more: the provider is another's
					t.Helper()
					db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = now(), process_after = now()`)
					db.Exec(t, pgtest.Worker, `select deed.claim_doubts('fake', 'w', 10, '1 minute', true, false, p_kind => 'another')`)
				}
				claim := call()
				lose()
				if c.held {
					db.Exec(t, pgtest.Worker, `select deed.claim_doubts('fake', 'w', 10, '1 minute', false, false)`)
				}
				if c.again {
					pgtest.One[string](t, db.Pool(pgtest.Admin), `select deed.settle_delivery($1::text::uuid, 'send_again', 'rather twice', 'me')`, id)
					claim = call()
					lose()
				}
				if c.repeated {
					claim = pgtest.One[int64](t, worker, `select claim from deed.claim_doubts('fake', 'w', 10, '1 minute', true, false)`)
					lose()
				}
				if got := pgtest.One[string](t, worker, `
					select status || case when held then ', held' else '' end
					from deed.settle(array[$1::text::uuid], array[$2::bigint], array[$3], '{null}', '{no}', '{null}', 'w')`, id, claim, kind); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				if e := entry(t, db, id); c.want == want && (e.DoubtSince != nil || e.HeldAt != nil || e.UnsettledSince != nil || e.FinishedAt == nil) {
					t.Errorf("%+v", e)
				}
			})
		}
	}
}

// What a person has sent again begins anew, held or not: claims that it lost before do not count.
func TestSettleDelivery_SentAgainItHasLostNoClaims(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	db.Providers(t, "fake", "fake")
	for name, held := range map[string]bool{"in doubt": false, "held": true} {
		id := reserve(t, db, email("a@example.com", name))[0].ID
		claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'w', 1, '1 minute') where id is not null`)
		pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, '1 minute', 'w')`, id, claim)
		pgtest.One[string](t, worker, `select status from deed.settle(array[$1::text::uuid], array[$2::bigint], '{unknown}', '{null}', '{cut}', '{null}', 'w')`, id, claim)
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lost_claims = 14, held_at = case when $2 then clock_timestamp() end where id = $1::text::uuid`, id, held)
		pgtest.One[string](t, db.Pool(pgtest.Admin), `select deed.settle_delivery($1::text::uuid, 'send_again', 'rather twice', 'me')`, id)
		for n := range 2 { // the first is lost
			rows := rowsOf(t, worker, `select id::text from deed.claim_deliveries('fake', 'w', 1, '1 minute') where id is not null`)
			if len(rows) != 1 || rows[0] != id {
				t.Fatalf("%s: claim %d after it was to be sent again is of %q: it is %s", name, n+1, rows, entry(t, db, id).Status)
			}
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second' where id = $1::text::uuid`, id)
		}
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() + interval '1 day' where id = $1::text::uuid`, id)
	}
}
