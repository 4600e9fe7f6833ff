package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/resend"
	"github.com/deedhq/deed/provider/smtp"
)

// mails reserves n e-mails for the provider "fake".
func mails(t *testing.T, db *pgtest.DB, n int) {
	t.Helper()
	list := make([]delivery.Delivery, n)
	for i := range list {
		list[i] = email(fmt.Sprintf("%d@example.com", i))
		list[i].Payload = delivery.EmailPayload{From: "ann@example.com", Subject: "hello", Text: "hi"}.JSON()
	}
	reserve(t, db, list...)
}

// patient are options with the pauses and back-offs of every day.
func patient(p delivery.Provider) delivery.Options {
	opts := fast(p)
	opts.BaseRetry = 5 * time.Second
	return opts
}

// anHourDown has a provider fail for an hour, in which the database's rows are
// moved. Nothing has died then and nothing has lost an attempt, and every look
// says since when it is paused, until when, and why. rests says that nobody finds out
// within minutes whether it is over.
func anHourDown(t *testing.T, db *pgtest.DB, l *delivery.Ledger, n int, why string, rests bool) {
	t.Helper()
	owner := db.Pool(pgtest.Owner)
	var last time.Time // before the last probe
	for failures := 1; failures <= 13; failures++ {
		// On a busy machine the next one comes by itself before this one is seen.
		eventually(t, fmt.Sprintf("failure %d", failures), func() bool {
			return pgtest.One[int](t, owner, `select coalesce(max(failures), 0) from deed.pauses where destination = ''`) >= failures
		})
		db.Exec(t, pgtest.Owner, `update deed.pauses set since = since - interval '5 minutes'`)
		if failures < 13 {
			last = pgtest.One[time.Time](t, owner, `select clock_timestamp()`)
			db.Exec(t, pgtest.Owner, `update deed.pauses set until = clock_timestamp() where until > clock_timestamp()`)
		}
	}
	eventually(t, "all to wait with all their attempts, for one pause", func() bool {
		waiting := pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where status = 'queued' and attempts = 0`)
		pauses := pgtest.One[int](t, owner, `select count(*) from deed.pauses where since < clock_timestamp() - interval '1 hour' and until > clock_timestamp() and why <> ''`)
		return waiting == n && pauses == 1
	})
	states, err := l.Providers(context.Background())
	if err != nil || len(states) != 1 || len(states[0].Pauses) != 1 {
		t.Fatal(states, err)
	}
	if s, p := states[0], states[0].Pauses[0]; s.Queued != int64(n) || s.Due != int64(n) || s.Dead != 0 || s.Paused != 1 || time.Since(p.Since) < time.Hour ||
		p.Failures < 13 || !strings.Contains(p.Why, why) || p.Destination != "" {
		t.Errorf("the list of providers says %+v", s)
	}
	findings, err := doctor.Examine(context.Background(), db.Pool(pgtest.Admin), doctor.Options{})
	if err != nil || !slices.ContainsFunc(findings.Trouble(), func(f doctor.Finding) bool {
		return f.Name == "provider-paused" && f.Subject == "fake" && strings.Contains(f.Detail, why)
	}) {
		t.Errorf("doctor does not name the pause: %v", err)
	}
	// Of a quota at midnight, or in an hour where the day has just begun; else after minutes.
	within := `max(until) < clock_timestamp() + interval '5 minutes' and $1::timestamptz is not null`
	if rests {
		within = `max(until) > least(date_trunc('day', $1::timestamptz, 'UTC') + interval '24 hours', $1 + interval '59 minutes')`
	}
	if !pgtest.One[bool](t, owner, `select `+within+` from deed.pauses`, last) {
		t.Errorf("the next probe is at %s", pgtest.One[time.Time](t, owner, `select max(until) from deed.pauses`))
	}
}

// over has the provider found to be back, and everything sent.
func over(t *testing.T, db *pgtest.DB, l *delivery.Ledger, n int) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `update deed.pauses set until = clock_timestamp()`)
	drained(t, l)
	owner := db.Pool(pgtest.Owner)
	sent := pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where status = 'sent' and attempts = 1`)
	if left := pgtest.One[int](t, owner, `select count(*) from deed.pauses`); sent != n || left != 0 {
		t.Errorf("%d of %d were sent at their first attempt, %d pauses are left", sent, n, left)
	}
}

// A provider that cannot be connected to for an hour kills nothing, and all is
// sent when it is back.
func TestContract_D6_AProviderThatIsDownForAnHour(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	gate := providertest.NewGate(t)
	server := &catcher.SMTP{Mailbox: &catcher.Mailbox{}}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { _ = server.Serve(ctx, gate) }()
	gate.Down()
	p, err := smtp.New(smtp.Options{Address: gate.Addr().String(), Security: smtp.Plain})
	if err != nil {
		t.Fatal(err)
	}
	mails(t, db, 40)
	l, _ := run(t, db, patient(p))
	anHourDown(t, db, l, 40, "connection refused", false)
	gate.Up()
	over(t, db, l, 40)
}

// The same of an account that is over its quota.
func TestContract_D6_AnAccountOverItsQuota(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	gate := providertest.NewGate(t)
	api := &catcher.Resend{Mailbox: &catcher.Mailbox{}}
	api.Faults.Set(func(int) catcher.Fault { return catcher.OverQuota })
	server := &http.Server{Handler: api}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(gate) }()
	p, err := resend.New(resend.Options{APIKey: "re_x", Endpoint: "http://" + gate.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	mails(t, db, 40)
	opts := patient(p)
	o := opts.Providers["fake"]
	o.Concurrency = 4
	opts.Providers["fake"] = o
	l, _ := run(t, db, opts)
	anHourDown(t, db, l, 40, "daily_quota_exceeded", true)
	if n := api.Faults.Count(); n > 30 {
		t.Errorf("an account over its quota was called %d times", n)
	}
	api.Faults.Set(nil)
	over(t, db, l, 40)
}

// A server that greylists is asked again for hours, by each delivery on its
// own, and nothing is held up by it.
func TestContract_D6_AServerThatGreylists(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	gate := providertest.NewGate(t)
	server := &catcher.SMTP{Mailbox: &catcher.Mailbox{}}
	server.Faults.Set(func(int) catcher.Fault { return catcher.ForNow })
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { _ = server.Serve(ctx, gate) }()
	p, err := smtp.New(smtp.Options{Address: gate.Addr().String(), Security: smtp.Plain})
	if err != nil {
		t.Fatal(err)
	}
	const n = 10
	mails(t, db, n)
	l, _ := run(t, db, patient(p))
	for round := 1; round <= 12; round++ {
		eventually(t, fmt.Sprintf("refusal %d of all", round), func() bool {
			return pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where status = 'queued' and deferrals = $1 and attempts = 0`, round) == n
		})
		if round == 12 {
			break
		}
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp(), deferred_since = deferred_since - interval '1 hour'`)
	}
	least, most := 0.0, 0.0
	if err := owner.QueryRow(ctx, `select extract(epoch from min(process_after) - clock_timestamp())::float8, extract(epoch from max(process_after) - clock_timestamp())::float8
		from deed.channel_outbox`).Scan(&least, &most); err != nil {
		t.Fatal(err)
	}
	if least < 60 || most > 1800 {
		t.Errorf("after 12 refusals the next ones are in %.0f to %.0fs", least, most)
	}
	if paused := pgtest.One[int](t, owner, `select count(*) from deed.pauses`); paused != 0 {
		t.Errorf("%d pauses for what is about single messages", paused)
	}
	look := func() delivery.ProviderState {
		states, err := l.Providers(ctx)
		if err != nil || len(states) != 1 {
			t.Fatalf("%+v, %v", states, err)
		}
		return states[0]
	}
	if s := look(); s.Deferred != n || s.DeferredSince == nil || time.Since(*s.DeferredSince) < 11*time.Hour {
		t.Errorf("of %d that are put off a look says %d, since %v", n, s.Deferred, s.DeferredSince)
	}
	server.Faults.Set(nil)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp()`)
	drained(t, l)
	if s := look(); s.Deferred != 0 || s.DeferredSince != nil {
		t.Errorf("none is put off, and a look says %d, since %v", s.Deferred, s.DeferredSince)
	}
	if sent := pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where status = 'sent' and attempts = 1`); sent != n {
		t.Errorf("%d of %d were sent", sent, n)
	}
}

// hosts is a provider whose recipients' hosts are destinations of their own.
func hosts(send func(r delivery.Reservation) delivery.Outcome) *fake {
	f := newFake()
	f.caps.Lanes = delivery.LanePerHost
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		out := send(r)
		return out, out.Err() == nil
	}
	return f
}

// What is refused for now, or whose own host is down, is given up after a day;
// a provider's outage ends nothing, however long.
func TestContract_D6_GivenUpAfterADay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		out  delivery.Outcome
		own  bool
		dies bool
	}{
		"deferred":              {delivery.Deferred(errors.New("greylisted"), 0), false, true},
		"its host is down":      {delivery.Outage(errors.New("connection refused"), 0), true, true},
		"the provider is down":  {delivery.Outage(errors.New("connection refused"), 0), false, false},
		"deferred for too long": {delivery.Deferred(errors.New("greylisted"), 20*time.Hour), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			f := hosts(func(r delivery.Reservation) delivery.Outcome {
				if strings.HasSuffix(r.Recipient(), "@up.example") {
					return delivery.Accepted("m")
				}
				return c.out
			})
			if !c.own {
				f.caps.Lanes = delivery.LanePerDomain
			}
			list := []delivery.Delivery{email("a@down.example")}
			if c.own {
				list = append(list, email("a@up.example"))
			}
			made := reserve(t, db, list...)
			run(t, db, patient(f))
			calls := 0
			again := func(what string) { // once at least: on a busy machine a pause is over before it is seen
				t.Helper()
				eventually(t, what, func() bool {
					n := f.called(made[0].ID)
					return n > calls && entry(t, db, made[0].ID).Status == delivery.Queued
				})
				calls = f.called(made[0].ID)
			}
			again("a call")
			if c.own {
				until(t, db, made[1].ID, delivery.Sent)
			}
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set deferred_since = deferred_since - interval '23 hours', process_after = null where status in ('queued', 'sending')`)
			db.Exec(t, pgtest.Owner, `update deed.pauses set since = since - interval '23 hours', until = clock_timestamp()`)
			again("another")
			if e := entry(t, db, made[0].ID); e.ProcessAfter != nil && time.Until(*e.ProcessAfter) > 65*time.Minute {
				t.Errorf("it waits until %s, past the end", e.ProcessAfter)
			}
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set deferred_since = deferred_since - interval '2 hours', process_after = null where status in ('queued', 'sending')`)
			db.Exec(t, pgtest.Owner, `update deed.pauses set since = since - interval '2 hours', until = clock_timestamp()`)
			if !c.dies {
				again("a third")
				return
			}
			e := until(t, db, made[0].ID, delivery.Dead)
			if e.Attempts != 0 || !strings.HasPrefix(e.LastError, "given up after 24:00:00: ") {
				t.Errorf("%d attempts, %q", e.Attempts, e.LastError)
			}
		})
	}
}

