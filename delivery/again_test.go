package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// retried puts a delivery back, as a person does.
func retried(t *testing.T, db *pgtest.DB, id string) {
	t.Helper()
	if n := pgtest.One[int64](t, db.Pool(pgtest.Admin), `select deed.retry_deliveries(array[$1::text::uuid], 'mended', 'me')`, id); n != 1 {
		t.Fatalf("%d were put back", n)
	}
}

// A delivery that is dead with its last call in doubt, and is put back and
// refused, has not certainly failed: the call before may have been accepted.
func TestContract_D5_ARefusalAfterARetryIsNoProof(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(_ context.Context, n int, _ delivery.Reservation) (delivery.Outcome, bool) {
		if n == 1 {
			return delivery.Unknown(errors.New("cut")), true
		}
		return delivery.Refused(errors.New("550 no such user")), false
	}
	d := email("a@example.com")
	d.Guarantee, d.MaxAttempts = delivery.AtLeastOnce, 1
	made := reserve(t, db, d)
	run(t, db, fast(f))
	if e := until(t, db, made[0].ID, delivery.Dead); e.UnsettledSince == nil {
		t.Errorf("in doubt, and dead: %+v", e)
	}
	retried(t, db, made[0].ID)
	eventually(t, "the second call", func() bool { return f.called(made[0].ID) == 2 })
	eventually(t, "its end", func() bool { return entry(t, db, made[0].ID).FinishedAt != nil })
	if e := entry(t, db, made[0].ID); e.Status != delivery.Dead || !strings.Contains(e.LastError, "may have been accepted") || !strings.Contains(e.LastError, "550") {
		t.Errorf("accepted, and then refused: %+v", e)
	}
}

