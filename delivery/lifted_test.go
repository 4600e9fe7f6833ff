package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// What a person has lifted stays so when the service says again what it said before, with another id and without a
// time of its own, too; who leaves or complains once more is suppressed again, and so is who bounces once more.
func TestContract_D11_WhatWasLiftedStaysLifted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	begun := time.Now().Add(-time.Hour)
	lift := func(to string) {
		t.Helper()
		for _, purpose := range []string{"", "*", "news"} {
			pgtest.One[int](t, db.Pool(pgtest.App), `select deed.unsuppress('email', array[$1], 'they are back', p_purpose => $2)::int`, to, purpose)
		}
	}
	for kind, mail := range map[string]func(string) delivery.Delivery{
		"alone": func(to string) delivery.Delivery {
			d := email(to, "lifted")
			d.Purpose = "news"
			return d
		},
		"with copies": func(to string) delivery.Delivery { return withCopies(to, "news", "copy-"+to) },
	} {
		for _, said := range []delivery.Said{delivery.SaidBounced, delivery.SaidComplained, delivery.SaidUnsubscribed} {
			for _, timed := range []bool{true, false} {
				t.Run(fmt.Sprint(kind, " ", said, " ", timed), func(t *testing.T) {
					to := fmt.Sprintf("%s-%s-%t@example.com", strings.Fields(kind)[0], said, timed)
					id := sent(t, db, mail(to))[0]
					whom := []string{to}
					if kind != "alone" {
						whom = append(whom, "copy-"+to)
					}
					for _, address := range whom {
						event := func(name string, after time.Duration) delivery.StatusEvent {
							e := delivery.StatusEvent{Said: said, ID: name, Delivery: id, Address: address}
							if timed {
								e.At = begun.Add(after)
							}
							return e
						}
						count := func() int {
							return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.suppressions where address = $1`, address)
						}
						record(t, l, event("first", 0))
						if n := count(); n != 1 {
							t.Fatalf("%s: %d suppressions", address, n)
						}
						lift(address)
						record(t, l, event("first", 0))
						record(t, l, event("first", 0), event("again", 0))
						if n := count(); n != 0 {
							t.Errorf("%s: what was said again has suppressed it", address)
						}
						if timed {
							// After it was lifted, by the service's clock.
							record(t, l, event("later", time.Since(begun)-time.Millisecond))
							if n, want := count(), map[bool]int{true: 0, false: 1}[said == delivery.SaidBounced]; n != want {
								t.Errorf("%s, said once more: %d suppressions, want %d", address, n, want)
							}
							lift(address)
						}
					}
				})
			}
		}
	}
	// Another delivery's bounce is news, beside what is none.
	ids := sent(t, db, email("full@example.com", "1"), email("full@example.com", "2"))
	first := delivery.StatusEvent{Said: delivery.SaidBounced, ID: "1", Delivery: ids[0], At: begun}
	record(t, l, first)
	lift("full@example.com")
	record(t, l, first, delivery.StatusEvent{Said: delivery.SaidBounced, ID: "2", Delivery: ids[1], At: begun.Add(time.Minute)})
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.suppressions where address = 'full@example.com'`); n != 1 {
		t.Errorf("who bounced once more is not suppressed")
	}
}
