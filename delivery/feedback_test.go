package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// said are options whose provider accepts everything as m-ID, and cuts what goes to
// cut@example.com.
func said(f *fake) delivery.Options {
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "cut@example.com" {
			return delivery.Unknown(errCut), true
		}
		return delivery.Accepted("m-" + r.ID()), true
	}
	return fast(f)
}

// sent reserves deliveries and waits until they are sent.
func sent(t *testing.T, db *pgtest.DB, ds ...delivery.Delivery) (ids []string) {
	t.Helper()
	for _, r := range reserve(t, db, ds...) {
		until(t, db, r.ID, delivery.Sent)
		ids = append(ids, r.ID)
	}
	return ids
}

func record(t *testing.T, l *delivery.Ledger, events ...delivery.StatusEvent) delivery.Recorded {
	t.Helper()
	for i := range events {
		if events[i].ID == "" {
			events[i].ID = "ev"
		}
	}
	got, err := l.Record(context.Background(), "fake", events...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func feedback(t *testing.T, l *delivery.Ledger, id string) delivery.Feedback {
	t.Helper()
	f, err := l.Feedback(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func counts(r delivery.Recorded) string {
	return fmt.Sprintf("%d matched, %d waiting, %d strange, %d settled, %d ignored", r.Matched, r.Waiting, r.Strange, r.Settled, r.Ignored)
}

func at(seconds int) time.Time { return time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC) }

// Whatever order events come in, one at a time or together, once or often, the end is the
// same; and what was done stays as it is.
func TestContract_D13_FirstTimesInAnyOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	opts := said(newFake())
	o := opts.Providers["fake"]
	o.Engagement = true
	opts.Providers["fake"] = o
	l, _ := run(t, db, opts)
	events := []delivery.StatusEvent{
		{Said: delivery.SaidDelivered, At: at(5)},
		{Said: delivery.SaidDelivered, At: at(3)},
		{Said: delivery.SaidSoftBounced, At: at(9), Reason: "full", Code: "452"},
		{Said: delivery.SaidBounced, At: at(7), Reason: "gone", Code: "550"},
		{Said: delivery.SaidBounced, At: at(7), Reason: "away"},
		{Said: delivery.SaidDropped, At: at(8), Reason: "another"},
		{Said: delivery.SaidComplained, At: at(11)},
		{Said: delivery.SaidOpened, At: at(4)},
		{Said: delivery.SaidOpened, At: at(2)},
		{Said: delivery.SaidClicked, At: at(6)},
		{Said: delivery.SaidUnsubscribed, At: at(8)},
		{Said: delivery.SaidAccepted, At: at(1)},
	}
	var want delivery.Feedback
	for i := range 12 {
		id := sent(t, db, email(fmt.Sprintf("a%d@example.com", i)))[0]
		rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		list := append(append([]delivery.StatusEvent{}, events...), events[:rand.N(len(events))]...)
		for len(list) > 0 {
			n := 1 + rand.N(len(list))
			for j := range list[:n] {
				list[j].Delivery = id
			}
			if got := record(t, l, list[:n]...); got.Matched != int64(n) {
				t.Fatal(counts(got))
			}
			list = list[n:]
		}
		got := feedback(t, l, id)
		if want.DeliveredAt == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("another order, another end: %s", diff)
		}
		if e := entry(t, db, id); e.Status != delivery.Sent || e.ProviderMessageID != "m-"+id {
			t.Errorf("%+v", e)
		}
	}
	for what, c := range map[string]struct {
		got  *time.Time
		want int
	}{
		"delivered": {want.DeliveredAt, 3}, "bounced": {want.BouncedAt, 7}, "complained": {want.ComplainedAt, 11}, "unsubscribed": {want.UnsubscribedAt, 8}, "opened": {want.OpenedAt, 2}, "clicked": {want.ClickedAt, 6},
	} {
		if c.got == nil || !c.got.Equal(at(c.want)) {
			t.Errorf("%s at %v, want second %d", what, c.got, c.want)
		}
	}
	if want.Reason != "gone" || want.Code != "550" || want.AnsweredAt != nil || want.Bounce != delivery.HardBounce {
		t.Errorf("%+v", want)
	}
}

// Of several bounces the gravest is the one that stands, with its own time, code and reason,
// whichever came first; the first time of any stays.
func TestContract_D13_TheGravestBounceStands(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	soft := delivery.StatusEvent{Said: delivery.SaidSoftBounced, At: at(1), Code: "452", Reason: "full"}
	later := delivery.StatusEvent{Said: delivery.SaidSoftBounced, At: at(2), Code: "421", Reason: "busy"}
	dropped := delivery.StatusEvent{Said: delivery.SaidDropped, At: at(3), Reason: "no money"}
	hard := delivery.StatusEvent{Said: delivery.SaidBounced, At: at(4), Code: "550", Reason: "gone"}
	for i, c := range []struct {
		events []delivery.StatusEvent
		want   string
	}{
		{[]delivery.StatusEvent{soft}, "soft 1 452 full, first 1"},
		{[]delivery.StatusEvent{later, soft}, "soft 1 452 full, first 1"},
		{[]delivery.StatusEvent{soft, later}, "soft 1 452 full, first 1"},
		{[]delivery.StatusEvent{soft, dropped}, "dropped 3  no money, first 1"},
		{[]delivery.StatusEvent{dropped, later}, "dropped 3  no money, first 2"},
		{[]delivery.StatusEvent{soft, dropped, hard}, "hard 4 550 gone, first 1"},
		{[]delivery.StatusEvent{hard, soft, dropped}, "hard 4 550 gone, first 1"},
	} {
		ids := sent(t, db, email(fmt.Sprintf("a%d@example.com", i)), email(fmt.Sprintf("b%d@example.com", i)))
		together := make([]delivery.StatusEvent, len(c.events))
		for j, e := range c.events {
			e.Delivery = ids[0]
			record(t, l, e)
			together[j] = e
			together[j].Delivery = ids[1]
		}
		record(t, l, together...)
		for _, id := range ids {
			f := feedback(t, l, id)
			if got := fmt.Sprintf("%s %d %s %s, first %d", f.Bounce, f.BounceSince.UTC().Second(), f.Code, f.Reason, f.BouncedAt.UTC().Second()); got != c.want {
				t.Errorf("%d: %s, want %s", i, got, c.want)
			}
		}
	}
	// What was recorded before deed knew of kinds keeps its time, and learns its kind.
	id := sent(t, db, email("old@example.com"))[0]
	db.Exec(t, pgtest.Owner, `insert into deed.delivery_feedback (delivery_id, tenant_id, bounced_at, reason) select c.id, c.tenant_id, $2, 'old' from deed.channel_outbox c where c.id = $1::text::uuid`, id, at(1))
	if f := feedback(t, l, id); f.Bounce != "" || f.Reason != "old" {
		t.Errorf("%+v", f)
	}
	later.Delivery = id
	record(t, l, later)
	if f := feedback(t, l, id); f.Bounce != delivery.SoftBounce || f.Reason != "busy" || !f.BouncedAt.Equal(at(1)) {
		t.Errorf("%+v", f)
	}
}

// An event of a delivery in doubt settles it, and nobody is called again; one of what was
// put back, too. What has ended otherwise stays so.
func TestContract_D13_AnEventSettlesADoubt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	l, _ := run(t, db, said(f))
	made := reserve(t, db, email("cut@example.com"))
	eventually(t, "the delivery to be held", func() bool { return entry(t, db, made[0].ID).HeldAt != nil })
	got := record(t, l, delivery.StatusEvent{Said: delivery.SaidDelivered, Delivery: made[0].ID, MessageID: "m-1", At: at(1)})
	e := entry(t, db, made[0].ID)
	if counts(got) != "1 matched, 0 waiting, 0 strange, 1 settled, 0 ignored" || e.Status != delivery.Sent || e.DoubtSince != nil || e.ProviderMessageID != "m-1" || f.called(e.ID) != 1 {
		t.Errorf("%s; %+v", counts(got), e)
	}
	if again := record(t, l, delivery.StatusEvent{Said: delivery.SaidDelivered, Delivery: made[0].ID, MessageID: "m-1", At: at(1)}); again.Settled != 0 || again.Matched != 1 {
		t.Error(counts(again))
	}
	if list := rowsOf(t, db.Pool(pgtest.Worker), `select invariant || ': ' || detail from deed.verify()`); len(list) > 0 {
		t.Errorf("deed.verify: %q", list)
	}
}

