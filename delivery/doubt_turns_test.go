package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// inDoubt makes what is queued look as if its calls had gone wrong just now.
func inDoubt(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `
		update deed.channel_outbox set status = 'sending', request = 'x', claim = nextval('deed.claim_seq'), attempts = 1,
		  first_called_at = clock_timestamp(), called_at = clock_timestamp(), repeat_safe_until = clock_timestamp() + interval '1 day',
		  doubt_since = clock_timestamp(), doubt_reason = 'a timeout', claimed_at = null, claimed_by = null, lease_until = null
		where status = 'queued'`)
}

// A limit holds for every call: repeats of what is in doubt take tokens too.
func TestDispatch_RepeatsKeepTheLimit(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.caps.Key, f.caps.KeyWindow = delivery.HasKey, time.Hour
	var firsts atomic.Int64
	f.send = func(_ context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
		// Of every third the answer is lost. If it were of each, the provider would have failed as soon as no repeat came between some, and first calls
		// alone would try it again.
		if n == 1 && firsts.Add(1)%3 == 1 {
			return delivery.Unknown(errors.New("500")), false
		}
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	const rate, burst = 20, 2
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Rate: rate, Burst: burst}
	for range 2 {
		run(t, db, opts)
	}
	eventually(t, "the registration", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.rate_limits`) == 1
	})
	pad := make([]delivery.Delivery, 200)
	for i := range pad {
		pad[i] = email(strings.Repeat("a", i+1) + "@example.com")
	}
	begun := time.Now()
	reserve(t, db, pad...)
	eventually(t, "five seconds of calls, and repeats", func() bool {
		c := f.all()
		return len(c) > 0 && time.Since(c[0].at) > 5*time.Second && slices.ContainsFunc(c, func(c call) bool { return f.called(c.id) > 1 })
	})
	if over := overLimit(f.all(), begun, rate, burst, func(call) bool { return true }); over != "" {
		t.Error(over)
	}
}

// A repeat takes a token of its provider's and of its domain's limit.
func TestClaimDoubts_TakesTokens(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue(t, db, tenants(t, db, 1)[0], "fake", "a.example", 10)
	inDoubt(t, db)
	repeats := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.claim_doubts('fake', 'w', 8, interval '1 minute', true, false)`)
	}
	db.Exec(t, pgtest.Owner, `insert into deed.rate_limits (provider, lane, rate, burst, tokens, at) values ('fake', '', 0.001, 3, 3, now()), ('fake', 'a.example', 0.001, 2, 2, now())`)
	if n := repeats(); n != 2 {
		t.Errorf("%d repeats under a limit of two", n)
	}
	db.Exec(t, pgtest.Owner, `delete from deed.rate_limits where lane <> ''`)
	if n := repeats(); n != 1 {
		t.Errorf("%d repeats with one token left", n)
	}
	if n := repeats(); n != 0 {
		t.Errorf("%d repeats without a token", n)
	}
}

// A tenant's or a destination's thousand doubts hold up no other's.
func TestClaimDoubts_InTurns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ids := tenants(t, db, 3)
	queue(t, db, ids[0], "fake", "big.example", 1000)
	queue(t, db, ids[0], "fake", "small.example", 1)
	queue(t, db, ids[2], "fake", "big.example", 1)
	inDoubt(t, db)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() - interval '1 hour' where idempotency_key in (
		select idempotency_key from deed.channel_outbox where lane = 'big.example' and tenant_id = $1::text::uuid)`, ids[0].String())
	got := pgtest.One[string](t, db.Pool(pgtest.Worker), `
		select string_agg(left(tenant_id::text, 2) || ' ' || lane, ', ' order by tenant_id, lane)
		from (select distinct tenant_id, lane from deed.claim_doubts('fake', 'w', 8, interval '1 minute', true, false)) c`)
	if want := "01 big.example, 01 small.example, 03 big.example"; got != want {
		t.Errorf("eight repeats are of %s, want %s", got, want)
	}
}

// A destination whose repeats hang holds up no other's doubts.
func TestReconcile_ADestinationThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := tenants(t, db, 1)[0]
	for _, domain := range []string{"1.hangs.example", "2.hangs.example", "3.hangs.example", "4.hangs.example", "5.hangs.example", "6.hangs.example"} {
		queue(t, db, id, "fake", domain, 20)
	}
	queue(t, db, id, "fake", "good.example", 20)
	inDoubt(t, db)
	f := newFake()
	f.caps.Key, f.caps.KeyWindow = delivery.HasKey, time.Hour
	hold := make(chan struct{})
	defer close(hold)
	f.send = func(ctx context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if strings.Contains(r.Recipient(), "hangs") {
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return delivery.Unknown(errors.New("timeout")), false
		}
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Timeout: 10 * time.Minute}
	run(t, db, opts)
	eventually(t, "the good destination's doubts to be settled", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent'`) == 20
	})
}