// However many relays there are, one delivery at a time finds out whether a
// provider is back; all others wait.
func TestContract_D6_OneProbeAtATime(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var under, most atomic.Int32
	answer := make(chan delivery.Outcome)
	f := newFake()
	f.send = func(ctx context.Context, _ int, _ delivery.Reservation) (delivery.Outcome, bool) {
		if n := under.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer under.Add(-1)
		select {
		case out := <-answer:
			return out, out.Err() == nil
		case <-ctx.Done():
			return delivery.Outage(ctx.Err(), 0), false
		}
	}
	mails(t, db, 50)
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, since, until, why) values ('fake', clock_timestamp(), clock_timestamp(), 'it was down')`)
	for range 3 {
		run(t, db, patient(f))
	}
	for n := 2; n <= 4; n++ {
		answer <- delivery.Outage(errors.New("still down"), 0)
		eventually(t, "the failure to be recorded", func() bool {
			return pgtest.One[int](t, db.Pool(pgtest.Owner), `select failures from deed.pauses`) == n
		})
		db.Exec(t, pgtest.Owner, `update deed.pauses set until = clock_timestamp()`)
	}
	eventually(t, "a probe", func() bool { return under.Load() == 1 })
	if calls, n := len(f.all()), most.Load(); calls != 4 || n != 1 {
		t.Errorf("%d calls, %d at a time", calls, n)
	}
	close(answer) // a nil outcome is none: unknown
}

// Of many claims at once, when a pause is over, one has the probe.
func TestContract_D6_OneProbeOfManyClaims(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.NewPool(pgtest.Worker, 8)
	ledger(t, db, patient(newFake()))
	mails(t, db, 50)
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, since, until, why) values ('fake', clock_timestamp(), clock_timestamp(), 'it was down')`)
	for round := range 300 {
		var claimed atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				tag, err := worker.Exec(t.Context(), `select id from deed.claim_deliveries('fake', 'w', 10, '1 minute')`)
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				claimed.Add(int32(tag.RowsAffected()))
			})
		}
		wg.Wait()
		if n := claimed.Load(); n != 1 {
			t.Fatalf("round %d: %d were claimed to find out whether it is back", round, n)
		}
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claim = null, claimed_at = null, claimed_by = null, lease_until = null where claim is not null`)
	}
}

// A relay that has claimed a delivery when a pause begins does not call for it,
// and the delivery goes back as it was.
func TestContract_D6_EveryRelayObeysAPause(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	made := reserve(t, db, email("a@example.com"))
	worker := db.Pool(pgtest.Worker)
	claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'w', 10, '1 minute')`)
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, since, until, why) values ('fake', clock_timestamp(), clock_timestamp() + interval '1 hour', 'it is down')`)
	if status := pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, '1 minute', 'w')`, made[0].ID, claim); status != "queued" {
		t.Errorf("it may be called: %s", status)
	}
	if n := pgtest.One[int](t, worker, `select count(*) from deed.claim_deliveries('fake', 'w', 10, '1 minute')`); n != 0 {
		t.Errorf("%d were claimed in a pause", n)
	}
	db.Exec(t, pgtest.Owner, `delete from deed.pauses`)
	if n := pgtest.One[int](t, worker, `select count(*) from deed.claim_deliveries('fake', 'w', 10, '1 minute') where attempts = 0 and request is null`); n != 1 {
		t.Errorf("%d were claimed after it", n)
	}
}