// What is skipped or given up while an earlier call may have been accepted says
// so: nobody shall take it for unsent.
func TestContract_D5_WhatIsSkippedSaysThatItIsInDoubt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	f.caps.Lanes = delivery.LanePerHost
	f.send = cutOnce
	made := reserve(t, db, email("suppressed@a.example"), email("expired@a.example"), email("away@b.example"))
	_, stop := run(t, db, fast(f))
	for _, m := range made {
		held(t, db, m.ID)
	}
	stop()
	made = append(made, reserve(t, db, email("clear@a.example"))...)
	if _, err := delivery.Suppress(ctx, db.Pool(pgtest.App), nil, delivery.Coverage{Channel: delivery.Email}, []string{"suppressed@a.example", "clear@a.example"}, audit.Act{By: "me", Reason: strings.Repeat("x", 200)}); err != nil {
		t.Fatal(err)
	}
	for _, m := range made[:3] {
		pgtest.One[string](t, db.Pool(pgtest.Admin), `select deed.settle_delivery($1::text::uuid, 'send_again', 'rather twice', 'me')`, m.ID)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set expires_at = clock_timestamp() where recipient = 'expired@a.example'`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() - interval '25 hours' where recipient = 'away@b.example'`)
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, since, until, why) values
		('fake', 'b.example', clock_timestamp() - interval '25 hours', clock_timestamp() + interval '1 hour', 'connection refused')`)
	run(t, db, fast(f))
	const doubt = "an earlier call may have been accepted"
	for i, want := range []string{"suppressed: xxx", "expired"} {
		if e := until(t, db, made[i].ID, delivery.Skipped); !strings.HasPrefix(e.SkipReason, want) || !strings.HasSuffix(e.SkipReason, doubt) {
			t.Errorf("%q", e.SkipReason)
		}
	}
	if e := until(t, db, made[2].ID, delivery.Dead); !strings.HasPrefix(e.LastError, "given up") || !strings.HasSuffix(e.LastError, doubt) {
		t.Errorf("%q", e.LastError)
	}
	if e := until(t, db, made[3].ID, delivery.Skipped); strings.Contains(e.SkipReason, doubt) {
		t.Errorf("never called: %q", e.SkipReason)
	}
}

// What a person puts back is tried for as long as what is new, also while its
// destination has been away for longer than that.
func TestContract_D6_ARetryIsTriedAsLongAsANewOne(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := hosts(func(delivery.Reservation) delivery.Outcome {
		return delivery.Outage(errors.New("connection refused"), 0)
	})
	made := reserve(t, db, email("a@example.com"), email("b@example.com"))
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set created_at = created_at - interval '26 hours' where id = $1::text::uuid`, made[0].ID)
	away(t, db)
	_, stop := run(t, db, patient(f))
	until(t, db, made[0].ID, delivery.Dead)
	stop()
	retried(t, db, made[0].ID)
	if n, e := givenUp(t, db), entry(t, db, made[0].ID); n != 0 || e.Status != delivery.Queued {
		t.Errorf("given up at once: %d, %+v", n, e)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = process_after - interval '25 hours' where id = $1::text::uuid`, made[0].ID)
	if n := givenUp(t, db); n != 1 {
		t.Errorf("%d given up after a day", n)
	}
}

// What was called and goes out again after a doubt is tried for as long as what is
// new, however long ago it was reserved, while its destination is away.
func TestContract_D6_WhatIsCalledAgainIsNotGivenUpAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ looked, sandbox bool }{
		"by its guarantee": {}, "not found": {looked: true}, "from the sandbox": {sandbox: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			worker := db.Pool(pgtest.Worker)
			d := email("a@example.com")
			d.Guarantee = delivery.AtLeastOnce
			id := reserve(t, db, d)[0].ID
			db.Exec(t, pgtest.Owner, `update deed.providers set sandbox = $1`, c.sandbox)
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lane = 'example.com', created_at = created_at - interval '26 hours'`)
			claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'gone', 1, '1 minute')`)
			if got := pgtest.One[string](t, worker, `
				select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, '1 minute', 'gone', 'fake', '', $3)`, id, claim, c.sandbox); got != "sending" {
				t.Fatal(got)
			}
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp()`)
			away(t, db)
			db.Exec(t, pgtest.Worker, `select from deed.claim_doubts('fake', 'w', 10, '1 minute', false, $1)`, c.looked)
			if c.looked {
				db.Exec(t, pgtest.Worker, `
					select from deed.channel_outbox c
					cross join lateral deed.settle(array[c.id], array[c.claim], '{undecided}', '{null}', '{"not there"}', '{null}', 'w') s`)
			}
			if n, e := givenUp(t, db), entry(t, db, id); n != 0 || e.Status != delivery.Queued {
				t.Errorf("given up at once: %d, %+v", n, e)
			}
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = process_after - interval '25 hours'`)
			if n := givenUp(t, db); n != 1 {
				t.Errorf("%d given up after a day", n)
			}
		})
	}
}

// What is called again by its guarantee waits as after a known failure, by the ledger's own
// pauses, and never past its end.
func TestContract_D5_ACallAgainWaits(t *testing.T) {
	t.Parallel()
	for name, looked := range map[string]bool{"by its guarantee": false, "not found": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			owner := db.Pool(pgtest.Owner)
			f := answers(delivery.Unknown(errCut))
			opts := fast(f)
			if looked {
				opts = fast(&lookUp{f, false})
			}
			opts.BaseRetry = 10 * time.Minute
			d, ends := email("a@example.com"), email("ends@example.com")
			d.Guarantee, ends.Guarantee = delivery.AtLeastOnce, delivery.AtLeastOnce
			ends.ExpiresAt = time.Now().Add(4 * time.Minute)
			made := reserve(t, db, d, ends)
			run(t, db, opts)
			for n := 1; n <= 3; n++ {
				eventually(t, "the call to be put off, or the end", func() bool {
					return pgtest.One[bool](t, owner, `select finished_at is not null or (status = 'queued' and attempts = $2 and process_after > clock_timestamp())
						from deed.channel_outbox where id = $1::text::uuid`, made[0].ID, n)
				})
				if e := entry(t, db, made[0].ID); e.Status != delivery.Queued || f.called(e.ID) != n {
					t.Fatalf("called %d times: %s, %q", f.called(e.ID), e.Status, e.LastError)
				}
				pause := time.Duration(pgtest.One[float64](t, owner, `select extract(epoch from process_after - updated_at)::float8 from deed.channel_outbox where id = $1::text::uuid`, made[0].ID) * float64(time.Second))
				if most := 10 * time.Minute << (n - 1); pause < most/2 || pause > most {
					t.Errorf("after call %d it waits for %s", n, pause)
				}
				if n < 3 { // the provider rests after five in a row of which nobody knows
					db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() where id = $1::text::uuid`, made[0].ID)
				}
			}
			eventually(t, "the call of what ends to be put off, or its end", func() bool {
				return pgtest.One[bool](t, owner, `select finished_at is not null or (status = 'queued' and process_after = expires_at) from deed.channel_outbox where id = $1::text::uuid`, made[1].ID)
			})
			if e := entry(t, db, made[1].ID); e.Status != delivery.Queued || f.called(e.ID) != 1 {
				t.Errorf("what ends was called %d times: %s, %q", f.called(e.ID), e.Status, e.LastError)
			}
		})
	}
}