// A repeat that has waited for its turn is not made to who has been suppressed
// meanwhile: it is looked at once more at the provider's door.
func TestContract_D5_NoRepeatToWhoIsSuppressedMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Broken() // the doubts are made by hand
	owner := db.Pool(pgtest.Owner)
	f := newFake().withKey(24 * time.Hour)
	goOn := make(chan struct{})
	f.send = func(ctx context.Context, _ int, _ delivery.Reservation) (delivery.Outcome, bool) {
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return delivery.Accepted("m"), true
	}
	list := make([]delivery.Delivery, 8)
	numbers := make([]string, len(list))
	for i := range list {
		numbers[i] = fmt.Sprintf("+4930123456%d", i)
		list[i] = email(numbers[i])
		list[i].Channel = delivery.Voice // without a domain: of all of them four are called at a time
	}
	reserve(t, db, list...)
	inDoubt(t, db)
	opts := fast(f)
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Timeout: 10 * time.Minute} // nobody's turn is over by itself
	run(t, db, opts)
	eventually(t, "four calls, and four that wait for their turn", func() bool {
		return len(f.all()) == 4 && pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where lease_until is not null`) == 8
	})
	if _, err := delivery.Suppress(ctx, db.Pool(pgtest.App), nil, delivery.Coverage{Channel: delivery.Voice}, numbers, audit.Act{By: "me", Reason: "asked to"}); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	eventually(t, "all to be settled", func() bool {
		return pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where status = 'called' or held_at is not null`) == 8
	})
	if calls := len(f.all()); calls != 4 {
		t.Errorf("%d calls, %d of them to who was suppressed", calls, calls-4)
	}
}

// What deed.may_repeat asks for at the door.
func TestMayRepeat(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	made := reserve(t, db, email("a@example.com"))
	inDoubt(t, db)
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.Owner, `update deed.providers set kind = 'k', account = 'acc', sandbox = false`)
	claim := pgtest.One[int64](t, worker, `select claim from deed.claim_doubts('fake', 'w', 10, '1 hour', true, false, p_kind => 'k', p_account => 'acc')`)
	may := func() bool {
		return pgtest.One[bool](t, worker, `select deed.may_repeat($1::text::uuid, $2::bigint, 'k', 'acc', false)`, made[0].ID, claim)
	}
	if !may() {
		t.Fatal("nothing has changed, and it may not be repeated")
	}
	for _, c := range []struct{ what, change, back string }{
		{"expired", `update deed.channel_outbox set expires_at = clock_timestamp()`, `update deed.channel_outbox set expires_at = null`},
		{"the provider's window is over", `update deed.channel_outbox set repeat_safe_until = clock_timestamp()`, `update deed.channel_outbox set repeat_safe_until = clock_timestamp() + interval '1 hour'`},
		{"another's claim", `update deed.channel_outbox set claim = claim + 1`, `update deed.channel_outbox set claim = claim - 1`},
		{"held", `update deed.channel_outbox set held_at = now()`, `update deed.channel_outbox set held_at = null`},
		{
			"paused", `insert into deed.pauses (provider, destination, since, until, why) values ('fake', '', now(), now() + interval '1 minute', 'x')`,
			`delete from deed.pauses`,
		},
		{
			"its lane is paused", `insert into deed.pauses (provider, destination, since, until, why) values ('fake', 'example.com', now(), now() + interval '1 minute', 'x')`,
			`delete from deed.pauses`,
		},
		{"the sandbox is on", `update deed.providers set sandbox = true`, `update deed.providers set sandbox = false`},
		{"its tenant is being removed", `insert into deed.tenant_removals (tenant_id, name, reason, actor, made_by) select tenant_id, 'x', 'x', 'x', pg_current_xact_id() from deed.channel_outbox`, `delete from deed.tenant_removals`},
		{"another account", `update deed.providers set account = 'other'`, `update deed.providers set account = 'acc'`},
		{"suppressed", `select deed.suppress('email', '{A@EXAMPLE.com}', 'asked to', 'me', '00000000-0000-0000-0000-000000000000')`, `delete from deed.suppressions`},
	} {
		db.Exec(t, pgtest.Owner, c.change)
		if may() {
			t.Errorf("%s, and it may be repeated", c.what)
		}
		db.Exec(t, pgtest.Owner, c.back)
		if !may() {
			t.Fatalf("no longer %s, and it may not be repeated", c.what)
		}
	}
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, since, until, why, probe, probe_claim) values ('fake', '', now(), now(), 'x', $1::text::uuid, $2)`, made[0].ID, claim)
	if !may() {
		t.Error("it is the pause's probe, and may not be called")
	}
}

// Where all that is due has lost its workers more than once, one of it is claimed each time, alone: its turn and its tokens are spent.
// Beside others it is every other time.
func TestClaimDoubts_WhatLosesItsWorkersIsClaimedAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // nothing recorded that they were called
	reserve(t, db, email("a@example.com"), email("b@example.com"), email("c@example.com"))
	inDoubt(t, db)
	claimed := func(others int) (n, alone int) {
		t.Helper()
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claimed_at = null, claimed_by = null, lease_until = null, attempts = 1,
			lost_claims = case when id in (select id from deed.channel_outbox order by id limit $1) then 0 else 2 end`, others)
		row := db.Pool(pgtest.Worker).QueryRow(t.Context(), `
			select count(*), count(*) filter (where c.lost_claims > 1)
			from deed.claim_doubts('fake', 'w', 8, '1 minute', true, false) d join deed.channel_outbox c using (id)`)
		if err := row.Scan(&n, &alone); err != nil {
			t.Fatal(err)
		}
		return n, alone
	}
	for range 40 {
		if n, alone := claimed(0); n != 1 || alone != 1 {
			t.Fatalf("of three that have lost their workers %d are claimed", n)
		}
		if n, alone := claimed(2); n != 1 && (n != 2 || alone != 0) || n == 1 && alone != 1 {
			t.Fatalf("%d are claimed, %d of them have lost their workers", n, alone)
		}
	}
}
