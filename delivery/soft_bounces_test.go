package delivery_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// What was delayed and then delivered is no bounce in a row, whichever is heard first; what
// bounced after a delivery is, once, with the last time that was said.
func TestContract_D13_SoftBouncesAndDeliveriesInAnyOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	day := time.Now().Add(-24 * time.Hour).Truncate(time.Minute) // those of a week ago are forgotten
	soft := func(second int) delivery.StatusEvent {
		return delivery.StatusEvent{Said: delivery.SaidSoftBounced, At: day.Add(time.Duration(second) * time.Second)}
	}
	reached := delivery.StatusEvent{Said: delivery.SaidDelivered, At: day.Add(5 * time.Second)}
	for i, c := range []struct {
		events []delivery.StatusEvent
		want   string
	}{
		{[]delivery.StatusEvent{soft(1), reached}, ""},
		{[]delivery.StatusEvent{soft(1), soft(3), reached}, ""},
		{[]delivery.StatusEvent{soft(7), reached}, "7"},
		{[]delivery.StatusEvent{soft(1), soft(7), soft(9), reached}, "9"},
		// A mail that was passed on, and delivered there, too.
		{[]delivery.StatusEvent{reached, soft(7), {Said: delivery.SaidDelivered, At: day.Add(8 * time.Second)}}, ""},
		{[]delivery.StatusEvent{{Said: delivery.SaidDelivered, At: day.Add(8 * time.Second)}, reached, soft(7)}, ""},
		{[]delivery.StatusEvent{{Said: delivery.SaidDelivered, At: day.Add(6 * time.Second)}, reached, soft(7)}, "7"},
	} {
		orders := [][]delivery.StatusEvent{c.events, slices.Clone(c.events), slices.Clone(c.events)}
		slices.Reverse(orders[1])
		for k, events := range orders {
			to := fmt.Sprintf("s%d-%d@example.com", i, k)
			id := sent(t, db, email(to))[0]
			for j := range events {
				events[j].Delivery = id
				if k < 2 {
					record(t, l, events[j])
				}
			}
			if k == 2 {
				record(t, l, events...)
			}
			if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(extract(second from at at time zone 'UTC')::int::text, ' '), '') from deed.soft_bounces where address = $1`, to); got != c.want {
				t.Errorf("%d, order %d: soft bounces at %q, want %q", i, k, got, c.want)
			}
		}
	}
}

// Of an e-mail with copies each address has soft bounces of its own, and is reached by itself,
// in whatever order that is heard, singly or in one request.
func TestContract_D13_SoftBouncesOfCopiesInAnyOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	day := time.Now().Add(-24 * time.Hour).Truncate(time.Minute) // those of a week ago are forgotten
	orders := [][]int{{}}
	for i := range 5 {
		var more [][]int
		for _, order := range orders {
			for at := range len(order) + 1 {
				more = append(more, slices.Insert(slices.Clone(order), at, i))
			}
		}
		orders = more
	}
	var mails []delivery.Delivery
	for k := range orders {
		mails = append(mails, withCopies(fmt.Sprintf("bob%d@example.com", k), "news", fmt.Sprintf("cat%d@example.com", k), fmt.Sprintf("dan%d@example.com", k)))
	}
	ids := sent(t, db, mails...)
	for k, order := range orders {
		id, bob, cat, dan := ids[k], mails[k].Recipient, fmt.Sprintf("cat%d@example.com", k), fmt.Sprintf("dan%d@example.com", k)
		all := []delivery.StatusEvent{
			{Said: delivery.SaidSoftBounced, Delivery: id, Address: bob, ID: "1", At: day.Add(1 * time.Second)},
			{Said: delivery.SaidSoftBounced, Delivery: id, Address: cat, ID: "2", At: day.Add(2 * time.Second)},
			{Said: delivery.SaidDelivered, Delivery: id, Address: cat, ID: "3", At: day.Add(3 * time.Second)},
			{Said: delivery.SaidSoftBounced, Delivery: id, Address: dan, ID: "4", At: day.Add(4 * time.Second)},
			{Said: delivery.SaidSoftBounced, Delivery: id, Address: dan, ID: "5", At: day.Add(5 * time.Second)},
		}
		var events []delivery.StatusEvent
		for _, i := range order {
			events = append(events, all[i])
		}
		if k%4 == 0 {
			record(t, l, events...)
		} else {
			for _, e := range append(events, events[:2]...) { // two come again
				record(t, l, e)
			}
		}
		got := pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select string_agg(split_part(address, '@', 1) || extract(second from at at time zone 'UTC')::int, ' ' order by address)
			from deed.soft_bounces where delivery_id = $1::text::uuid and not reached`, id)
		if want := fmt.Sprintf("bob%d1 dan%d5", k, k); got != want {
			t.Errorf("in the order %v: %s, want %s", order, got, want)
		}
	}
}

