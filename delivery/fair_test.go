package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// queue puts n deliveries of a tenant into the table, as reserve would.
func queue(t testing.TB, db *pgtest.DB, owner tenant.ID, provider, domain string, n int) {
	t.Helper()
	of := fmt.Sprintf(`(values ('%s', '%s', '%s')) of(owner, provider, domain)`, owner, provider, domain)
	db.ExecSteps(t, pgtest.Owner, n, `
		insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, created_at, updated_at)
		select gen_random_uuid(), of.owner::uuid, sha256(convert_to(of.owner || of.provider || of.domain || n, 'UTF8')), 'email', of.provider, of.domain,
		  n || '@' || of.domain, '{}', clock_timestamp(), now()
		from generate_series($1::int, $2::int) n, `+of)
}

func tenants(t testing.TB, db *pgtest.DB, n int) []tenant.ID {
	t.Helper()
	list := make([]tenant.ID, n)
	for i := range list {
		list[i] = tenant.ID{byte(i + 1)}
		if err := tenant.Add(context.Background(), db.Pool(pgtest.Admin), list[i], fmt.Sprint("t", i)); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// A tenant with very many queued delays the first of another by few of them,
// counted in calls: how many a second holds is the machine's.
func TestDispatch_FairBetweenTenants(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	ids := tenants(t, db, 2)
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	queue(t, db, ids[0], "fake", "big.example", n)
	f := newFake()
	at := make(chan int, 1)
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "small@example.com" {
			at <- len(f.all())
		}
		return delivery.Accepted("m"), true
	}
	l, _ := run(t, db, fast(f))
	eventually(t, "the big tenant's deliveries", func() bool { return len(f.all()) > 500 })
	if _, err := delivery.ReserveFor(ctx, db.Pool(pgtest.Worker), ids[1], email("small@example.com")); err != nil {
		t.Fatal(err)
	}
	l.Wake()
	before := len(f.all())
	select {
	case after := <-at:
		if waited := after - before; waited > n/20 {
			t.Errorf("the other tenant waited for %d of %d calls", waited, n)
		}
	case <-time.After(pgtest.Patience):
		t.Fatal("the other tenant's delivery was not made")
	}
	if left := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'queued'`); left == 0 {
		t.Error("nothing was queued any more: the test shows nothing")
	}
}

// Every tenant gets its turn, also when there are more of them than a claim
// takes; and lanes within a tenant.
func TestDispatch_EverybodysTurn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ids := tenants(t, db, 30)
	f := newFake()
	f.caps.Lanes = delivery.LanePerHost
	opts := fast(f)
	opts.ClaimBatch = 7
	p := opts.Providers["fake"]
	p.Concurrency, p.PerLane = 8, 4
	opts.Providers["fake"] = p
	_, stop := run(t, db, opts) // registers the lanes
	eventually(t, "the registration", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.providers`) == 1
	})
	stop()
	for _, id := range ids {
		queue(t, db, id, "fake", "a.example", 40)
		queue(t, db, id, "fake", "b.example", 40)
	}
	run(t, db, opts)
	eventually(t, "half of it", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent'`) >= 1200
	})
	least := pgtest.One[int](t, db.Pool(pgtest.Owner), `
		select min(n) from (select count(*) filter (where status = 'sent') as n from deed.channel_outbox group by tenant_id, recipient_domain) c`)
	if least < 8 {
		t.Errorf("when half was sent one lane had %d of 40", least)
	}
}

// A limit is kept by all workers together, and used (a busy
// machine may fall short of it, and never exceeds it); a
// domain's limit slows that domain alone.
func TestDispatch_RateLimits(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	opts := fast(f)
	opts.PollInterval = 100 * time.Millisecond
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Rate: 40, Burst: 4, Lanes: map[string]float64{"slow.example": 5}}
	id := tenant.Default
	for range 4 {
		run(t, db, opts)
	}
	eventually(t, "the registration", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.rate_limits`) == 2
	})
	begun := time.Now()
	queue(t, db, id, "fake", "slow.example", 200)
	queue(t, db, id, "fake", "fast.example", 2000) // more than the slowest machine is done with before it has a quick moment
	all := func(call) bool { return true }
	slow := func(c call) bool { return strings.HasSuffix(c.recipient, "@slow.example") }
	eventually(t, "five seconds of calls, and some in which about half of the limits is used", func() bool {
		calls := f.all()
		return len(calls) > 0 && time.Since(calls[0].at) > 5*time.Second && mostWithin(calls, 2*time.Second, all) >= 40 && mostWithin(calls, 4*time.Second, slow) >= 8
	})
	calls := f.all()
	if over := overLimit(calls, begun, 40, 4, all); over != "" {
		t.Errorf("of 4 workers: %s", over)
	}
	if over := overLimit(calls, begun, 5, 2.5, slow); over != "" {
		t.Errorf("to the limited domain: %s", over)
	}
}

// A destination that hangs or fails slows no other.
func TestDispatch_OneBadDestination(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	f.caps.Lanes = delivery.LanePerHost
	release := make(chan struct{})
	f.send = func(ctx context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient()[:3] == "bad" {
			select {
			case <-ctx.Done():
			case <-release:
			}
			return delivery.Unknown(errors.New("timeout")), false
		}
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	// So long that the test fails if anything waits for one of these.
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Concurrency: 8, Timeout: 10 * time.Minute}
	var list []delivery.Delivery
	for i := range 100 {
		bad := email(fmt.Sprintf("bad%d@hangs.example", i))
		bad.Guarantee = delivery.AtLeastOnce
		list = append(list, bad)
	}
	for i := range 100 {
		list = append(list, email(fmt.Sprintf("good%d@%d.example", i, i)))
	}
	run(t, db, opts)
	defer close(release)
	eventually(t, "the registration", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.providers`) == 1
	})
	if err := pgx.BeginFunc(ctx, db.Pool(pgtest.App), func(tx pgx.Tx) error {
		_, err := delivery.Reserve(ctx, tx, list...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all good ones", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent'`) == 100
	})
	bad := 0
	eventually(t, "a call to the hanging destination, whose turn may be the last", func() bool {
		bad = 0
		for _, c := range f.all() {
			if c.recipient[:3] == "bad" {
				bad++
			}
		}
		return bad > 0
	})
	if bad > 2 {
		t.Errorf("%d calls to the hanging destination at once, want 2", bad)
	}
}
