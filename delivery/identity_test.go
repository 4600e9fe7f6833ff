package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// account is a fake of an account.
func account(name string) *fake {
	f := newFake()
	f.caps.Account = name
	return f
}

// What was first called through one account is never called through another,
// and goes out when its own is back. It says so meanwhile.
func TestProvider_NeverThroughAnotherAccount(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first := account("first@smtp.example.com:25")
	first.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.NotNow(errors.New("busy"), time.Hour), false
	}
	opts := fast(first)
	made := reserve(t, db, email("a@example.com"))
	_, stop := run(t, db, opts)
	eventually(t, "the first call", func() bool {
		return first.called(made[0].ID) == 1 && entry(t, db, made[0].ID).Status == delivery.Queued
	})
	stop()
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null`)

	second := account("second@smtp.example.com:25")
	fresh := reserve(t, db, email("fresh@example.com"))
	_, stop = run(t, db, fast(second))
	until(t, db, fresh[0].ID, delivery.Sent)
	eventually(t, "the delivery to be put off", func() bool { return entry(t, db, made[0].ID).ProcessAfter != nil })
	stop()
	e := entry(t, db, made[0].ID)
	if second.called(e.ID) != 0 || e.Status != delivery.Queued || e.Attempts != 1 || e.ClaimedBy != "" || !strings.Contains(e.LastError, "first@smtp.example.com:25") ||
		!strings.Contains(e.LastError, "second@smtp.example.com:25") {
		t.Errorf("%d calls through the other account; %+v", second.called(e.ID), e)
	}

	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where status = 'queued'`)
	first.send = nil
	run(t, db, fast(first))
	until(t, db, made[0].ID, delivery.Sent)
}

// Two dispatchers that serve one name through two accounts: every delivery is
// called through one of them, however often, and nothing is lost.
func TestProvider_TwoAccountsUnderOneName(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const n = 40
	list := make([]delivery.Delivery, n)
	for i := range list {
		list[i] = email(fmt.Sprintf("%d@example.com", i))
	}
	made := reserve(t, db, list...)
	fakes := []*fake{account("one"), account("two")}
	var stops []func()
	for _, f := range fakes {
		f.send = func(_ context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
			if n == 1 {
				return delivery.NotNow(errors.New("busy"), 0), false
			}
			return delivery.Accepted("m"), true
		}
		_, stop := run(t, db, fast(f))
		stops = append(stops, stop)
	}
	// The one that was registered last works; the other's deliveries wait for it.
	tick := func(account string) bool {
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where status = 'queued' and process_after > clock_timestamp() + interval '10 seconds'`)
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `
			select count(*) from deed.channel_outbox c join deed.providers p on p.name = c.provider
			where c.status in ('queued', 'sending') and (c.request_account is null or c.request_account = coalesce(nullif($1, ''), p.account))`, account) == 0
	}
	eventually(t, "what may be called to be sent", func() bool { return tick("") })
	for _, stop := range stops {
		stop()
	}
	// Each of them gets its turn; what waited for it goes out then.
	for _, f := range fakes {
		_, stop := run(t, db, fast(f))
		eventually(t, "what is this account's to be sent", func() bool { return tick(f.caps.Account) })
		stop()
	}
	for _, m := range made {
		one, two := fakes[0].called(m.ID), fakes[1].called(m.ID)
		if e := entry(t, db, m.ID); (one > 0) == (two > 0) || e.Status != delivery.Sent {
			t.Errorf("%s was called %d times through one account and %d times through the other, and is %s: %s", m.ID, one, two, e.Status, e.LastError)
		}
	}
}

// A doubt is settled through the account that was called, or by nobody.
func TestProvider_DoubtOfAnotherAccountWaits(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first := account("first").withKey(time.Hour)
	first.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Unknown(errCut), true
	}
	opts := fast(first)
	opts.BaseRetry = time.Hour
	made := reserve(t, db, email("a@example.com"))
	_, stop := run(t, db, opts)
	eventually(t, "the first repeat", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select attempts = 2 and lease_until is null from deed.channel_outbox`)
	})
	stop()
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null`)
	second := account("second")
	second.send = cutOnce
	own := reserve(t, db, email("own@example.com"))
	_, stop = run(t, db, fast(second))
	held(t, db, own[0].ID) // so its reconciler has looked
	stop()
	if e := entry(t, db, made[0].ID); e.HeldAt != nil || e.DoubtSince == nil || second.called(e.ID) != 0 {
		t.Errorf("%+v", e)
	}
	first.send = nil
	run(t, db, fast(first))
	until(t, db, made[0].ID, delivery.Sent)
}

// A name that stands for another kind by now calls nobody through the first
// one, though it is still running.
func TestProvider_TwoKindsUnderOneName(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first := newFake()
	run(t, db, fast(first))
	registered := func(kind string) func() bool {
		return func() bool {
			return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.providers where name = 'fake' and kind = $1)`, kind)
		}
	}
	eventually(t, "the first kind", registered("fake"))
	second := newFake()
	second.caps.Kind = "another"
	run(t, db, fast(second))
	eventually(t, "the second kind", registered("another"))
	list := make([]delivery.Delivery, 40)
	for i := range list {
		list[i] = email(fmt.Sprintf("%d@example.com", i))
	}
	for _, m := range reserve(t, db, list...) {
		e := until(t, db, m.ID, delivery.Sent)
		if first.called(e.ID) != 0 || second.called(e.ID) != 1 {
			t.Errorf("%d calls through the first kind, %d through the second", first.called(e.ID), second.called(e.ID))
		}
	}
}

// A ledger whose provider another one has registered otherwise calls nobody, and
// everybody can see that; until the name is its own again.
func TestProvider_ReplacedIsSeen(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first, second := account("first@smtp.example.com:25"), account("second@smtp.example.com:25")
	serving, stop := run(t, db, fast(first))
	defer stop()
	other, err := delivery.New(t.Context(), db.Pool(pgtest.Worker), fast(second))
	if err != nil {
		t.Fatal(err)
	}
	idle := func() *delivery.Idle {
		t.Helper()
		states, err := other.Providers(t.Context())
		if err != nil || len(states) != 1 {
			t.Fatalf("Providers: %+v, %v", states, err)
		}
		return states[0].Idle
	}
	made := reserve(t, db, email("a@example.com"))
	until(t, db, made[0].ID, delivery.Sent)
	if got := serving.Idle(); len(got) != 0 || idle() != nil {
		t.Fatalf("idle before there was another: %q, %+v", got, idle())
	}

	if err := other.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	made = reserve(t, db, email("b@example.com"))
	serving.Wake()
	eventually(t, "the first to see that it is replaced", func() bool { return len(serving.Idle()) == 1 })
	if i := idle(); i == nil || i.Account != "first@smtp.example.com:25" || i.Worker == "" || first.called(made[0].ID) != 0 {
		t.Errorf("what waits is shown as %+v, with %d calls", i, first.called(made[0].ID))
	}

	if err := serving.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if i := idle(); i != nil {
		t.Errorf("nothing waits any more, and it is shown as %+v", i)
	}
}
