package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// What a person has lifted stays so when the service says again what it said before; who leaves or complains once more is
// suppressed again, and so is who bounces once more by another delivery. Where the service's clock is ahead of the database's, or it says
// no time, what is said again is told by its id, which is a hash in the audit log where it has the address.
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
							if kind != "alone" {
								e.ID += " of " + address
							}
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
						if n := count(); n != 0 {
							t.Errorf("%s: what was said again has suppressed it", address)
						}
						once := map[bool]int{true: 0, false: 1}[said == delivery.SaidBounced] // a delivery bounces once
						record(t, l, event("first", 0), event("again", 0))
						if n, want := count(), map[bool]int{true: 0, false: once}[timed]; n != want {
							t.Errorf("%s, said with another id: %d suppressions, want %d", address, n, want)
						}
						lift(address)
						record(t, l, event("first", 0), event("again", 0))
						if n := count(); n != 0 {
							t.Errorf("%s: what was said again beside another has suppressed it", address)
						}
						if timed {
							// After it was lifted, by the service's clock.
							record(t, l, event("later", time.Since(begun)-time.Millisecond))
							if n := count(); n != once {
								t.Errorf("%s, said once more: %d suppressions, want %d", address, n, once)
							}
							lift(address)
						}
						ahead := func(name string) delivery.StatusEvent {
							e := event(name, 0)
							e.At = time.Now().Add(5 * time.Second)
							return e
						}
						record(t, l, ahead("first"))
						if n := count(); n != 0 {
							t.Errorf("%s: what was said again by a clock that is ahead has suppressed it", address)
						}
						record(t, l, ahead("ahead"))
						if n := count(); n != once {
							t.Errorf("%s, said once more by a clock that is ahead: %d suppressions, want %d", address, n, once)
						}
						lift(address)
						record(t, l, event("first", 0), ahead("ahead"))
						if n := count(); n != 0 {
							t.Errorf("%s: what was said again after that has suppressed it", address)
						}
					}
				})
			}
		}
	}
	// Who has left by the link of the mail, and come back, leaves once more by the service's.
	left := email("left@example.com", "left")
	left.Purpose = "news"
	id := sent(t, db, left)[0]
	if did := pgtest.One[string](t, db.Pool(pgtest.Worker), `select deed.unsubscribe($1, 'email', 'news')`, id); did != "now" {
		t.Fatalf("the link: %s", did)
	}
	lift("left@example.com")
	record(t, l, delivery.StatusEvent{Said: delivery.SaidUnsubscribed, ID: "left", Delivery: id, At: time.Now().Add(5 * time.Second)})
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.suppressions where address = 'left@example.com'`); n != 1 {
		t.Errorf("who left by the link, came back and left once more is not suppressed")
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