// What a person sends again is tried for as long as what is new: that it was refused for
// now for a day before has it neither held at the next such answer, nor given up before that.
func TestContract_D6_WhatIsSentAgainIsTriedAsLongAsANewOne(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	id := reserve(t, db, email("a@example.com"))[0].ID
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lane = 'example.com'`)
	call := func(kind, want string) {
		t.Helper()
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where process_after > clock_timestamp()`)
		claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'w', 1, '1 minute')`)
		pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, '1 minute', 'w')`, id, claim)
		if got := pgtest.One[string](t, worker, `
			select status || case when held then ', held' else '' end
			from deed.settle(array[$1::text::uuid], array[$2::bigint], array[$3], '{null}', '{busy}', '{null}', 'w')`, id, claim, kind); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
	call("deferred", "queued")
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set deferred_since = deferred_since - interval '25 hours'`)
	call("unknown", "sending")
	db.Exec(t, pgtest.Worker, `select deed.claim_doubts('fake', 'w', 10, '1 minute', false, false)`)
	pgtest.One[string](t, db.Pool(pgtest.Admin), `select deed.settle_delivery($1::text::uuid, 'send_again', 'rather twice', 'me')`, id)
	away(t, db)
	if n := givenUp(t, db); n != 0 {
		t.Fatalf("%d given up without a call", n)
	}
	db.Exec(t, pgtest.Owner, `delete from deed.pauses`)
	call("deferred", "queued")
}

// away has nobody reach example.com for more than a day.
func away(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, since, until, why) values
		('fake', 'example.com', clock_timestamp() - interval '25 hours', clock_timestamp() + interval '4 minutes', 'connection refused')`)
}

// givenUp gives up what its destination was away for, for a day.
func givenUp(t *testing.T, db *pgtest.DB) int {
	t.Helper()
	return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.give_up_deliveries('fake', interval '24 hours', 100, 'w')`)
}

// What is refused for now is tried for give_up_after of its own: the time in
// which nobody could be called, as its provider was away, does not count.
func TestContract_D6_AnOutageTakesNothingOfGiveUpAfter(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	f := newFake()
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Deferred(errors.New("451 greylisted"), 0), false
	}
	made := reserve(t, db, email("a@example.com"))
	run(t, db, patient(f))
	deferred := func(n int) func() bool {
		return func() bool {
			return pgtest.One[int](t, owner, `select coalesce(max(deferrals), 0) from deed.channel_outbox where status = 'queued'`) == n
		}
	}
	eventually(t, "the first refusal", deferred(1))
	// It was due again a minute later, and is called 30 hours later.
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set created_at = created_at - interval '30 hours 1 minute', deferred_since = deferred_since - interval '30 hours 1 minute',
		process_after = clock_timestamp() - interval '30 hours'`)
	eventually(t, "the second refusal", func() bool { return f.called(made[0].ID) == 2 && entry(t, db, made[0].ID).Status != delivery.Sending })
	if e := entry(t, db, made[0].ID); e.Status != delivery.Queued {
		t.Fatalf("after an outage of 30 hours: %+v", e)
	}
	if tried := pgtest.One[float64](t, owner, `select extract(epoch from clock_timestamp() - deferred_since)::float8 from deed.channel_outbox`); tried < 60 || tried > 600 {
		t.Errorf("it counts as tried for %.0fs", tried)
	}
	// Of the time in which it is tried as often as it is to be nothing is left out.
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set deferred_since = deferred_since - interval '24 hours', process_after = clock_timestamp()`)
	until(t, db, made[0].ID, delivery.Dead)
}

// So it is with what a chat or a host has refused: time in which no relay ran ends neither the delivery that is called
// then, nor those that wait for what it finds out.
func TestContract_D6_TimeInWhichNobodyCalledGivesNothingUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner, worker := db.Pool(pgtest.Owner), db.Pool(pgtest.Worker)
	reserve(t, db, email("a@example.com"), email("b@example.com"))
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lane = 'example.com', created_at = created_at - interval '31 hours', deferrals = 1,
		deferred_since = clock_timestamp() - interval '30 hours 1 minute', process_after = clock_timestamp() - interval '30 hours'`)
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, since, until, failures, why) values
		('fake', 'example.com', clock_timestamp() - interval '30 hours', clock_timestamp() - interval '29 hours', 7, 'connection refused')`)
	nobody := func(what string) {
		t.Helper()
		if n := givenUp(t, db); n != 0 {
			t.Errorf("%s: %d given up", what, n)
		}
	}
	var id string
	var claim int64
	call := func() {
		t.Helper()
		if err := worker.QueryRow(t.Context(), `select id::text, claim from deed.claim_deliveries('fake', 'w', 1, '1 minute') where id is not null`).Scan(&id, &claim); err != nil {
			t.Fatal(err)
		}
		if got := pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, '1 minute', 'w')`, id, claim); got != "sending" {
			t.Fatal(got)
		}
	}
	settled := func() string {
		t.Helper()
		return pgtest.One[string](t, worker, `
			select status from deed.settle(array[$1::text::uuid], array[$2::bigint], '{unreachable}', '{null}', '{"connection refused"}', '{null}', 'w')`, id, claim)
	}
	call()
	nobody("while the first one is called")
	if n := pgtest.One[int](t, worker, `select failures from deed.pause('fake', array[$1::text::uuid], array[$2::bigint], '{example.com}', '{"connection refused"}', '{null}', '{true}')`, id, claim); n != 1 {
		t.Errorf("the new pause has %d failures", n)
	}
	if got := settled(); got != "queued" {
		t.Fatalf("after thirty hours in which nobody called: %s", got)
	}
	nobody("after it")
	if tried := pgtest.One[float64](t, owner, `select extract(epoch from clock_timestamp() - deferred_since)::float8 from deed.channel_outbox where id = $1::text::uuid`, id); tried < 3900 || tried > 4500 {
		t.Errorf("it counts as tried for %.0fs", tried)
	}
	// Of the time in which its destination is away all counts.
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set deferred_since = deferred_since - interval '24 hours', process_after = clock_timestamp() - interval '1 minute' where id = $1::text::uuid`, id)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() + interval '1 hour' where id <> $1::text::uuid`, id)
	db.Exec(t, pgtest.Owner, `update deed.pauses set until = clock_timestamp()`)
	call()
	if got := settled(); got != "dead" {
		t.Errorf("after a day: %s", got)
	}
}

