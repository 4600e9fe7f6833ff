package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

var errCut = errors.New("the connection was cut")

// cutOnce accepts the first call and loses its answer.
func cutOnce(_ context.Context, n int, _ delivery.Reservation) (delivery.Outcome, bool) {
	if n == 1 {
		return delivery.Unknown(errCut), true
	}
	return delivery.Accepted("m"), true
}

// held waits until a delivery waits for a person.
func held(t testing.TB, db *pgtest.DB, id string) delivery.Entry {
	t.Helper()
	eventually(t, "the delivery to be held", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select held_at is not null from deed.channel_outbox where id = $1::text::uuid`, id)
	})
	return entry(t, db, id)
}

// With a key the same request is repeated inside the window, byte for byte,
// and the provider takes it once.
func TestContract_D5_RepeatUnderTheKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake().withKey(time.Hour)
	f.send = cutOnce
	n := 0
	f.render = func(d delivery.Draft) ([]byte, error) {
		n++
		return fmt.Appendf(nil, "rendering %d of %s under %s", n, d.Recipient, d.Key), nil
	}
	made := reserve(t, db, email("a@example.com"))
	run(t, db, fast(f))
	e := until(t, db, made[0].ID, delivery.Sent)
	if accepted, repeats := f.acceptances(); accepted != 1 || repeats != 0 || f.called(e.ID) != 2 {
		t.Errorf("%d accepted, %d repeats, %d calls", accepted, repeats, f.called(e.ID))
	}
	if r := f.requests[e.ID]; len(r) != 2 || r[0] != r[1] || n != 1 {
		t.Errorf("the request was rendered %d times: %q", n, r)
	}
	if e.Attempts != 2 || e.DoubtSince != nil || e.ProviderMessageID != "m" {
		t.Errorf("%+v", e)
	}
}

// Without a key at_most_once is held for a person and never called again, and
// at_least_once is, until its attempts are spent.
func TestContract_D5_ByTheGuarantee(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = cutOnce
	replies := email("reply@example.com")
	replies.Guarantee = delivery.AtLeastOnce
	never := email("never@example.com")
	never.Guarantee, never.MaxAttempts = delivery.AtLeastOnce, 3
	f.send = func(ctx context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "never@example.com" {
			return delivery.Unknown(errCut), false
		}
		return cutOnce(ctx, n, r)
	}
	made := reserve(t, db, email("campaign@example.com"), replies, never)
	l, _ := run(t, db, fast(f))
	h := held(t, db, made[0].ID)
	until(t, db, made[1].ID, delivery.Sent)
	dead := until(t, db, made[2].ID, delivery.Dead)
	if f.called(made[0].ID) != 1 || f.called(made[1].ID) != 2 || f.called(made[2].ID) != 3 {
		t.Errorf("calls: %d, %d, %d; want 1, 2, 3", f.called(made[0].ID), f.called(made[1].ID), f.called(made[2].ID))
	}
	if h.Status != delivery.Sending || h.DoubtSince == nil || !strings.Contains(h.DoubtReason, "cut") || h.ClaimedBy != "" {
		t.Errorf("held: %+v", h)
	}
	if !strings.Contains(dead.LastError, "cut") {
		t.Errorf("dead with %q", dead.LastError)
	}
	list, err := l.List(context.Background(), delivery.Filter{InDoubt: true})
	if err != nil || len(list.Items) != 1 || list.Items[0].ID != made[0].ID {
		t.Errorf("in doubt: %+v, %v", list, err)
	}
}

// Past the window nothing is repeated under the key, whatever was learnt.
func TestContract_D5_NeverPastTheWindow(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake().withKey(time.Hour)
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Unknown(errCut), true
	}
	opts := fast(f)
	opts.BaseRetry = time.Hour // no second repeat by itself
	made := reserve(t, db, email("a@example.com"))
	_, stop := run(t, db, opts)
	eventually(t, "the first repeat", func() bool { return f.called(made[0].ID) == 2 })
	stop()
	e := entry(t, db, made[0].ID)
	window := e.RepeatSafeUntil.Sub(*e.FirstCalledAt)
	if window != 54*time.Minute { // a tenth of it to spare
		t.Errorf("the stored window is %s", window)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null, repeat_safe_until = clock_timestamp() where id = $1::text::uuid`, made[0].ID)
	run(t, db, opts)
	held(t, db, made[0].ID)
	if f.called(made[0].ID) != 2 {
		t.Errorf("%d calls", f.called(made[0].ID))
	}
}