// What a bounce, a complaint and an unsubscription stop, and no more than that; each
// names its event.
func TestContract_D11_WhatEventsSuppress(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	news := func(to string) delivery.Delivery {
		d := email(to)
		d.Purpose = "news"
		return d
	}
	ids := sent(t, db, email("Bounced@example.com"), news("complained@example.com"), news("unsubscribed@example.com"), email("left@example.com"), email("delivered@example.com"), email("opened@example.com"), email("dropped@example.com"))
	got := record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: ids[0], ID: "ev-1"}, delivery.StatusEvent{Said: delivery.SaidComplained, Delivery: ids[1], ID: "ev-2"},
		delivery.StatusEvent{Said: delivery.SaidUnsubscribed, Delivery: ids[2], ID: "ev-3"}, delivery.StatusEvent{Said: delivery.SaidUnsubscribed, Delivery: ids[3], ID: "ev-4"},
		delivery.StatusEvent{Said: delivery.SaidDelivered, Delivery: ids[4], ID: "ev-5"}, delivery.StatusEvent{Said: delivery.SaidOpened, Delivery: ids[5], ID: "ev-6"},
		delivery.StatusEvent{Said: delivery.SaidDropped, Delivery: ids[6], ID: "ev-7", Reason: "no money"})
	if counts(got) != "6 matched, 0 waiting, 0 strange, 0 settled, 1 ignored" {
		t.Error(counts(got))
	}
	want := []string{
		"bounced@example.com  bounced, says fake: event ev-1, delivery " + ids[0], "complained@example.com * complained, says fake: event ev-2, delivery " + ids[1],
		"left@example.com * unsubscribed, says fake: event ev-4, delivery " + ids[3], "unsubscribed@example.com news unsubscribed, says fake: event ev-3, delivery " + ids[2],
	}
	for i := range want {
		want[i] += " events of fake"
	}
	if diff := cmp.Diff(want, suppressed(t, db)); diff != "" {
		t.Error(diff)
	}
	if f := feedback(t, l, ids[6]); f.BouncedAt == nil || f.Reason != "no money" {
		t.Errorf("%+v", f)
	}
	if f := feedback(t, l, ids[5]); f.OpenedAt != nil {
		t.Errorf("nobody asked to watch who opens: %+v", f)
	}
}

