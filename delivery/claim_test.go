package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// manyTenants makes n tenants with a delivery each that is due at the SQL
// expression, null for now, and returns the last one.
func manyTenants(t testing.TB, db *pgtest.DB, n int, due string) tenant.ID {
	t.Helper()
	db.Exec(t, pgtest.Owner, `
		with made as (
		  insert into deed.tenants (tenant_id, name, created_at)
		  select lpad(to_hex(n), 32, '0')::uuid, 't' || n, now() from generate_series(1, $1::int) n
		  returning tenant_id
		)
		insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, process_after, created_at, updated_at)
		select gen_random_uuid(), m.tenant_id, sha256(convert_to(m.tenant_id::text, 'UTF8')), 'email', 'fake', 'example.com', 'a@example.com', '{}', `+due+`, now(), now()
		from made m`, n)
	return pgtest.One[tenant.ID](t, db.Pool(pgtest.Owner), `select max(tenant_id::text)::uuid from deed.tenants`)
}

// manyLanes puts a delivery into each of n lanes of the default tenant.
func manyLanes(t testing.TB, db *pgtest.DB, n int, due string) {
	t.Helper()
	db.ExecSteps(t, pgtest.Owner, n, `
		insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, process_after, created_at, updated_at)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256(convert_to('lane' || n, 'UTF8')), 'email', 'fake', n || '.example', 'a@' || n || '.example', '{}',
		  `+due+`, now(), now()
		from generate_series($1::int, $2::int) n`)
}

// A delivery that is due is found whatever else is queued, by the first claim: what
// ten thousand tenants have scheduled is not in its way.
func TestClaim_FindsWhatIsDueBehindTenThousandTenants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	last := manyTenants(t, db, 10_000, `now() + interval '1 day'`)
	f := newFake()
	db.Providers(t, "fake", "fake")
	due := func(recipient string) string {
		made, err := delivery.ReserveFor(context.Background(), db.Pool(pgtest.Worker), last, email(recipient))
		if err != nil {
			t.Fatal(err)
		}
		return made[0].ID
	}
	due("first@example.com")
	if lanes, _ := claimed(t, db, 1, ""); len(lanes) != 1 {
		t.Errorf("the first claim took %v", lanes)
	}
	run(t, db, fast(f))
	until(t, db, due("now@example.com"), delivery.Sent)
	if n := len(f.all()); n != 1 {
		t.Errorf("%d calls, want the one that is due", n)
	}
}

// What is scheduled becomes due by itself, thousands at once as well, and is
// sent; process_after stays what it was.
func TestClaim_WhatIsScheduledComesDue(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	manyLanes(t, db, 3000, `clock_timestamp() + interval '1 second'`)
	later := email("later@example.com")
	later.ProcessAfter = time.Now().Add(time.Hour)
	made := reserve(t, db, later)
	l, _ := run(t, db, fast(newFake()))
	drained(t, l)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent' and sent_at >= process_after`); n != 3000 {
		t.Errorf("%d of 3000 sent after they were due", n)
	}
	if e := entry(t, db, made[0].ID); e.Status != delivery.Queued {
		t.Errorf("what is due in an hour is %s", e.Status)
	}
	// Put off and pulled forward, it follows its one schedule.
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where id = $1::text::uuid`, made[0].ID)
	until(t, db, made[0].ID, delivery.Sent)
}

// What a tenant has scheduled for one moment, however much it is, does not delay
// what others have scheduled for the same: their tenants are gone round.
func TestClaim_ScheduledByOneDelaysNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	manyTenants(t, db, 150, `now() - interval '1 hour' + interval '10 seconds'`)
	manyLanes(t, db, 20_000, `now() - interval '1 hour' + n * interval '1 millisecond'`) // as many before as after them
	var walk struct {
		Ripened *string `json:"ripened"`
	}
	for claims := 1; ; claims++ {
		told, _ := json.Marshal(walk)
		text := pgtest.One[string](t, db.Pool(pgtest.Worker), `select walk::text from deed.claim_deliveries('fake', 'w', 1, '1 minute', p_places => $1::text::jsonb) where id is null`, string(told))
		if err := json.Unmarshal([]byte(text), &walk); err != nil {
			t.Fatal(err)
		}
		due := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where due and lane = 'example.com'`)
		if due == 150 {
			return
		}
		if claims == 2 {
			t.Fatalf("after %d claims %d of the 150 tenants' deliveries are due", claims, due)
		}
	}
}