// What a repeat says about itself proves nothing about the first call: 429
// keeps the doubt, a refusal leaves it to the guarantee.
func TestContract_D5_ARefusedRepeatProvesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake().withKey(time.Hour)
	f.send = func(_ context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
		switch {
		case n == 1:
			return delivery.Unknown(errCut), true
		case r.Recipient() == "busy@example.com" && n < 9:
			return delivery.NotNow(errors.New("concurrent"), 0), false
		case r.Recipient() == "busy@example.com":
			return delivery.Accepted("m"), true
		}
		return delivery.Refused(errors.New("another payload under this key")), false
	}
	made := reserve(t, db, email("busy@example.com"), email("refused@example.com"))
	run(t, db, fast(f))
	until(t, db, made[0].ID, delivery.Sent) // more calls than max_attempts, and not dead
	h := held(t, db, made[1].ID)
	if f.called(made[1].ID) != 2 || !strings.Contains(h.DoubtReason, "another payload") {
		t.Errorf("%d calls; %+v", f.called(made[1].ID), h)
	}
}

// finder is a fake that can be asked.
type finder struct {
	*fake
	find func(n int, r delivery.Reservation) (delivery.Finding, error)
	n    map[string]int
}

func (f *finder) Find(_ context.Context, r delivery.Reservation) (delivery.Finding, error) {
	f.mu.Lock()
	f.n[r.ID()]++
	n := f.n[r.ID()]
	f.mu.Unlock()
	return f.find(n, r)
}

// A look-up that finds it settles it; one that fails is tried again; one that
// does not find it proves nothing, and the guarantee decides.
func TestContract_D5_LookUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := &finder{fake: newFake(), n: map[string]int{}}
	f.fake.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Unknown(errCut), true
	}
	f.find = func(n int, r delivery.Reservation) (delivery.Finding, error) {
		if n < 3 {
			return delivery.Finding{}, errors.New("the list is away")
		}
		return delivery.Finding{Found: r.Recipient() == "there@example.com", MessageID: "found"}, nil
	}
	made := reserve(t, db, email("there@example.com"), email("absent@example.com"))
	run(t, db, fast(f))
	if e := until(t, db, made[0].ID, delivery.Sent); e.ProviderMessageID != "found" || f.called(e.ID) != 1 {
		t.Errorf("%d calls: %+v", f.called(e.ID), e)
	}
	if h := held(t, db, made[1].ID); f.called(h.ID) != 1 || !strings.Contains(h.DoubtReason, "proves nothing") {
		t.Errorf("%d calls: %+v", f.called(h.ID), h)
	}
}