// Who opens a message, or clicks in it, is suppressed for nothing, also where that is kept: with
// a purpose or without, often, together, and by whichever address.
func TestContract_D11_OpensAndClicksSuppressNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	opts := said(newFake())
	o := opts.Providers["fake"]
	o.Engagement = true
	opts.Providers["fake"] = o
	l, _ := run(t, db, opts)
	news := email("bob@example.com", "news")
	news.Purpose = "news"
	ids := sent(t, db, email("bob@example.com"), news)
	var events []delivery.StatusEvent
	for n := range 12 {
		for _, kind := range []delivery.Said{delivery.SaidOpened, delivery.SaidClicked} {
			e := delivery.StatusEvent{Said: kind, Delivery: ids[n%2], ID: fmt.Sprintf("ev-%s-%d", kind, n), At: at(n)}
			if n%3 == 0 {
				e.Address = "bob@example.com"
			}
			record(t, l, e)
			events = append(events, e)
		}
	}
	record(t, l, events...)
	if got := suppressed(t, db); len(got) != 0 {
		t.Errorf("suppressed: %q", got)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.soft_bounces`); n != 0 {
		t.Errorf("%d count as soft bounces", n)
	}
	if f := feedback(t, l, ids[1]); f.OpenedAt == nil || f.ClickedAt == nil {
		t.Errorf("nothing was kept: %+v", f)
	}
}

// An event that another provider, account or tenant's service sends, or that names what
// was never called, changes nothing.
func TestContract_D13_StrangeEventsChangeNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	l, stop := run(t, db, said(f))
	id := sent(t, db, email("a@example.com"))[0]
	stop()
	waits := reserve(t, db, email("b@example.com"))[0].ID // never called
	bounced := func(marker, message string) delivery.StatusEvent {
		return delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: marker, MessageID: message}
	}
	for _, e := range []delivery.StatusEvent{bounced(waits, ""), bounced("0190a2f0-0000-7000-8000-000000000000", "m-"+id), bounced("no id", "m-"+id), bounced("", "")} {
		if got := record(t, l, e); counts(got) != "0 matched, 0 waiting, 1 strange, 0 settled, 0 ignored" {
			t.Errorf("%+v: %s", e, counts(got))
		}
	}
	other := newFake()
	other.caps.Account = "another"
	others := said(newFake())
	p := others.Providers["fake"]
	p.Tenants = append(p.Tenants, tenants(t, db, 1)[0])
	others.Providers["fake"] = p
	named := said(newFake())
	named.Providers["other"] = named.Providers["fake"]
	for what, opts := range map[string]delivery.Options{"another account": said(other), "other tenants": others} {
		if got := record(t, ledger(t, db, opts), bounced(id, "")); got.Strange != 1 {
			t.Errorf("%s: %s", what, counts(got))
		}
	}
	if got, err := ledger(t, db, named).Record(t.Context(), "other", delivery.StatusEvent{Said: delivery.SaidBounced, ID: "ev", Delivery: id}); err != nil || got.Strange != 1 {
		t.Errorf("another provider: %s, %v", counts(got), err)
	}
	if got := suppressed(t, db); len(got) > 0 || feedback(t, l, id) != (delivery.Feedback{}) {
		t.Errorf("%q, %+v", got, feedback(t, l, id))
	}
	if _, err := l.Record(t.Context(), "nobody", bounced(id, "")); deed.CodeOf(err) != deed.NotFound {
		t.Error(err)
	}
	for _, bad := range []delivery.StatusEvent{{Said: "vanished", ID: "ev"}, {Said: delivery.SaidBounced}, {Said: delivery.SaidBounced, ID: strings.Repeat("x", 256)}, {Said: delivery.SaidBounced, ID: "a\x00"}, {Said: delivery.SaidBounced, ID: "a\x1b[2J"}, {Said: delivery.SaidBounced, ID: "a\u009b2J"}, {Said: delivery.SaidBounced, ID: "ev", MessageID: strings.Repeat("x", 501)}} {
		if _, err := l.Record(t.Context(), "fake", bad); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// An event that names its message alone is of the delivery that has it, also if that is
// recorded later; it waits for seven days, and suppresses for that delivery's tenant.
func TestRecord_EventsThatComeBeforeTheirMessage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, stop := run(t, db, said(newFake()))
	id := sent(t, db, email("a@example.com"))[0]
	stop() // it would look at events again, too
	late := delivery.StatusEvent{Said: delivery.SaidBounced, ID: "ev-1", MessageID: "m-later", Reason: "never kept"}
	for range 2 {
		if got := record(t, l, late, delivery.StatusEvent{Said: delivery.SaidDelivered, ID: "ev-2", MessageID: "m-" + id, At: at(1)}); counts(got) != "1 matched, 1 waiting, 0 strange, 0 settled, 0 ignored" {
			t.Error(counts(got))
		}
	}
	if f := feedback(t, l, id); f.DeliveredAt == nil {
		t.Errorf("%+v", f)
	}
	worker := db.Pool(pgtest.Worker)
	match := func() int { return pgtest.One[int](t, worker, `select deed.match_events(100, 'w')::int`) }
	if n := match(); n != 0 {
		t.Errorf("%d looked at again at once", n)
	}
	again := func() {
		db.Exec(t, pgtest.Owner, `update deed.unmatched_events set tried_at = tried_at - interval '1 minute'`)
		if n := match(); n != 1 {
			t.Errorf("%d looked at", n)
		}
	}
	again()
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set provider_message_id = 'm-later'`)
	again()
	if f := feedback(t, l, id); f.BouncedAt == nil || f.Reason != "" {
		t.Errorf("%+v", f)
	}
	if got := suppressed(t, db); len(got) != 1 || !strings.Contains(got[0], "event ev-1") {
		t.Errorf("%q", got)
	}
	record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, ID: "ev-3", MessageID: "m-never"})
	db.Exec(t, pgtest.Owner, `update deed.unmatched_events set received_at = received_at - interval '8 days'`)
	again()
	if n := pgtest.One[int](t, worker, `select count(*)::int from deed.unmatched_events`); n != 0 {
		t.Errorf("%d wait", n)
	}
}