// A copy that bounces five times in a row is suppressed, and nobody else.
func TestContract_D11_SoftBouncesOfACopy(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	for i := range 5 {
		id := sent(t, db, withCopies(fmt.Sprintf("bob%d@example.com", i), "news", "full@example.com", "well@example.com"))[0]
		for _, to := range []string{fmt.Sprintf("bob%d@example.com", i), "full@example.com", "well@example.com"} {
			record(t, l, delivery.StatusEvent{Said: delivery.SaidSoftBounced, Delivery: id, Address: to, ID: to + fmt.Sprint(i), At: time.Now().Add(-time.Minute)})
		}
		record(t, l, delivery.StatusEvent{Said: delivery.SaidDelivered, Delivery: id, Address: "well@example.com", ID: fmt.Sprint("d", i), At: time.Now().Add(-30 * time.Second)})
	}
	if got := suppressed(t, db); len(got) != 1 || !strings.HasPrefix(got[0], "full@example.com") {
		t.Errorf("suppressed: %q", got)
	}
}

// Of one request each delivery's soft bounce counts, as in requests of their own.
func TestContract_D11_SoftBouncesOfOneRequest(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	var events []delivery.StatusEvent
	for i := range 5 {
		id := sent(t, db, email("full@example.com", fmt.Sprint(i)))[0]
		events = append(events, delivery.StatusEvent{Said: delivery.SaidSoftBounced, Delivery: id, ID: fmt.Sprint("ev", i), At: time.Now().Add(-time.Duration(i) * time.Minute)})
	}
	record(t, l, events...)
	if got := suppressed(t, db); len(got) != 1 || !strings.HasPrefix(got[0], "full@example.com") {
		t.Errorf("suppressed: %q", got)
	}
}

// Five soft bounces in a row are as a hard one, for thirty days; a delivery between them
// begins anew, and so do seven days.
func TestContract_D11_SoftBouncesInARow(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	bounce := func(to, part string, ago time.Duration) {
		t.Helper()
		id := sent(t, db, email(to, part))[0]
		for range 2 { // a repeat is none more
			record(t, l, delivery.StatusEvent{Said: delivery.SaidSoftBounced, Delivery: id, ID: "ev" + part, At: time.Now().Add(-ago)})
		}
	}
	for i := range 4 {
		bounce("row@example.com", fmt.Sprint(i), time.Duration(10-i)*time.Minute)
		bounce("between@example.com", fmt.Sprint(i), time.Duration(10-i)*time.Minute)
		bounce("old@example.com", fmt.Sprint(i), 169*time.Hour)
	}
	record(t, l, delivery.StatusEvent{Said: delivery.SaidDelivered, Delivery: sent(t, db, email("between@example.com", "well"))[0], At: time.Now().Add(-time.Minute)})
	if got := suppressed(t, db); len(got) > 0 {
		t.Fatalf("after four: %q", got)
	}
	for _, to := range []string{"row@example.com", "between@example.com", "old@example.com"} {
		bounce(to, "fifth", 0)
	}
	got := suppressed(t, db)
	if len(got) != 1 || !strings.HasPrefix(got[0], "row@example.com  five soft bounces in a row, says fake: event evfifth, delivery ") {
		t.Errorf("suppressed: %q", got)
	}
	days := pgtest.One[float64](t, db.Pool(pgtest.Owner), `select extract(epoch from expires_at - now()) / 86400 from deed.suppressions`)
	if days < 29.9 || days > 30.1 {
		t.Errorf("for %g days", days)
	}
}