// claimed is one claim by SQL, for longer than a test takes: what it took, by lane, and what it says.
func claimed(t testing.TB, db *pgtest.DB, limit int, args string) (lanes []string, walk map[string]any) {
	t.Helper()
	rows, err := db.Pool(pgtest.Worker).Query(context.Background(), `select coalesce(lane, ''), walk::text from deed.claim_deliveries('fake', 'w', $1, interval '1 hour', p_places => '{}'`+args+`)`, limit)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var lane string
		var text *string
		if err := rows.Scan(&lane, &text); err != nil {
			t.Fatal(err)
		}
		if text == nil {
			lanes = append(lanes, lane)
		} else if err := json.Unmarshal([]byte(*text), &walk); err != nil {
			t.Fatal(err)
		}
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return lanes, walk
}

// A claim that finds nothing says when it may find something: it need not look
// every few milliseconds at what is scheduled, leased, or over its limit.
func TestClaim_SaysWhenToLookAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	if lanes, walk := claimed(t, db, 10, ""); len(lanes) != 0 || walk["wait"] != nil {
		t.Errorf("with nothing: %v %v", lanes, walk)
	}
	manyLanes(t, db, 3, `now() + interval '1 hour'`)
	if _, walk := claimed(t, db, 10, ""); walk["wait"] == nil || walk["wait"].(float64) < 3000 {
		t.Errorf("with what is due in an hour: %v", walk)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null`)
	if lanes, _ := claimed(t, db, 10, ""); len(lanes) != 3 {
		t.Errorf("claimed %v", lanes)
	}
	if lanes, walk := claimed(t, db, 10, ""); len(lanes) != 0 || walk["wait"] != nil {
		t.Errorf("with all leased: %v %v", lanes, walk)
	}
	manyTenants(t, db, 3, `null`)
	db.Exec(t, pgtest.Owner, `insert into deed.rate_limits (provider, lane, rate, burst, tokens, at) values ('fake', 'example.com', 0.001, 1, 0.5, clock_timestamp())`)
	if lanes, walk := claimed(t, db, 10, ""); len(lanes) != 0 || walk["wait"] == nil || walk["wait"].(float64) < 400 {
		t.Errorf("with a lane over its limit: %v %v", lanes, walk)
	}
	if n := pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where claim is not null`); n != 3 {
		t.Errorf("%d claimed", n)
	}
}

// Lanes take turns within a tenant, also when a claim takes fewer than there
// are, and a claim goes on where the last one left off.
func TestClaim_GoesOnWhereItLeftOff(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	manyLanes(t, db, 50, `null`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set run_id = '00000000-0000-0000-0000-000000000001' where lane in ('1.example', '2.example')`)
	seen := map[string]int{}
	places := `{}`
	for range 10 {
		rows, err := db.Pool(pgtest.Worker).Query(context.Background(), `
			select coalesce(lane, ''), walk::text from deed.claim_deliveries('fake', 'w', 5, interval '1 minute', p_places => $1::text::jsonb, p_runs => true)`, places)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var lane string
			var walk *string
			if err := rows.Scan(&lane, &walk); err != nil {
				t.Fatal(err)
			}
			if walk == nil {
				seen[lane]++
				continue
			}
			var w struct {
				After  string             `json:"after"`
				Places map[string]*string `json:"places"`
			}
			if err := json.Unmarshal([]byte(*walk), &w); err != nil {
				t.Fatal(err)
			}
			told := map[string]any{"after": w.After}
			for k, v := range w.Places {
				if v != nil {
					told[k] = *v
				}
			}
			text, _ := json.Marshal(told)
			places = string(text)
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
		// Lanes are as full as ever.
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claim = null, claimed_at = null, claimed_by = null, lease_until = null`)
		if seen["1.example"]+seen["2.example"] == 0 {
			t.Fatal("the run had no turn beside the rest of its tenant")
		}
	}
	if len(seen) < 20 {
		t.Errorf("ten claims of five came by %d lanes: %v", len(seen), seen)
	}
}