// A worker that dies in the call leaves the delivery in doubt when its lease
// runs out, and it is reconciled like any other; one that only froze and comes
// back with an answer may still bring it, until somebody has taken over.
func TestContract_D5_TheLeaseRunsOut(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	made := reserve(t, db, email("a@example.com"), email("b@example.com"))
	type claimed struct {
		id    string
		claim int64
	}
	var list []claimed
	rows, err := worker.Query(ctx, `select id::text, claim from deed.claim_deliveries('fake', 'gone', 10, '1 second')`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var c claimed
		if err := rows.Scan(&c.id, &c.claim); err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	if rows.Err() != nil || len(list) != 2 {
		t.Fatal(list, rows.Err())
	}
	for _, c := range list {
		if got := pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, '1 second', 'gone')`, c.id, c.claim); got != "sending" {
			t.Fatal(got)
		}
	}
	f := newFake()
	run(t, db, fast(f))
	for _, m := range made {
		if e := held(t, db, m.ID); !strings.Contains(e.DoubtReason, "lease of gone ran out") || f.called(m.ID) != 0 {
			t.Errorf("called %d times: %+v", f.called(m.ID), e)
		}
	}
	for _, m := range made {
		if got := outcomes(t, db, m.ID); !slices.Equal(got, []string{"lost"}) || attempts(t, db, m.ID)[0].Worker != "gone" {
			t.Errorf("its history: %q", got)
		}
	}
	if got := pgtest.One[string](t, worker, `select status from deed.settle(array[$1::text::uuid], array[$2::bigint], '{accepted}', '{m-1}', '{null}', '{null}', 'gone')`, list[0].id, list[0].claim); got != "sent" {
		t.Errorf("the late answer made it %s", got)
	}
	if ok, err := ledger(t, db, delivery.Options{}).Prove(ctx, list[1].id, "m-2", "event"); !ok || err != nil {
		t.Error(ok, err)
	}
	if e := entry(t, db, list[1].id); e.Status != delivery.Sent || e.ProviderMessageID != "m-2" || e.HeldAt != nil {
		t.Errorf("after the proof: %+v", e)
	}
}

// What a person decides about a delivery in doubt is done and recorded, with
// who and why; about any other it is refused.
func TestContract_D5_APersonDecides(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	f.send = cutOnce
	made := reserve(t, db, email("a@example.com"), email("b@example.com"), email("c@example.com"), email("d@example.com"))
	run(t, db, fast(f))
	admin := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{})
	for i, d := range []struct {
		decision delivery.Decision
		message  string
		want     delivery.Status
	}{{delivery.WasSent, "seen-1", delivery.Sent}, {delivery.HasFailed, "", delivery.Failed}, {delivery.SendAgain, "", delivery.Sent}} {
		held(t, db, made[i].ID)
		if _, err := admin.Settle(ctx, made[i].ID, d.decision, d.message, audit.Act{By: "ann", Reason: "looked at the provider's log"}); err != nil {
			t.Fatal(err)
		}
		e := until(t, db, made[i].ID, d.want)
		if d.message != "" && e.ProviderMessageID != d.message {
			t.Errorf("%s: %+v", d.decision, e)
		}
		_, events, err := admin.Show(ctx, e.ID, false)
		if err != nil || !slices.ContainsFunc(events, func(v delivery.Event) bool {
			return v.Action == "settle" && v.Actor == "ann" && v.Reason == "looked at the provider's log"
		}) {
			t.Errorf("%s: history %+v, %v", d.decision, events, err)
		}
		if _, err := admin.Settle(ctx, made[i].ID, d.decision, "", audit.Act{By: "ann", Reason: "again"}); deed.CodeOf(err) != deed.Conflict {
			t.Errorf("%s of a finished one: %v", d.decision, err)
		}
	}
	if f.called(made[2].ID) != 2 {
		t.Errorf("send again made %d calls", f.called(made[2].ID))
	}
	held(t, db, made[3].ID)
	if _, err := admin.Settle(ctx, made[3].ID, delivery.WasSent, "", audit.Act{By: "ann"}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("without a reason: %v", err)
	}
	if _, err := admin.Settle(ctx, "00000000-0000-4000-8000-000000000000", delivery.WasSent, "", audit.Act{By: "ann", Reason: "x"}); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("an unknown one: %v", err)
	}
}

// A panic, an end of the goroutine, a hang past the timeout, and a stop in mid-call
// are unknown outcomes, not failures.
func TestContract_D5_ACallWithoutAnAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(ctx context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		switch r.Recipient() {
		case "panic@example.com":
			panic("a bug")
		case "goexit@example.com":
			runtime.Goexit() // as t.FailNow does
		case "zero@example.com":
			return delivery.Outcome{}, true
		}
		<-ctx.Done()
		return delivery.Unknown(ctx.Err()), true
	}
	opts := fast(f)
	p := opts.Providers["fake"]
	p.Timeout = 50 * time.Millisecond
	opts.Providers["fake"] = p
	made := reserve(t, db, email("panic@example.com"), email("hang@example.com"), email("zero@example.com"), email("goexit@example.com"))
	run(t, db, opts)
	for _, m := range made {
		if h := held(t, db, m.ID); f.called(m.ID) != 1 || !slices.Equal(outcomes(t, db, m.ID), []string{"unknown"}) {
			t.Errorf("%d calls, %q: %+v", f.called(m.ID), outcomes(t, db, m.ID), h)
		}
	}
}

// While the provider cannot be reached a doubt stays one, however long, and the
// repeats that could not be made are not counted.
func TestContract_D5_AnOutageKeepsTheDoubt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake().withKey(time.Hour)
	f.send = func(_ context.Context, n int, _ delivery.Reservation) (delivery.Outcome, bool) {
		switch {
		case n == 1:
			return delivery.Unknown(errCut), true
		case n < 8:
			return delivery.Outage(errors.New("connection refused"), 0), false
		}
		return delivery.Accepted("m"), true
	}
	reply := email("a@example.com")
	reply.Guarantee = delivery.AtLeastOnce
	made := reserve(t, db, reply)
	run(t, db, fast(f))
	e := until(t, db, made[0].ID, delivery.Sent)
	if accepted, repeats := f.acceptances(); e.Attempts != 2 || accepted != 1 || repeats != 0 {
		t.Errorf("%d attempts, %d accepted, %d repeats", e.Attempts, accepted, repeats)
	}
}

// Who has been suppressed while a delivery was in doubt is not written to by a
// repeat of it: at_most_once is held, at_least_once is skipped.
func TestContract_D5_NoRepeatToTheSuppressed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake().withKey(time.Hour)
	f.send = func(ctx context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		_, err := delivery.Suppress(ctx, db.Pool(pgtest.App), nil, delivery.Coverage{Channel: delivery.Email}, []string{r.Recipient()}, audit.Act{By: "bob", Reason: "asked to"})
		if err != nil {
			t.Error(err)
		}
		return delivery.Unknown(errCut), false
	}
	reply := email("reply@example.com")
	reply.Guarantee = delivery.AtLeastOnce
	made := reserve(t, db, email("campaign@example.com"), reply)
	run(t, db, fast(f))
	held(t, db, made[0].ID)
	if e := until(t, db, made[1].ID, delivery.Skipped); e.SkipReason != "suppressed: asked to; an earlier call may have been accepted" {
		t.Errorf("%+v", e)
	}
	for _, m := range made {
		if n := f.called(m.ID); n != 1 {
			t.Errorf("%s was called %d times", m.ID, n)
		}
	}
}

// Proof also ends a delivery that has been put back to be called again, for
// then the call that is proved is an earlier one; one that was never called
// there is nothing to prove of.
func TestContract_D5_ProofOfOneThatWasPutBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.NotNow(errors.New("503"), 0), true
	}
	opts := fast(f)
	opts.BaseRetry = time.Hour
	made := reserve(t, db, email("a@example.com"))
	l, _ := run(t, db, opts)
	eventually(t, "the delivery to be put back", func() bool {
		return f.called(made[0].ID) == 1 && entry(t, db, made[0].ID).Status == delivery.Queued
	})
	later := email("b@example.com")
	later.ProcessAfter = time.Now().Add(time.Hour)
	made = append(made, reserve(t, db, later)...)
	for i, want := range []bool{true, false} {
		if ok, err := l.Prove(ctx, made[i].ID, "m-1", "event"); ok != want || err != nil {
			t.Errorf("%d: %t, %v", i, ok, err)
		}
	}
	if e := entry(t, db, made[0].ID); e.Status != delivery.Sent || e.ProviderMessageID != "m-1" {
		t.Errorf("after the proof: %+v", e)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where status = 'queued'`)
	eventually(t, "the other to be called", func() bool { return f.called(made[1].ID) == 1 })
	if n := f.called(made[0].ID); n != 1 {
		t.Errorf("called %d times", n)
	}
}