// Only who got it is suppressed: where an event names somebody else it is about the recipient, and of an
// e-mail with copies about nobody knows whom.
func TestContract_D11_AnEventThatNamesAStranger(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	const stranger = "Stranger@example.org"
	var copied []string
	for i := range 5 {
		with := withCopies("eve@example.com", "news", "copy@example.com")
		with.Key = delivery.NewKey("copied", fmt.Sprint(i))
		copied = append(copied, sent(t, db, with)[0])
		for _, id := range []string{sent(t, db, email("full@example.com", fmt.Sprint(i)))[0], copied[i]} {
			record(t, l, delivery.StatusEvent{Said: delivery.SaidSoftBounced, Delivery: id, Address: stranger, ID: fmt.Sprint("soft", i), At: time.Now().Add(-time.Minute)})
		}
	}
	gone, unhappy := sent(t, db, email("gone@example.com"))[0], sent(t, db, email("unhappy@example.com"))[0]
	record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: gone, Address: stranger, ID: "hard-stranger@example.org"},
		delivery.StatusEvent{Said: delivery.SaidComplained, Delivery: unhappy, Address: stranger, ID: "complaint"},
		delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: copied[0], Address: stranger, ID: "hard-of-copies"},
		delivery.StatusEvent{Said: delivery.SaidComplained, Delivery: copied[1], Address: stranger, ID: "complaint-of-copies"})
	want := []string{"full@example.com  five soft bounces", "gone@example.com  bounced, says fake: event sha256:", "unhappy@example.com * complained, says fake: event complaint,"}
	if got := suppressed(t, db); !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("suppressed: %q", got)
	}
	if f := feedback(t, l, gone); f.BouncedAt == nil || f.Bounce != delivery.HardBounce {
		t.Errorf("%+v", f)
	}
}

// returned are mails that say each what they are told to.
type returned struct{ delivery.StatusEvent }

func (returned) TakesMail(string) bool { return true }

func (r returned) ReadMail(string, []byte) (delivery.Told, error) {
	return delivery.Told{Events: []delivery.StatusEvent{r.StatusEvent}}, nil
}

// All who get an e-mail with copies see where it comes back to, and may write there of each
// other: that stops mail to somebody only when five deliveries say it, and then for a while.
func TestContract_D13_WhoGotACopyStopsNoMailToOthers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	take := func(id, address string) {
		t.Helper()
		b := l.Bounces(map[string]delivery.MailReader{"fake": returned{delivery.StatusEvent{Said: delivery.SaidBounced, ID: "ev", Delivery: id, Address: address, Code: "5.1.1"}}})
		if got, err := b.Take(t.Context(), "to", nil); err != nil || got.Matched != 1 {
			t.Fatal(got, err)
		}
	}
	suppressed := func() []string {
		t.Helper()
		return rowsOf(t, db.Pool(pgtest.Owner), `select address || case when expires_at is null then '' else ' for a while' end from deed.suppressions order by address`)
	}
	for i := range 5 {
		if got := suppressed(); len(got) > 0 {
			t.Errorf("after %d: %q", i, got)
		}
		d := withCopies("bob@example.com", "news", "copy@example.com")
		d.Key = delivery.NewKey("copied", fmt.Sprint(i))
		id := sent(t, db, d)[0]
		for range 2 {
			for _, address := range []string{"Bob@example.com", "copy@example.com", "eve@example.com", ""} {
				take(id, address)
			}
		}
		if got := feedback(t, l, id); got.Bounce != delivery.SoftBounce || got.Code != "5.1.1" {
			t.Errorf("%+v", got)
		}
	}
	take(sent(t, db, email("alone@example.com"))[0], "")
	if got := suppressed(); !slices.Equal(got, []string{"alone@example.com", "bob@example.com for a while", "copy@example.com for a while"}) {
		t.Errorf("suppressed: %q", got)
	}
}