// The contents of what is claimed are bounded, of a claim and in hand, and one
// delivery is always taken.
func TestClaim_BoundedByBytes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pad := strings.Repeat("x", 5<<20)
	db.Exec(t, pgtest.Owner, `
		insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, created_at, updated_at)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256(n::text::bytea), 'email', 'fake', n || '.example', 'a@' || n || '.example',
		  jsonb_build_object('text', $1::text), now(), now()
		from generate_series(1, 30) n`, pad)
	if lanes, _ := claimed(t, db, 100, `, p_bytes => 12 * 1024 * 1024`); len(lanes) != 2 {
		t.Errorf("12 MiB hold %d deliveries of 5 MiB", len(lanes))
	}
	if lanes, _ := claimed(t, db, 100, `, p_bytes => 0`); len(lanes) != 1 {
		t.Errorf("no bytes at all: %d", len(lanes))
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claim = null, claimed_at = null, claimed_by = null, lease_until = null`)
	// What an older program reserved has no size stored.
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set payload_bytes = null where lane < '2'`)
	f := newFake()
	f.render = func(delivery.Draft) ([]byte, error) { return []byte("small"), nil }
	hold := make(chan struct{})
	f.send = func(ctx context.Context, _ int, _ delivery.Reservation) (delivery.Outcome, bool) {
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Concurrency: 64}
	l, _ := run(t, db, opts)
	leased := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where lease_until is not null`)
	}
	eventually(t, "as many as may be in hand", func() bool { return leased() >= 6 })
	if n := leased(); n > 7 {
		t.Errorf("%d deliveries of 5 MiB are in hand, want at most 32 MiB of one tenant's", n)
	}
	close(hold)
	drained(t, l)
}

// A delivery whose claims are lost, again and again, is claimed alone and ends
// dead, with that reason (O17); put back by a person it begins anew.
func TestContract_O17_ADeliveryThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	made := reserve(t, db, email("poison@example.com"))
	lose := func(rounds int) (alone, together int) {
		for range rounds {
			rows, err := db.Pool(pgtest.Worker).Query(ctx, `select id::text from deed.claim_deliveries('fake', 'w', 10, interval '1 minute')`)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(ids, made[0].ID) {
				if len(ids) == 1 {
					alone++
				} else {
					together++
				}
				db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second' where id = $1::text::uuid`, made[0].ID)
			}
			// The others are given back.
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claim = null, claimed_at = null, claimed_by = null, lease_until = null where id <> $1::text::uuid`, made[0].ID)
		}
		return alone, together
	}
	lose(1)
	reserve(t, db, email("a@example.com"), email("b@other.example"))
	if alone, together := lose(1); together != 1 {
		t.Errorf("after its first lost claim: alone %d, with others %d", alone, together)
	}
	for n := 0; entry(t, db, made[0].ID).Status == delivery.Queued; n++ {
		if _, together := lose(1); together > 0 {
			t.Fatal("claimed with others after two lost claims")
		}
		if n > 1000 {
			t.Fatal("it never ends")
		}
	}
	e := entry(t, db, made[0].ID)
	if e.Status != delivery.Dead || e.Attempts != 0 || !strings.Contains(e.LastError, "claim lost 15 times") {
		t.Errorf("%s after %d attempts: %q", e.Status, e.Attempts, e.LastError)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where subject_id = $1 and to_status = 'dead' and reason like 'claim lost 15 times%'`, made[0].ID); n != 1 {
		t.Errorf("%d audit rows", n)
	}
	pgtest.One[int64](t, db.Pool(pgtest.Admin), `select deed.retry_deliveries(array[$1::text::uuid], 'mended', 'me')`, made[0].ID)
	l, _ := run(t, db, fast(newFake()))
	drained(t, l)
	if e := entry(t, db, made[0].ID); e.Status != delivery.Sent {
		t.Errorf("after a person put it back: %s %q", e.Status, e.LastError)
	}
}

// One that was put back in doubt, and then kills its workers before they call, is dead and says that
// an earlier call may have been accepted.
func TestClaim_WhatIsDeadByItsClaimsSaysThatItWasInDoubt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	d := email("poison@example.com")
	d.Guarantee = delivery.AtLeastOnce
	id := reserve(t, db, d)[0].ID
	worker := db.Pool(pgtest.Worker)
	lost := func() {
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second' where lease_until is not null`)
	}
	claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'w', 1, interval '1 minute')`)
	if status := pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, interval '1 minute', 'w')`, id, claim); status != "sending" {
		t.Fatal(status)
	}
	lost()
	db.Exec(t, pgtest.Worker, `select from deed.claim_doubts('fake', 'w', 8, interval '1 minute', false, false)`)
	if e := entry(t, db, id); e.Status != delivery.Queued || e.UnsettledSince == nil {
		t.Fatalf("after its doubt: %+v", e)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp()`) // its pause is over
	for n := 0; entry(t, db, id).Status == delivery.Queued; n++ {
		if n > 1000 {
			t.Fatal("it never ends")
		}
		db.Exec(t, pgtest.Worker, `select from deed.claim_deliveries('fake', 'w', 10, interval '1 minute')`)
		lost()
	}
	if e := entry(t, db, id); e.Status != delivery.Dead || !strings.Contains(e.LastError, "claim lost 15 times") || !strings.Contains(e.LastError, "an earlier call may have been accepted") {
		t.Errorf("%s: %q", e.Status, e.LastError)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where subject_id = $1 and to_status = 'dead' and reason like '%; an earlier call may have been accepted'`, id); n != 1 {
		t.Errorf("%d audit rows say so", n)
	}
}