// Of what comes elsewhere than in a request of its own, one event that can never be recorded is passed over, and a time
// that the database has not is none.
func TestEventsHandler_RecordPassesOverWhatItCannot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	id := sent(t, db, email("a@example.com"))[0]
	h := l.EventsHandler(nil)
	long := delivery.StatusEvent{Said: delivery.SaidDelivered, ID: strings.Repeat("x", 256), Delivery: id}
	if err := h.Record(t.Context(), "fake", long, delivery.StatusEvent{Said: delivery.SaidDelivered, ID: "ev-1", Delivery: id, At: time.Unix(1<<60, 0)}); err != nil {
		t.Fatal(err)
	}
	if f := feedback(t, l, id); f.DeliveredAt == nil || time.Until(*f.DeliveredAt) > 24*time.Hour {
		t.Errorf("%+v", f)
	}
	got := map[string]int64{}
	for _, c := range h.Counts() {
		got[c.Outcome] = c.N
	}
	if got["unreadable"] != 1 || got["matched"] != 1 {
		t.Errorf("%v", got)
	}
}

// Of an account that others send by, too, events of no delivery of ours wait by the hundred thousand: they are looked at
// the seldomer the older they are, or one round would not end before the next is due.
func TestRecord_EventsOfNobodyAreSeldomLookedAt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, stop := run(t, db, said(newFake()))
	stop() // it would look at events, too
	record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, ID: "ev-1", MessageID: "m-never"})
	worker := db.Pool(pgtest.Worker)
	match := func() int { return pgtest.One[int](t, worker, `select deed.match_events(100, 'w')::int`) }
	later := func(by string) {
		db.Exec(t, pgtest.Owner, `update deed.unmatched_events set tried_at = tried_at - $1::interval`, by)
	}
	db.Exec(t, pgtest.Owner, `update deed.unmatched_events set received_at = received_at - interval '3 days'`)
	later("1 minute")
	if n := match(); n != 1 {
		t.Errorf("%d looked at", n)
	}
	later("1 hour")
	if n := match(); n != 0 {
		t.Errorf("%d of three days looked at after an hour", n)
	}
	later("6 hours")
	if n := match(); n != 1 {
		t.Errorf("%d of three days looked at after seven hours", n)
	}
}

