package delivery_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// Whatever order a call, its outcome or the loss of it, its settlement, its events, their
// repeats and an erasure come in: what nobody has called nothing is said of, what was sent
// stays sent, each event's first time is kept, and stops what it stops, nothing that names the
// recipient is left after the erasure, and the ledger adds up.
func TestContract_D13_ModelOfCallsEventsAndErasures(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l := ledger(t, db, fast(newFake()))
	owner, worker := db.Pool(pgtest.Owner), db.Pool(pgtest.Worker)
	kinds := []delivery.Said{delivery.SaidDelivered, delivery.SaidBounced, delivery.SaidComplained}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		// What a round that failed has left is not to be claimed.
		db.Exec(t, pgtest.Owner, `select from deed.erase_deliveries(array(select c.id from deed.channel_outbox c where c.status = 'queued'), 'ann')`)
		id := reserve(t, db, email(fmt.Sprintf("canary%d@example.com", round)))[0].ID
		to := fmt.Sprintf("canary%d@example.com", round)
		var claim int64
		status, erased, leased := "queued", false, false
		first, stopped := map[delivery.Said]time.Time{}, map[string]bool{}
		var told []delivery.StatusEvent
		call := func() {
			err := worker.QueryRow(t.Context(), `select claim from deed.claim_deliveries('fake', 'w', 1, '1 hour') where id is not null`).Scan(&claim)
			if status != "queued" {
				if !errors.Is(err, pgx.ErrNoRows) {
					rt.Fatalf("what is %s was claimed, %v", status, err)
				}
				return
			}
			if err != nil {
				rt.Fatal(err)
			}
			if got := pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['canary'::bytea], null, '1 hour', 'w', 'fake', '', false)`, id, claim); got != "sending" {
				rt.Fatal(got)
			}
			status, leased = "sending", true
		}
		settle := func(kind string) {
			db.Exec(t, pgtest.Worker, `select from deed.settle(array[$1::text::uuid], array[$2::bigint], array[$3::text], array['m-1'], array['canary said so'], array[null]::float8[], 'w')`, id, claim, kind)
			if status == "sending" && kind == "accepted" { // in doubt, too: nobody has taken it over
				status = "sent"
			}
			leased = false
		}
		event := func(said delivery.Said, seconds int) {
			e := delivery.StatusEvent{Said: said, ID: fmt.Sprintf("ev-%s-%d", said, seconds), Delivery: id, MessageID: "m-1", At: at(seconds), Reason: "canary bounced"}
			called := status != "queued" && status != "skipped"
			if got, err := l.Record(t.Context(), "fake", e); err != nil || (got.Matched == 1) != called || (got.Strange == 1) == called {
				rt.Fatalf("%s of what is %s: %+v, %v", said, status, got, err)
			}
			if !called {
				return
			}
			told = append(told, e)
			if was, ok := first[said]; !ok || at(seconds).Before(was) {
				first[said] = at(seconds)
			}
			if purpose, stops := map[delivery.Said]string{delivery.SaidBounced: "", delivery.SaidComplained: "*"}[said]; stops && !erased {
				stopped[purpose] = true
			}
			if status == "sending" {
				status, leased = "sent", false
			}
		}
		all := func() string {
			return pgtest.One[string](t, owner, `select c::text || coalesce(f::text, '') || coalesce((select string_agg(s::text, ' ' order by s.purpose) from deed.suppressions s where s.address = $2), '')
				from deed.channel_outbox c left join deed.delivery_feedback f on f.delivery_id = c.id where c.id = $1::text::uuid`, id, to)
		}
		again := func() {
			was := all()
			for i := len(told) - 1; i >= 0; i-- {
				if got, err := l.Record(t.Context(), "fake", told[i]); err != nil || got.Matched != 1 || got.Settled != 0 {
					rt.Fatalf("again: %+v, %v", got, err)
				}
			}
			if now := all(); now != was {
				rt.Fatalf("what was said before changed it\nfrom %s\nto   %s", was, now)
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
			case status == "queued":
				want, status = "skipped", "skipped"
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
			purposes := map[string]bool{}
			for _, purpose := range rowsOf(t, owner, `select s.purpose from deed.suppressions s where s.address = $1`, to) {
				purposes[purpose] = true
			}
			if !maps.Equal(purposes, stopped) {
				rt.Fatalf("suppressed for %v, want %v", purposes, stopped)
			}
			if string(e.Status) != status || erased != (e.ErasedAt != nil) || erased && strings.Contains(f.Reason+e.LastError+e.DoubtReason+string(e.Payload)+e.Recipient, "canary") {
				rt.Fatalf("%+v, %+v; want %s, erased %t", e, f, status, erased)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"call":     func(*rapid.T) { call() },
			"accepted": func(*rapid.T) { settle("accepted") },
			"unknown":  func(*rapid.T) { settle("unknown") },
			"again":    func(*rapid.T) { again() },
			"event": func(rt *rapid.T) {
				event(rapid.SampledFrom(kinds).Draw(rt, "said"), rapid.IntRange(1, 3).Draw(rt, "second"))
			},
			"erase": func(*rapid.T) { erase() },
			"":      func(*rapid.T) { check() },
		})
		// However it went on, it ends.
		call()
		settle("accepted")
		for _, said := range kinds {
			event(said, 1)
		}
		again()
		erase()
		again()
		check()
		if !erased || status == "sending" || status == "queued" {
			rt.Fatalf("it is %s in the end, erased %t", status, erased)
		}
	})
	if list := rowsOf(t, worker, `select invariant || ': ' || detail from deed.verify()`); len(list) > 0 {
		t.Errorf("deed.verify: %q", list)
	}
}
