package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// A quota that is used up rests the provider until it is renewed, by the database's
// clock: nothing is counted, nobody is asked before, others are not slowed, and who looks
// sees until when and why. An operator may end it.
func TestContract_D6_AQuotaRestsTheProvider(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	left := make(chan struct{}, 1000) // what may be sent
	f, other := newFake(), newFake()
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		select {
		case <-left:
			return delivery.Accepted("m"), true
		default:
			return delivery.Quota(errors.New("daily_quota_exceeded"), delivery.NextDay()), false
		}
	}
	for range 10 {
		left <- struct{}{}
	}
	opts := fast(f)
	// As many calls as that may begin, once more each time that the pause is not known after a quarter of a second.
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Concurrency: 4}
	opts.Providers["other"] = delivery.ProviderOptions{Provider: other}
	l, _ := run(t, db, opts)
	registered(t, db, opts)
	var list []delivery.Delivery
	for i := range 50 {
		list = append(list, email(fmt.Sprintf("%d@example.org", i)))
	}
	made := reserve(t, db, list...)
	pauses := func() []delivery.Pause {
		states, err := l.Providers(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range states {
			if s.Name == "fake" {
				return s.Pauses
			}
		}
		return nil
	}
	eventually(t, "the pause", func() bool { return len(pauses()) == 1 })
	p := pauses()[0]
	since := p.Since.UTC()
	midnight := since.Truncate(24 * time.Hour).Add(24 * time.Hour)
	if p.Destination != "" || !strings.Contains(p.Why, "daily_quota_exceeded") || (since.Hour() > 0 && (p.Until.Before(midnight) || p.Until.After(midnight.Add(6*time.Minute)))) {
		t.Errorf("paused until %s: %+v", p.Until, p)
	}
	for i := range list {
		list[i].Provider, list[i].Key = "other", delivery.NewKey("other", fmt.Sprint(i))
	}
	reserve(t, db, list...)
	eventually(t, "the other provider's", func() bool { // today
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where provider = 'other' and status = 'sent'`) == 50
	})
	eventually(t, "those without quota, queued without an attempt", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where provider = 'fake' and status = 'queued' and attempts = 0`) == 40
	})
	calls := len(f.all())
	if calls > 10+16 {
		t.Errorf("%d calls for a quota of 10", calls)
	}
	// What is renewed is used when it is.
	for range 100 {
		left <- struct{}{}
	}
	if len(f.all()) != calls {
		t.Error("somebody was called meanwhile")
	}
	operator := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{})
	if n, err := operator.Resume(ctx, "fake", "", audit.Act{By: "ann", Reason: "bought more"}); n != 1 || err != nil {
		t.Fatalf("resumed %d, %v", n, err)
	}
	for _, m := range made {
		until(t, db, m.ID, delivery.Sent)
	}
}

// Until when a quota rests a provider, whatever the hour is, and that an outage meanwhile
// makes it no shorter.
func TestPause_UntilAQuotaIsRenewed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	registered(t, db, fast(newFake()))
	made := reserve(t, db, email("a@example.org"), email("b@example.org"))
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claim = 1`)
	worker := db.Pool(pgtest.Worker)
	pause := func(id, after, quota string) {
		t.Helper()
		pgtest.One[int](t, worker, `select count(*) from deed.pause('fake', array[$1::text::uuid], '{1}', '{""}', array['why ' || $3::text], array[$2::text::float8], '{true}', p_until => array[nullif($3::text, '')])`, id, after, quota)
	}
	left := func(what string) bool {
		t.Helper()
		return pgtest.One[bool](t, worker, `select `+what+` from (select p.*, until - clock_timestamp() as left, date_trunc('day', p.since, 'UTC') as today,
			(date_trunc('month', p.since, 'UTC') at time zone 'UTC' + interval '1 month') at time zone 'UTC' as next_month from deed.pauses p where provider = 'fake' and destination = '') p`)
	}
	pause(made[0].ID, "1", "")
	if !left(`"left" < interval '2 seconds' and why = 'why '`) {
		t.Error("a plain outage rests for other than a second")
	}
	pause(made[1].ID, "1", "7200")
	if !left(`"left" between interval '119 minutes' and interval '121 minutes' and why = 'why 7200' and failures = 1`) {
		t.Error("a quota for two hours does not come before a second's outage")
	}
	pause(made[0].ID, "30", "")
	if !left(`"left" > interval '119 minutes'`) {
		t.Error("an outage ends a quota's rest")
	}
	pause(made[1].ID, "0", "month")
	if !left(`until between next_month and next_month + interval '6 minutes' or "left" between interval '59 minutes' and interval '121 minutes'`) {
		t.Error("a month's quota rests for something else")
	}
	db.Exec(t, pgtest.Owner, `delete from deed.pauses`)
	pause(made[1].ID, "0", "day")
	if !left(`until between today + interval '24 hours' and today + interval '24 hours 6 minutes' or ("left" between interval '59 minutes' and interval '61 minutes' and since < today + interval '1 hour')`) {
		t.Error("a day's quota rests for something else")
	}
	db.Exec(t, pgtest.Owner, `delete from deed.pauses`)
	pause(made[1].ID, "0", "99999999")
	if !left(`"left" between interval '31 days' and interval '33 days'`) {
		t.Error("more than 32 days are obeyed")
	}
	// Who had the delivery before, and comes back now, does not know how the provider is.
	db.Exec(t, pgtest.Owner, `delete from deed.pauses`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claim = 2`)
	pause(made[0].ID, "1", "")
	pause(made[1].ID, "0", "day")
	if n := pgtest.One[int](t, worker, `select count(*) from deed.pauses`); n != 0 {
		t.Errorf("%d pauses on the word of those who have lost their claims", n)
	}
}

// An adapter's own schedule holds where nobody says otherwise.
func TestContract_D6_TheAdaptersSchedule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		caps, given time.Duration
		dies        bool
	}{
		"the adapter's":     {time.Minute, 0, true},
		"the provider's":    {time.Minute, 24 * time.Hour, false},
		"neither's":         {0, 0, false},
		"the provider's, 2": {24 * time.Hour, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			f := newFake()
			f.caps.GiveUpAfter, f.caps.Defer = c.caps, time.Hour
			f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
				return delivery.Deferred(errors.New("not now"), 0), false
			}
			opts := fast(f)
			opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, GiveUpAfter: c.given}
			registered(t, db, opts)
			made := reserve(t, db, email("a@example.org"))
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set deferrals = 1, deferred_since = now() - interval '1 hour'`)
			run(t, db, opts)
			if c.dies {
				until(t, db, made[0].ID, delivery.Dead)
				return
			}
			eventually(t, "the schedule", func() bool {
				return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select deferrals = 2 and process_after between now() + interval '14 minutes' and now() + interval '31 minutes' from deed.channel_outbox`)
			})
		})
	}
}