// Nothing that names who was erased is kept, of events before and after.
func TestContract_D12_EventsOfTheErased(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, stop := run(t, db, said(newFake()))
	id := sent(t, db, email("canary@example.com"))[0]
	soft := sent(t, db, email("canary@example.com", "soft"))[0]
	record(t, l, delivery.StatusEvent{Said: delivery.SaidSoftBounced, Delivery: soft, Reason: "canary@example.com is full", Code: "452"})
	copied := email("canary@example.com", "copied")
	copied.Payload = json.RawMessage(`{"subject":"hello","cc":["boss-canary@example.com"]}`)
	withCopy := sent(t, db, copied)[0]
	stop()
	db.Exec(t, pgtest.Owner, `select deed.erase_deliveries(array(select id from deed.channel_outbox), 'ann')`)
	// What is said of a copy is still nothing about the recipient, and of the recipient it is.
	record(t, l, delivery.StatusEvent{Said: delivery.SaidComplained, Delivery: withCopy, Address: "Boss-Canary@example.com"})
	if f := feedback(t, l, withCopy); f.ComplainedAt != nil {
		t.Errorf("what the copy's reader said counts as the recipient's: %+v", f)
	}
	record(t, l, delivery.StatusEvent{Said: delivery.SaidComplained, Delivery: withCopy, Address: "canary@example.com"})
	if f := feedback(t, l, withCopy); f.ComplainedAt == nil {
		t.Errorf("what the recipient said does not count: %+v", f)
	}
	record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: id, Reason: "canary@example.com is not here", Address: "canary@example.com"}, delivery.StatusEvent{Said: delivery.SaidBounced, ID: "ev-2", MessageID: "m-9", Reason: "canary@example.com"})
	if f := feedback(t, l, id); f.BouncedAt == nil || f.Reason != "" {
		t.Errorf("%+v", f)
	}
	if f := feedback(t, l, soft); f.BouncedAt == nil || f.Reason != "erased" || f.Code != "452" {
		t.Errorf("%+v", f)
	}
	for _, table := range []string{"channel_outbox", "delivery_feedback", "soft_bounces", "unmatched_events", "suppressions"} {
		if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.`+table+` r where r::text like '%canary%'`); n != 0 {
			t.Errorf("%s has the address in %d rows", table, n)
		}
	}
}

// Events of the same deliveries may come at once, in any order, and settle their doubts:
// nobody waits for somebody who waits for them.
func TestRecord_ManyAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Unknown(errCut), true
	}
	_, stop := run(t, db, fast(f))
	var ds []delivery.Delivery
	for i := range 30 {
		ds = append(ds, email(fmt.Sprintf("a%d@example.com", i%10), fmt.Sprint(i)))
	}
	made := reserve(t, db, ds...)
	for _, m := range made {
		eventually(t, "the delivery to be held", func() bool { return entry(t, db, m.ID).HeldAt != nil })
	}
	stop()
	opts := fast(f)
	l, err := delivery.New(t.Context(), db.NewPool(pgtest.Worker, 8), opts)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for worker := range 8 {
		running.Go(func() {
			var events []delivery.StatusEvent
			for _, m := range made {
				for i, what := range []delivery.Said{delivery.SaidBounced, delivery.SaidSoftBounced, delivery.SaidComplained, delivery.SaidDelivered} {
					events = append(events, delivery.StatusEvent{Said: what, ID: fmt.Sprintf("%s %d", m.ID, i), Delivery: m.ID, At: at(i)})
				}
			}
			rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			for len(events) > 0 {
				n := min(len(events), 1+rand.N(20))
				_, err := l.Record(context.Background(), "fake", events[:n]...)
				if errors.Is(err, delivery.ErrAgain) {
					continue // others had their deliveries for longer than a second: the service says them again
				}
				if err != nil {
					t.Errorf("worker %d: %v", worker, err)
				}
				events = events[n:]
			}
		})
	}
	running.Wait()
	for _, m := range made {
		if e := entry(t, db, m.ID); e.Status != delivery.Sent || feedback(t, l, m.ID).BouncedAt == nil {
			t.Errorf("%+v", e)
		}
	}
	if list := rowsOf(t, db.Pool(pgtest.Worker), `select invariant || ': ' || detail from deed.verify()`); len(list) > 0 {
		t.Errorf("deed.verify: %q", list)
	}
}

// An event costs the same among many deliveries, whether it names one or its message.
func TestPlan_AnEventReadsLittle(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, stop := run(t, db, said(newFake()))
	ids := sent(t, db, email("a@example.com"), email("b@example.com"))
	stop()
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox disable trigger user`) // no new one is sent
	db.Exec(t, pgtest.Owner, `
		insert into deed.channel_outbox (id, tenant_id, workspace_id, idempotency_key, status, channel, provider, lane, recipient, payload, guarantee, correlation_id,
			created_at, updated_at, finished_at, sent_at, first_called_at, called_at, request_kind, request_account, provider_message_id, attempts)
		select gen_random_uuid(), c.tenant_id, c.workspace_id, sha256(i::text::bytea), 'sent', c.channel, c.provider, c.lane, c.recipient, c.payload, c.guarantee, c.correlation_id,
			c.created_at, c.updated_at, c.finished_at, c.sent_at, c.first_called_at, c.called_at, c.request_kind, c.request_account, 'x-' || i, 1
		from deed.channel_outbox c, generate_series(1, 20000) i
		where c.id = $1::text::uuid`, ids[0])
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox enable trigger user`)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			db.Exec(t, pgtest.Owner, `analyze deed.channel_outbox`)
		}
		for what, c := range map[string]struct {
			marker, message string
			want            int
		}{"by its id": {ids[1], "", 1}, "by its message": {"", "m-" + ids[1], 1}, "by a message that nobody has": {"", "m-none", 0}} {
			err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.Worker), func(tx pgx.Tx) error {
				read := pgtest.RowsRead(t, tx)
				var matched int
				err := tx.QueryRow(t.Context(), `
					select matched from deed.record_events('fake', 'fake', '', null, '{bounced}', '{ev}', array[$1::text], array[$2::text], '{""}', '{null}', '{""}', '{""}', 'w')`,
					c.marker, c.message).Scan(&matched)
				if err != nil || matched != c.want {
					t.Errorf("%s: %d matched, %v", what, matched, err)
				}
				for table, n := range read() {
					if n > 20 {
						t.Errorf("%s, analyzed %t: %d rows of %s were read", what, analyzed, n, table)
					}
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
