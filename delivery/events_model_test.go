package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// Whatever order a call's outcome, its events, their repeats and an erasure come in: what
// was sent stays sent, each event's first time is kept, nothing that names the recipient is
// left after the erasure, and the ledger adds up.
func TestContract_D13_ModelOfCallsEventsAndErasures(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l := ledger(t, db, fast(newFake()))
	owner, worker := db.Pool(pgtest.Owner), db.Pool(pgtest.Worker)
	kinds := []delivery.Said{delivery.SaidDelivered, delivery.SaidBounced, delivery.SaidComplained}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		id := reserve(t, db, email(fmt.Sprintf("canary%d@example.com", round)))[0].ID
		var claim int64
		err := worker.QueryRow(t.Context(), `select claim from deed.claim_deliveries('fake', 'w', 1, '1 minute')`).Scan(&claim)
		if err != nil {
			rt.Fatal(err)
		}
		if got := pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['canary'::bytea], null, '1 minute', 'w', 'fake', '', false)`, id, claim); got != "sending" {
			rt.Fatal(got)
		}
		status, erased, leased := "sending", false, true
		first := map[delivery.Said]time.Time{}
		settle := func(kind string) {
			db.Exec(t, pgtest.Worker, `select from deed.settle(array[$1::text::uuid], array[$2::bigint], array[$3::text], array['m-1'], array['canary said so'], array[null]::float8[], 'w')`, id, claim, kind)
			if status == "sending" && kind == "accepted" { // in doubt, too: nobody has taken it over
				status = "sent"
			}
			leased = false
		}
		event := func(said delivery.Said, seconds int) {
			e := delivery.StatusEvent{Said: said, ID: fmt.Sprintf("ev-%s-%d", said, seconds), Delivery: id, MessageID: "m-1", At: at(seconds), Reason: "canary bounced"}
			if got, err := l.Record(t.Context(), "fake", e); err != nil || got.Matched != 1 {
				rt.Fatalf("%s: %+v, %v", said, got, err)
			}
			if was, ok := first[said]; !ok || at(seconds).Before(was) {
				first[said] = at(seconds)
			}
			if status == "sending" {
				status, leased = "sent", false
			}
		}
		erase := func() {
			did := pgtest.One[string](t, owner, `select coalesce((select did from deed.erase_deliveries(array[$1::text::uuid], 'ann')), 'nothing')`, id)
			want := "emptied"
			switch {
			case erased:
				want = "nothing"
			case leased:
				want = "left"
			case status == "sending":
				want, status = "failed", "failed"
			}
			if did != want {
				rt.Fatalf("the erasure: %s, want %s", did, want)
			}
			erased = erased || did != "left"
		}
		check := func() {
			e, _, err := l.Show(t.Context(), id, true)
			if err != nil {
				rt.Fatal(err)
			}
			f := feedback(t, l, id)
			for said, got := range map[delivery.Said]*time.Time{delivery.SaidDelivered: f.DeliveredAt, delivery.SaidBounced: f.BouncedAt, delivery.SaidComplained: f.ComplainedAt} {
				want, ok := first[said]
				if ok != (got != nil) || ok && !got.Equal(want) {
					rt.Fatalf("%s at %v, want %v", said, got, want)
				}
			}
			if string(e.Status) != status || erased != (e.ErasedAt != nil) || erased && strings.Contains(f.Reason+e.LastError+e.DoubtReason+string(e.Payload)+e.Recipient, "canary") {
				rt.Fatalf("%+v, %+v; want %s, erased %t", e, f, status, erased)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"accepted": func(*rapid.T) { settle("accepted") },
			"unknown":  func(*rapid.T) { settle("unknown") },
			"event": func(rt *rapid.T) {
				event(rapid.SampledFrom(kinds).Draw(rt, "said"), rapid.IntRange(1, 3).Draw(rt, "second"))
			},
			"erase": func(*rapid.T) { erase() },
			"":      func(*rapid.T) { check() },
		})
		// However it went on, it ends.
		settle("accepted")
		for _, said := range kinds {
			event(said, 1)
		}
		erase()
		check()
		if !erased || status == "sending" {
			rt.Fatalf("it is %s in the end, erased %t", status, erased)
		}
	})
	if list := rowsOf(t, worker, `select invariant || ': ' || detail from deed.verify()`); len(list) > 0 {
		t.Errorf("deed.verify: %q", list)
	}
}
