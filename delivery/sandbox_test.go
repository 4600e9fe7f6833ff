package delivery_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

const me = "me@example.com"

// boxed is fast with a sandbox.
func boxed(p delivery.Provider) delivery.Options {
	opts := fast(p)
	o := opts.Providers["fake"]
	o.Sandbox = me
	opts.Providers["fake"] = o
	return opts
}

// onlyMe fails for every call that went to somebody else.
func onlyMe(t *testing.T, f *fake) {
	t.Helper()
	for _, c := range f.all() {
		if c.recipient != me {
			t.Errorf("%s was called while the sandbox was on", c.recipient)
		}
	}
}

// What the sandbox took is skipped, what it refused has failed, and what came of
// a call to it that was cut is no doubt about anybody.
func TestSandbox_Outcomes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake().withKey(time.Hour)
	f.send = func(_ context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
		switch {
		case r.SandboxFor() == "refused@example.com":
			return delivery.Refused(errors.New("no such user")), false
		case r.SandboxFor() == "cut@example.com" && n == 1:
			return delivery.Unknown(errCut), true
		}
		return delivery.Accepted("m"), true
	}
	made := reserve(t, db, email("taken@example.com"), email("refused@example.com"), email("cut@example.com"))
	l, _ := run(t, db, boxed(f))
	taken, refused, cut := until(t, db, made[0].ID, delivery.Skipped), until(t, db, made[1].ID, delivery.Failed), until(t, db, made[2].ID, delivery.Skipped)
	onlyMe(t, f)
	if taken.SentAt != nil || taken.ProviderMessageID != "" || !taken.Sandbox || !strings.HasPrefix(taken.SkipReason, "sandbox") || taken.RepeatSafeUntil != nil {
		t.Errorf("%+v", taken)
	}
	if !strings.Contains(refused.LastError, "in the sandbox: no such user") || cut.DoubtSince != nil || cut.Attempts != 2 {
		t.Errorf("%+v\n%+v", refused, cut)
	}
	states, err := l.Providers(context.Background())
	if err != nil || len(states) != 1 || !states[0].Sandbox {
		t.Errorf("%+v, %v", states, err)
	}
}