// A provider of which nobody can tell what it does is left alone after a few
// calls: each leaves a delivery in doubt.
func TestContract_D6_UnknownOutcomesPause(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Unknown(errors.New("500")), true
	}
	mails(t, db, 50)
	opts := patient(f)
	o := opts.Providers["fake"]
	o.Concurrency = 2
	opts.Providers["fake"] = o
	run(t, db, opts)
	eventually(t, "a pause", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pauses where until > clock_timestamp()`) == 1
	})
	if n := len(f.all()); n > 20 {
		t.Errorf("%d calls", n)
	}
}

// What is kept of a pause names no addresses of the network, since it is told to those whose deliveries it ends.
func TestPause_NamesNoAddresses(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Outage(errors.New("dial tcp 10.96.0.10:443: lookup mx.internal on 10.96.0.11:53: no such host"), 0), false
	}
	mails(t, db, 1)
	run(t, db, patient(f))
	owner := db.Pool(pgtest.Owner)
	eventually(t, "a pause", func() bool { return pgtest.One[bool](t, owner, `select exists (select from deed.pauses)`) })
	if why := pgtest.One[string](t, owner, `select why from deed.pauses`); why == "" || strings.Contains(why, "10.96") {
		t.Errorf("it says why: %q", why)
	}
}

// What is in doubt since its key is another request's says of the provider that it is there: none of it is a reason for a pause.
func TestContract_D6_AKeyInUsePausesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake().withKey(time.Hour)
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "after@example.com" {
			return delivery.Accepted("m"), true
		}
		return delivery.KeyInUse(errors.New("409")), true
	}
	mails(t, db, 20)
	opts := patient(f)
	o := opts.Providers["fake"]
	o.Concurrency = 2
	opts.Providers["fake"] = o
	owner := db.Pool(pgtest.Owner)
	// A pause that is over ends, too: its probe has shown that the provider answers.
	db.Exec(t, pgtest.Owner, `
		insert into deed.pauses (provider, destination, tenant_id, since, until, why)
		values ('fake', '', '00000000-0000-0000-0000-000000000000', now() - interval '2 minutes', now() - interval '1 second', 'it was away')`)
	l, _ := run(t, db, opts)
	eventually(t, "the end of the pause", func() bool { return pgtest.One[bool](t, owner, `select not exists (select from deed.pauses)`) })
	pauses := func() int { return pgtest.One[int](t, owner, `select count(*) from deed.pauses`) }
	eventually(t, "all to be in doubt, or a pause", func() bool {
		return pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where status = 'sending' and doubt_since is not null`) == 20 || pauses() > 0
	})
	if n := pauses(); n != 0 {
		t.Fatalf("%d pauses", n)
	}
	after := reserve(t, db, email("after@example.com"))
	l.Wake()
	until(t, db, after[0].ID, delivery.Sent)
}