// A tenant's run is found behind twenty others of which nobody may be called.
func TestClaim_FindsARunBehindThoseThatArePaused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := hosts(func(delivery.Reservation) delivery.Outcome { return delivery.Accepted("") })
	const runs = 45
	list := make([]delivery.Delivery, runs)
	for i := range list {
		list[i] = email(fmt.Sprintf("a@%d.example", i))
	}
	made := reserve(t, db, list...)
	for i, r := range made {
		ofRun(t, db, r.ID, fmt.Sprintf("00000000-0000-7000-8000-%012d", i))
	}
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, since, until, why)
		select 'fake', n || '.example', clock_timestamp(), clock_timestamp() + interval '1 hour', 'connection refused' from generate_series(0, $1::int) n`, runs-2)
	opts := fast(f)
	opts.PollInterval = time.Hour // it is found by looking on, and not by looking again
	run(t, db, opts)
	until(t, db, made[runs-1].ID, delivery.Sent)
	if n := len(f.all()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// A claim that has looked at as many lanes of a tenant as it may, and found
// nothing there nor with others, says that there is more.
func TestClaim_SaysThatThereIsMore(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	manyLanes(t, db, 1500, `null`)
	manyTenants(t, db, 1, `null`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set due = true, claimed_at = now(), claimed_by = 'x', claim = 1, lease_until = now() + interval '1 hour'`)
	if lanes, walk := claimed(t, db, 10, ""); len(lanes) != 0 || walk["wait"] != 0.0 {
		t.Errorf("took %v, and says %v", lanes, walk["wait"])
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'skipped', skipped = true, skip_reason = 'x', finished_at = now(), lease_until = null, claimed_at = null, claimed_by = null
		where lane > '2'`)
	db.Broken()
	if lanes, walk := claimed(t, db, 10, ""); len(lanes) != 0 || walk["wait"] != nil {
		t.Errorf("with little of it: took %v, and says %v", lanes, walk["wait"])
	}
}

// A delivery whose every call looks like an outage holds up nobody: each time
// another one finds out whether it is over. Of a provider, and of one host.
func TestContract_D6_EachProbeIsAnother(t *testing.T) {
	t.Parallel()
	for _, lanes := range []delivery.LaneKind{delivery.LanePerDomain, delivery.LanePerHost} {
		t.Run(string(lanes), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			owner := db.Pool(pgtest.Owner)
			f := newFake()
			f.caps.Lanes = lanes
			f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
				if r.Recipient() == "0@example.com" {
					return delivery.Outage(errors.New("421 not from you"), 0), false
				}
				return delivery.Accepted("m"), true
			}
			const n = 20
			mails(t, db, n) // the first one is the oldest
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set created_at = created_at - interval '1 minute' where recipient = '0@example.com'`)
			opts := fast(f)
			opts.BaseRetry = 20 * time.Millisecond
			run(t, db, opts)
			eventually(t, "all others to be sent", func() bool {
				return pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where status = 'sent'`) == n-1
			})
			eventually(t, "it to wait by itself, with all its attempts", func() bool {
				return pgtest.One[bool](t, owner, `select exists (select from deed.channel_outbox
					where status = 'queued' and attempts = 0 and deferrals > 3 and process_after > called_at + interval '5 milliseconds')`)
			})
		})
	}
}

// A pause is the account's: whoever serves the name through another one need not
// wait for what was wrong with the first.
func TestRegister_AnotherAccountIsNotPaused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	register := func(account string, sandbox bool) {
		t.Helper()
		pgtest.One[bool](t, worker, `select deed.register_provider('mail', 'k', 'domain', null, false, '{}', '{}', '{}', 'w', $1, $2)`, account, sandbox)
	}
	pauses := func() int {
		return pgtest.One[int](t, worker, `select count(*) from deed.pauses where provider = 'mail'`)
	}
	register("a", false)
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, since, until, why) values ('mail', '', now(), now() + interval '1 hour', 'over its quota')`)
	register("a", false)
	register("a", true)
	if n := pauses(); n != 1 {
		t.Fatalf("%d pauses of the same account, want one", n)
	}
	register("b", true)
	if n := pauses(); n != 0 {
		t.Errorf("%d pauses of another account", n)
	}
}