// A dispatcher without the sandbox that another one has switched on calls
// nobody, whatever it has claimed; and goes on when the sandbox is off.
func TestSandbox_OnForOneIsOnForAll(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	var rendered atomic.Int32
	switched := make(chan struct{})
	f.render = func(d delivery.Draft) ([]byte, error) {
		rendered.Add(1)
		<-switched // claimed, and not yet written as sending
		return d.Payload, nil
	}
	var said logs
	opts := fast(f)
	opts.Logger = said.logger()
	made := reserve(t, db, email("a@example.com"))
	run(t, db, opts)
	eventually(t, "the delivery to be claimed", func() bool { return rendered.Load() > 0 })
	other := newFake()
	_, stop := run(t, db, boxed(other))
	eventually(t, "the sandbox to be on", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select sandbox from deed.providers where name = 'fake'`)
	})
	close(switched)
	e := until(t, db, made[0].ID, delivery.Skipped)
	stop()
	onlyMe(t, other)
	if f.called(made[0].ID) != 0 || !e.Sandbox || e.Attempts != 1 {
		t.Errorf("%d calls; %+v", f.called(made[0].ID), e)
	}
	eventually(t, "the dispatcher to say why it calls nobody", func() bool {
		return strings.Contains(said.String(), "another ledger has registered this provider")
	})
}

// A dispatcher that dies during a call to the sandbox leaves nothing in doubt:
// the delivery goes out again, to its recipient if the sandbox is off by then.
func TestSandbox_LostDuringTheCall(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	made := reserve(t, db, email("a@example.com"))
	db.Exec(t, pgtest.Owner, `update deed.providers set sandbox = true`)
	worker := db.Pool(pgtest.Worker)
	claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'gone', 1, interval '1 minute')`)
	if got := pgtest.One[string](t, worker, `
		select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['{}'::bytea], null, '1 minute', 'gone', 'fake', '', true)`, made[0].ID, claim); got != "sending" {
		t.Fatal(got)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second'`)
	f := newFake()
	run(t, db, fast(f))
	if e := until(t, db, made[0].ID, delivery.Sent); e.Attempts != 2 || e.Sandbox || f.called(e.ID) != 1 {
		t.Errorf("%+v", e)
	}
	if got := attempts(t, db, made[0].ID); len(got) != 1 || got[0].Outcome != "lost" || !got[0].Sandbox || got[0].Worker != "gone" {
		t.Errorf("its history: %+v", got)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where action = 'doubt'`); n != 0 {
		t.Error("it was in doubt")
	}
}

// asked is a fake that can be asked, and counts how often it was.
type asked struct {
	*fake
	looks atomic.Int32
}

func (a *asked) Find(context.Context, delivery.Reservation) (delivery.Finding, error) {
	a.looks.Add(1)
	return delivery.Finding{}, nil
}

// What is in doubt from before waits while the sandbox is on: it is neither
// repeated, nor looked up, nor decided; and settled when the sandbox is off.
func TestSandbox_DoubtsWait(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := &asked{fake: newFake().withKey(time.Hour)}
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Unknown(errCut), true
	}
	opts := fast(f)
	opts.BaseRetry = time.Hour // one repeat, and no more by itself
	again := email("again@example.com")
	again.Guarantee = delivery.AtLeastOnce
	made := reserve(t, db, email("once@example.com"), again)
	_, stop := run(t, db, opts)
	eventually(t, "both to be in doubt", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where doubt_since is not null and lease_until is null and attempts = 2`) == 2
	})
	stop()
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null`)

	b := &asked{fake: newFake().withKey(time.Hour)}
	lost := reserve(t, db, email("lost@example.com"))
	worker := db.Pool(pgtest.Worker)
	claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'gone', 1, interval '1 minute')`)
	pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['{}'::bytea], null, '1 minute', 'gone')`, lost[0].ID, claim)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second' where lease_until is not null`)
	_, stop = run(t, db, boxed(b))
	eventually(t, "the reconciler to have looked", func() bool {
		return entry(t, db, lost[0].ID).DoubtReason != "" && entry(t, db, lost[0].ID).ClaimedBy == ""
	})
	stop()
	onlyMe(t, b.fake)
	for i, m := range made {
		if e := entry(t, db, m.ID); e.Status != delivery.Sending || e.DoubtSince == nil || e.HeldAt != nil || b.called(m.ID) != 0 {
			t.Errorf("%d: %+v", i, e)
		}
	}
	if b.looks.Load() != 0 {
		t.Error("a doubt was looked up")
	}

	f.send = nil
	run(t, db, opts)
	for _, m := range made {
		if e := until(t, db, m.ID, delivery.Sent); e.Sandbox {
			t.Errorf("%+v", e)
		}
	}
}

// From the commit that switches the sandbox on no call begins to anyone else:
// it waits for attempts that have looked before and are not committed yet, and
// attempts after it see it.
func TestSandbox_TheMomentItIsSwitchedOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	made := reserve(t, db, email("a@example.com"), email("b@example.com"))
	worker := db.Pool(pgtest.Worker)
	claim := pgtest.One[int64](t, worker, `select max(claim) from deed.claim_deliveries('fake', 'w', 10, interval '1 minute')`)
	const attempt = `select coalesce(why, status) from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['{}'::bytea], null, '1 minute', 'w', 'fake', '', false)`

	looked := db.Conn(t, pgtest.Worker)
	tx, err := looked.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := pgtest.One[string](t, tx, attempt, made[0].ID, claim); got != "sending" {
		t.Fatal(got)
	}
	opts := fast(newFake())
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: newFake(), Sandbox: "box@example.org"}
	var said logs
	opts.Logger = said.logger()
	l := ledger(t, db, opts)
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.Run(running) }()
	owner := db.Pool(pgtest.Owner)
	on := func() bool { return pgtest.One[bool](t, owner, `select sandbox from deed.providers`) }
	eventually(t, "the switch to wait, or to be on", func() bool {
		return on() || pgtest.One[int](t, owner, `select count(*) from pg_locks where not granted and relation = 'deed.provider_lock'::regclass and database = (select oid from pg_database where datname = current_database())`) > 0
	})
	if on() {
		t.Error("the sandbox is on, and an attempt that has not seen it is not committed")
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sandbox to be on", on)
	if got := pgtest.One[string](t, worker, attempt, made[1].ID, claim); got != "replaced" {
		t.Errorf("an attempt after the switch: %s", got)
	}
	eventually(t, "the relay to say what was under way", func() bool { return strings.Contains(said.String(), "calls that had begun") })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