// What asks for longer than an hour is asked again after one.
func TestContract_D6_RetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Outage(errors.New("429"), 100*time.Hour), false
	}
	mails(t, db, 1)
	run(t, db, patient(f))
	var left float64
	eventually(t, "a pause", func() bool {
		left = pgtest.One[float64](t, db.Pool(pgtest.Owner), `select coalesce(max(extract(epoch from until - clock_timestamp())), 0)::float8 from deed.pauses`)
		return left > 0
	})
	if left < 3000 || left > 3600 {
		t.Errorf("the pause is %.0fs long", left)
	}
}

// From expires_at on nobody is called for a delivery; one that is in doubt then
// is not repeated.
func TestContract_D6_WhatHasExpiredIsSkipped(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake().withKey(time.Hour)
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Unknown(errCut), false
	}
	past, soon, doubt, never := email("past@example.com"), email("soon@example.com"), email("doubt@example.com"), email("never@example.com")
	past.ExpiresAt = time.Now().Add(-time.Minute)
	soon.ExpiresAt, doubt.ExpiresAt = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
	never.ProcessAfter, never.ExpiresAt = time.Now().Add(time.Hour), time.Now().Add(time.Minute)
	if _, err := delivery.Reserve(ctx, db.Pool(pgtest.App), never); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "expire before it is due") {
		t.Errorf("a delivery that is never due: %v", err)
	}
	made := reserve(t, db, past, soon)
	if made[0].Status != delivery.Skipped || made[1].Status != delivery.Queued {
		t.Errorf("%+v", made)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set expires_at = clock_timestamp() where id = $1::text::uuid`, made[1].ID)
	made = append(made, reserve(t, db, doubt)...)
	run(t, db, fast(f))
	for _, m := range made[:2] {
		if e := until(t, db, m.ID, delivery.Skipped); e.SkipReason != "expired" || f.called(m.ID) != 0 {
			t.Errorf("%d calls: %+v", f.called(m.ID), e)
		}
	}
	eventually(t, "some repeats", func() bool { return f.called(made[2].ID) > 2 })
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set expires_at = clock_timestamp() where id = $1::text::uuid`, made[2].ID)
	held(t, db, made[2].ID)
	calls := f.called(made[2].ID)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set held_at = null, process_after = null where id = $1::text::uuid`, made[2].ID)
	held(t, db, made[2].ID)
	if n := f.called(made[2].ID); n != calls {
		t.Errorf("repeated after it had expired: %d calls, then %d", calls, n)
	}
}

// An operator ends a pause, for a reason that is kept; what is not paused has
// none to end.
func TestProviders_Resume(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	l := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{})
	if _, err := l.Resume(ctx, "fake", "", audit.Act{By: "ann", Reason: "mended"}); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("nothing is paused: %v", err)
	}
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, since, until, why)
		select 'fake', d, clock_timestamp(), clock_timestamp() + interval '1 hour', 'down' from unnest('{"",a.example,b.example}'::text[]) d`)
	if _, err := l.Resume(ctx, "fake", "", audit.Act{By: "ann"}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("without a reason: %v", err)
	}
	for _, c := range []struct {
		destination string
		want        int64
	}{{"a.example", 1}, {"", 2}} {
		if n, err := l.Resume(ctx, "fake", c.destination, audit.Act{By: "ann", Reason: "mended"}); n != c.want || err != nil {
			t.Errorf("%q: %d, %v", c.destination, n, err)
		}
	}
	acts := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(actor || ' ' || action || ' ' || subject_id || ' ' || reason || ' ' || affected, ', ' order by n) from deed.audit_log where subject_type = 'provider'`)
	if acts != "ann resume fake mended 1, ann resume fake mended 2" {
		t.Errorf("the audit log says %q", acts)
	}
	mails(t, db, 1)
	relay, _ := run(t, db, patient(newFake()))
	drained(t, relay)
}

// A list shows no old error of what was sent; the delivery itself keeps it.
func TestLedger_NoOldErrorInAList(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(_ context.Context, n int, _ delivery.Reservation) (delivery.Outcome, bool) {
		if n == 1 {
			return delivery.NotNow(errors.New("busy"), 0), false
		}
		return delivery.Accepted("m"), true
	}
	made := reserve(t, db, email("a@example.com"))
	l, _ := run(t, db, fast(f))
	if e := until(t, db, made[0].ID, delivery.Sent); e.LastError != "busy" {
		t.Errorf("the delivery has forgotten: %q", e.LastError)
	}
	list, err := l.List(ctx, delivery.Filter{})
	if err != nil || len(list.Items) != 1 || list.Items[0].LastError != "" {
		t.Errorf("%+v, %v", list, err)
	}
}