// What a service tells later is registered: what the adapter says, but for opens and clicks that
// are not kept; of one that says nothing it is not known.
func TestRegister_WhatIsReported(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	all := []delivery.Said{delivery.SaidDelivered, delivery.SaidComplained, delivery.SaidClicked}
	for _, c := range []struct {
		reports []delivery.Said
		kept    bool
		want    string
	}{{nil, true, "not known"}, {all, true, "{delivered,complained,clicked}"}, {all, false, "{delivered,complained}"}, {[]delivery.Said{}, false, "{}"}} {
		f.caps.Reports = c.reports
		o := fast(f)
		p := o.Providers["fake"]
		p.Engagement = c.kept
		o.Providers["fake"] = p
		registered(t, db, o)
		if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(reports::text, 'not known') from deed.providers where name = 'fake'`); got != c.want {
			t.Errorf("%v, kept %t: %s, want %s", c.reports, c.kept, got, c.want)
		}
	}
	// The domains that it may send from, too: in order, as the name service has them.
	f.caps.Reports = nil
	for _, c := range []struct {
		domains []string
		want    string
	}{{[]string{"Shop.Example", "bücher.example", "shop.example"}, "{shop.example,xn--bcher-kva.example}"}, {nil, "not known"}, {[]string{}, "not known"}} {
		o := fast(f)
		p := o.Providers["fake"]
		p.VerifiedDomains = c.domains
		o.Providers["fake"] = p
		registered(t, db, o)
		if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(verified_domains::text, 'not known') from deed.providers where name = 'fake'`); got != c.want {
			t.Errorf("%v: %s, want %s", c.domains, got, c.want)
		}
	}
	for _, bad := range []string{"", "@shop.example", "*.shop.example"} {
		o := fast(f)
		p := o.Providers["fake"]
		p.VerifiedDomains = []string{bad}
		o.Providers["fake"] = p
		if _, err := delivery.New(t.Context(), db.Pool(pgtest.Worker), o); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("the verified domain %q: %v", bad, err)
		}
	}
	f.caps.Reports = []delivery.Said{"read"}
	if _, err := delivery.New(t.Context(), db.Pool(pgtest.Worker), fast(f)); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("reports what nobody says: %v", err)
	}
}