// One that may have been sent is never called dead: its repeats are lost, again
// and again, and it is held for a person.
func TestContract_O17_ADeliveryInDoubtIsHeld(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	d := email("poison@example.com")
	d.Guarantee = delivery.AtLeastOnce
	made := reserve(t, db, d)
	worker := db.Pool(pgtest.Worker)
	claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'w', 1, interval '1 minute')`)
	if _, err := worker.Exec(ctx, `select deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], interval '1 day', interval '1 minute', 'w')`, made[0].ID, claim); err != nil {
		t.Fatal(err)
	}
	repeats := 0
	for n := 0; entry(t, db, made[0].ID).HeldAt == nil; n++ {
		if n > 1000 {
			t.Fatal("it is never held")
		}
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second', process_after = null where lease_until is not null`)
		rows, err := worker.Query(ctx, `select action from deed.claim_doubts('fake', 'w', 8, interval '1 minute', true, false)`)
		if err != nil {
			t.Fatal(err)
		}
		actions, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		repeats += len(actions)
	}
	e := entry(t, db, made[0].ID)
	if e.Status != delivery.Sending || !strings.Contains(e.DoubtReason, "claim lost 15 times") || repeats != 14 {
		t.Errorf("after %d repeats it is %s: %q", repeats, e.Status, e.DoubtReason)
	}
}

// Twenty destinations that hang hold up no other, whatever the provider says of
// its domains.
func TestDispatch_TwentyThatHangHoldUpNoOther(t *testing.T) {
	t.Parallel()
	for _, lanes := range []delivery.LaneKind{delivery.LanePerDomain, delivery.LanePerHost} {
		t.Run(string(lanes), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			f := newFake()
			f.caps.Lanes = lanes
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
			// So long that the test fails if anything waits for one of these.
			opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Timeout: 10 * time.Minute}
			var bad, good []delivery.Delivery
			for i := range 20 {
				for k := range 10 {
					bad = append(bad, email(fmt.Sprintf("%d@%d.hangs.example", k, i)))
				}
			}
			for i := range 100 {
				good = append(good, email(fmt.Sprintf("a@%d.example", i)), email(fmt.Sprintf("%d@big.example", i)))
			}
			reserve(t, db, bad...)
			run(t, db, opts)
			hanging := func() (destinations int) {
				seen := map[string]bool{}
				for _, c := range f.all() {
					if _, domain, _ := strings.Cut(c.recipient, "@"); strings.HasSuffix(domain, "hangs.example") {
						seen[domain] = true
					}
				}
				return len(seen)
			}
			eventually(t, "all of them to hang", func() bool { return hanging() == 20 })
			reserve(t, db, good...)
			eventually(t, "all others to be sent", func() bool {
				return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent'`) == len(good)
			})
			if n := len(f.all()) - len(good); n != 20 {
				t.Errorf("%d calls to destinations that hang, want one each", n)
			}
		})
	}
}

// Who was passed over, as his lane had no room, keeps his turn.
func TestClaim_WhoIsPassedOverKeepsHisTurn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	manyTenants(t, db, 5, `null`)
	after := ""
	for range 5 {
		args := `, p_lanes => '{example.com}', p_rooms => '{1}'`
		if after != "" {
			args += fmt.Sprintf(`, p_places => '{"after": "%s"}'`, after)
		} else {
			args += `, p_places => '{}'`
		}
		after = pgtest.One[string](t, db.Pool(pgtest.Worker), `
			select max(walk ->> 'after') from deed.claim_deliveries('fake', 'w', 4, interval '1 minute'`+args+`)`)
		// It is as full as ever.
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lost_claims = 0, correlation_id = 'had its turn', claim = null, claimed_at = null, claimed_by = null, lease_until = null where claim is not null`)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where correlation_id = 'had its turn'`); n != 5 {
		t.Errorf("%d of five tenants had their turn in five claims", n)
	}
}