// While deliveries are open that a provider was called for, its name does not
// become another service's: neither their requests nor their keys are its own.
func TestContract_D5_ANameKeepsItsKind(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	f.send = cutOnce
	made := reserve(t, db, email("a@example.com"))
	run(t, db, fast(f))
	held(t, db, made[0].ID)
	other := newFake()
	other.caps.Kind = "another"
	l := ledger(t, db, fast(other))
	err := l.Run(ctx)
	if deed.CodeOf(err) != deed.Conflict || !strings.Contains(err.Error(), "stands for another kind") {
		t.Fatal(err)
	}
	if ok, err := l.Prove(ctx, made[0].ID, "m", "event"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if kind := pgtest.One[string](t, db.Pool(pgtest.Worker), `select kind from deed.providers where name = 'fake'`); kind != "fake" {
		t.Errorf("the provider's kind is %s", kind)
	}
	run(t, db, fast(other))
	eventually(t, "the name to be free", func() bool {
		return pgtest.One[string](t, db.Pool(pgtest.Worker), `select kind from deed.providers where name = 'fake'`) == "another"
	})
}

// The second window of a key begins with the first call that the provider may
// have begun it with. As long as any earlier call may still be known, nobody
// can tell which that was, and nothing is repeated.
func TestContract_D5_TheSecondWindow(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	made := reserve(t, db, email("a@example.com"), email("b@example.com"))
	attempt := func(id string) time.Duration {
		t.Helper()
		claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'w', 10, interval '1 minute') where id = $1::text::uuid`, id)
		left := pgtest.One[float64](t, worker, `
			select extract(epoch from repeat_safe_until - clock_timestamp())::float8
			from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], '10 hours', '1 minute', 'w')`, id, claim)
		pgtest.One[string](t, worker, `
			select status from deed.settle(array[$1::text::uuid], array[$2::bigint], '{later}', '{null}', '{busy}', '{null}', 'w', p_base => '1 millisecond', p_max_attempts => 100)`, id, claim)
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null, claimed_at = null, claimed_by = null, lease_until = null, claim = null where status = 'queued'`)
		return time.Duration(left * float64(time.Second))
	}
	hence := func(id, by string) {
		t.Helper()
		db.Exec(t, pgtest.Owner, `
			update deed.channel_outbox
			set first_called_at = first_called_at - $2::text::interval, called_at = called_at - $2::text::interval, repeat_safe_until = repeat_safe_until - $2::text::interval
			where id = $1::text::uuid`, id, by)
	}
	for _, m := range made {
		if left := attempt(m.ID); left < 8*time.Hour || left > 9*time.Hour {
			t.Fatalf("the first window leaves %s", left)
		}
	}
	// Between the two a call that may have begun a window of its own.
	hence(made[0].ID, "10.5 hours")
	if left := attempt(made[0].ID); left > 0 {
		t.Errorf("after 10.5 hours %s are left", left)
	}
	hence(made[0].ID, "1.5 hours")
	if left := attempt(made[0].ID); left > 0 {
		t.Errorf("%s are left, though the provider may have begun its window 1.5 hours ago", left)
	}
	hence(made[1].ID, "12 hours")
	if left := attempt(made[1].ID); left < 8*time.Hour || left > 9*time.Hour {
		t.Errorf("a window that nothing can be left of is followed by one of %s", left)
	}
}
