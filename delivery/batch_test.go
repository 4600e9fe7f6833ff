package delivery_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// van is a provider of which one call takes several deliveries, and which honours
// the keys of both kinds of call.
type van struct {
	*fake
	// batch judges the n-th call of several; nil accepts. taken says that the
	// provider took those that it accepts, whatever it answers.
	batch func(n int, b delivery.Batch) (outs []delivery.Outcome, taken bool)

	lock  sync.Mutex
	calls []vanCall
	known map[string][]byte
	took  map[string]int // by delivery, of either kind of call
}

type vanCall struct {
	key, body  string
	ids, whose []string
	repeat     bool
}

func newVan(size int) *van {
	v := &van{fake: newFake().withKey(time.Hour), known: map[string][]byte{}, took: map[string]int{}}
	v.caps.Batch = size
	return v
}

func (v *van) Batchable(request []byte) bool { return !bytes.Contains(request, []byte("bulky")) }

func (v *van) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	out := v.fake.Send(ctx, r)
	v.lock.Lock()
	defer v.lock.Unlock()
	if _, ok := v.known[r.Key()]; !ok && out.String() == "accepted" {
		v.known[r.Key()] = nil
		v.took[r.ID()]++
	}
	return out
}

func (v *van) SendBatch(_ context.Context, b delivery.Batch) []delivery.Outcome {
	v.lock.Lock()
	defer v.lock.Unlock()
	c := vanCall{key: b.Key(), repeat: b.Repeat()}
	for _, m := range b.Members() {
		request, err := m.Request()
		if err != nil {
			return b.All(delivery.Refused(err))
		}
		c.body += string(request) + "\n"
		c.ids, c.whose = append(c.ids, m.ID()), append(c.whose, m.Recipient())
	}
	v.calls = append(v.calls, c)
	outs, taken := b.All(delivery.Accepted("m")), true
	if v.batch != nil {
		outs, taken = v.batch(len(v.calls), b)
	}
	known, ok := v.known[c.key]
	if ok && string(known) != c.body {
		return b.All(delivery.Unknown(fmt.Errorf("another request under the key %s", c.key)))
	}
	if !ok && taken {
		v.known[c.key] = []byte(c.body)
		for i, id := range c.ids {
			if i >= len(outs) || outs[i].String() != "refused" {
				v.took[id]++
			}
		}
	}
	return outs
}

func (v *van) batches() []vanCall {
	v.lock.Lock()
	defer v.lock.Unlock()
	return slices.Clone(v.calls)
}

func (v *van) times(id string) int {
	v.lock.Lock()
	defer v.lock.Unlock()
	return v.took[id]
}

// lostOnce takes the first call and loses its answer.
func lostOnce(n int, b delivery.Batch) ([]delivery.Outcome, bool) {
	if n == 1 {
		return b.All(delivery.Unknown(errCut)), true
	}
	return b.All(delivery.Accepted("m")), true
}

// reserve reserves deliveries of the installation's own tenant, or of owner's, when
// the provider is registered.
func (v *van) reserve(t testing.TB, db *pgtest.DB, list ...delivery.Delivery) []delivery.Reserved {
	t.Helper()
	return v.reserveFor(t, db, tenant.Default, list...)
}

func (v *van) reserveFor(t testing.TB, db *pgtest.DB, owner tenant.ID, list ...delivery.Delivery) []delivery.Reserved {
	t.Helper()
	if err := ledger(t, db, fast(v)).Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, err := delivery.ReserveFor(t.Context(), db.Pool(pgtest.Worker), owner, list...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func several(n int, change func(i int, d *delivery.Delivery)) []delivery.Delivery {
	list := make([]delivery.Delivery, n)
	for i := range list {
		list[i] = email(fmt.Sprintf("p@d%d.example", i)) // each of a lane of its own
		list[i].Payload = fmt.Appendf(nil, `{"n": %d}`, i)
		if change != nil {
			change(i, &list[i])
		}
	}
	return list
}

// A lane of one member that has all its calls hang puts off nobody else of the batch: a
// repeat is one call, whole or never.
func TestBatch_OneLaneThatHangsHoldsUpNoRepeat(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	v := newVan(10)
	v.batch, v.caps.SettleDelay = lostOnce, time.Hour
	over := make(chan struct{})
	v.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		<-over
		return delivery.Accepted("m"), true
	}
	v.reserve(t, db, several(5, nil)...)
	opts := fast(v)
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: v, PerLane: 1}
	run(t, db, opts)
	t.Cleanup(func() { close(over) })
	eventually(t, "the doubt", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where doubt_since is not null and lease_until is null`) == 5
	})
	hang := []delivery.Delivery{email("q@d3.example"), email("r@d3.example")} // it has one call, and one more when that hangs
	for i := range hang {
		hang[i].Payload = []byte(`{"bulky": true}`)
	}
	made := v.reserve(t, db, hang...)
	eventually(t, "the calls that hang", func() bool { return v.called(made[0].ID) == 1 && v.called(made[1].ID) == 1 })
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where batch_place = 1`)
	eventually(t, "the repeat", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent'`) == 5
	})
	for _, m := range made {
		if e := entry(t, db, m.ID); e.Status != delivery.Sending || e.DoubtSince != nil {
			t.Errorf("a call that hangs is over: %+v", e)
		}
	}
}

// A batch whose answer was lost is repeated whole: the same members in the same
// order, the same bytes, the same key; and the provider takes each once.
func TestContract_D5_ABatchIsRepeatedWhole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	v := newVan(10)
	v.batch = lostOnce
	made := v.reserve(t, db, several(5, nil)...)
	run(t, db, fast(v))
	places := map[int]bool{}
	var id string
	for _, m := range made {
		e := until(t, db, m.ID, delivery.Sent)
		if e.Attempts != 2 || v.times(m.ID) != 1 || e.Batch == nil || e.Batch.Size != 5 || id != "" && e.Batch.ID != id {
			t.Fatalf("taken %d times: %+v, %+v", v.times(m.ID), e, e.Batch)
		}
		id, places[e.Batch.Place] = e.Batch.ID, true
	}
	calls := v.batches()
	if len(calls) != 2 || calls[0].key != "deed-batch-"+id || calls[0].key != calls[1].key || calls[0].body != calls[1].body || calls[0].repeat || !calls[1].repeat || len(places) != 5 {
		t.Errorf("calls: %+v", calls)
	}
	attempts, _, err := ledger(t, db, delivery.Options{}).Attempts(context.Background(), made[0].ID)
	if err != nil || len(attempts) != 1 || attempts[0].ProviderKey != calls[0].key || attempts[0].Outcome != "unknown" {
		t.Errorf("%+v, %v", attempts, err)
	}
}

// If one member may not be called again, none is under the batch's key: each is
// settled by its guarantee, and nobody who may not be is written to.
func TestContract_D5_ABatchIsRepeatedWholeOrNever(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, c := range map[string]struct {
		to   func(t *testing.T, db *pgtest.DB, _ *delivery.Ledger, id string)
		want delivery.Status // of that member
	}{
		"suppressed": {func(t *testing.T, db *pgtest.DB, _ *delivery.Ledger, id string) {
			db.Exec(t, pgtest.Owner, `select deed.suppress(c.channel, array[c.recipient], 'asked to', 'ann', c.tenant_id) from deed.channel_outbox c where c.id = $1::text::uuid`, id)
		}, delivery.Sending},
		"erased": {func(t *testing.T, db *pgtest.DB, l *delivery.Ledger, id string) {
			db.Exec(t, pgtest.Owner, `select from deed.erase_deliveries(array[$1::text::uuid], 'ann')`, id)
		}, delivery.Failed},
		"settled by a person": {func(t *testing.T, db *pgtest.DB, _ *delivery.Ledger, id string) {
			db.Exec(t, pgtest.Admin, `select deed.settle_delivery($1::text::uuid, 'failed', 'cancelled', 'ann')`, id)
		}, delivery.Failed},
		"proved by an event": {func(t *testing.T, db *pgtest.DB, l *delivery.Ledger, id string) {
			if ended, err := l.Prove(ctx, id, "m", "events"); err != nil || !ended {
				t.Fatal(ended, err)
			}
		}, delivery.Sent},
		"expired": {func(t *testing.T, db *pgtest.DB, _ *delivery.Ledger, id string) {
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set expires_at = clock_timestamp() where id = $1::text::uuid`, id)
		}, delivery.Sending},
		"past the window": {func(t *testing.T, db *pgtest.DB, _ *delivery.Ledger, _ string) {
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set batch_until = clock_timestamp()`)
		}, delivery.Sending},
	} {
		for _, place := range []int{1, 3} { // the first one stands for all
			t.Run(fmt.Sprintf("%s/%d", name, place), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				v := newVan(10)
				v.caps.SettleDelay = time.Hour
				v.batch = func(_ int, b delivery.Batch) ([]delivery.Outcome, bool) { return b.All(delivery.Unknown(errCut)), true }
				made := v.reserve(t, db, several(5, nil)...)
				l, stop := run(t, db, fast(v))
				owner := db.Pool(pgtest.Owner)
				eventually(t, "the batch to be in doubt", func() bool {
					return pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where doubt_since is not null and lease_until is null`) == 5
				})
				stop()
				db.Exec(t, pgtest.Owner, `update deed.channel_outbox set guarantee = 'at_least_once' where batch_place = 5`)
				// Called alone before that, and certainly not taken: its own key is no way out.
				db.Exec(t, pgtest.Owner, `update deed.channel_outbox set repeat_safe_until = clock_timestamp() + interval '1 hour'`)
				db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where batch_place = 1`)
				c.to(t, db, l, pgtest.One[string](t, owner, `select id::text from deed.channel_outbox where batch_place = $1`, place))
				run(t, db, fast(v))
				for _, m := range made {
					switch at := pgtest.One[int](t, owner, `select coalesce(batch_place, 5) from deed.channel_outbox where id = $1::text::uuid`, m.ID); {
					case at == place && c.want != delivery.Sending:
						until(t, db, m.ID, c.want)
					case at == 5: // again, alone
						if e := until(t, db, m.ID, delivery.Sent); e.Batch != nil || e.UnsettledSince == nil || v.called(m.ID) != 1 {
							t.Errorf("%+v", e)
						}
					default:
						if e := held(t, db, m.ID); e.Batch == nil || e.Batch.Until != nil || v.called(m.ID) != 0 {
							t.Errorf("held: %+v, %+v", e, e.Batch)
						}
					}
				}
				if n := len(v.batches()); n != 1 {
					t.Errorf("%d calls of the batch", n)
				}
			})
		}
	}
}

// Who is skipped when the attempt is written is not in what is sent.
func TestBatch_WhoIsSkippedIsLeftOut(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	v := newVan(10)
	made := v.reserve(t, db, several(4, nil)...)
	db.Exec(t, pgtest.Owner, `select deed.suppress(c.channel, array[c.recipient], 'asked to', 'ann', c.tenant_id) from deed.channel_outbox c where c.id = $1::text::uuid`, made[0].ID)
	run(t, db, fast(v))
	until(t, db, made[0].ID, delivery.Skipped)
	for _, m := range made[1:] {
		if e := until(t, db, m.ID, delivery.Sent); e.Batch.Size != 3 || e.Batch.Place > 3 {
			t.Errorf("%+v", e.Batch)
		}
	}
	calls := v.batches()
	if len(calls) != 1 || slices.Contains(calls[0].ids, made[0].ID) || strings.Contains(calls[0].body, `"n": 0`) {
		t.Errorf("%+v", calls)
	}
}

// What is refused in a batch is called alone, and that decides; the others have
// been sent. And so is all of a batch that is refused as such.
func TestBatch_WhatIsRefusedGoesAlone(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]bool{"one": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			v := newVan(10)
			v.batch = func(_ int, b delivery.Batch) ([]delivery.Outcome, bool) {
				outs := b.All(delivery.Accepted("m"))
				for i, m := range b.Members() {
					if all || m.Recipient() == "p@d1.example" {
						outs[i] = delivery.Refused(errCut)
					}
				}
				return outs, true
			}
			v.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
				if r.Recipient() == "p@d1.example" {
					return delivery.Refused(errCut), false
				}
				return delivery.Accepted("m"), true
			}
			made := v.reserve(t, db, several(3, func(_ int, d *delivery.Delivery) { d.MaxAttempts = 1 })...)
			run(t, db, fast(v))
			for i, m := range made {
				want := delivery.Sent
				if i == 1 {
					want = delivery.Failed
				}
				e := until(t, db, m.ID, want)
				if alone := all || i == 1; e.Attempts != 1 || (v.called(m.ID) == 1) != alone || (e.Batch == nil) != alone {
					t.Errorf("%d: %+v", i, e)
				}
			}
			if n := len(v.batches()); n != 1 {
				t.Errorf("%d batches", n)
			}
		})
	}
}

// An answer that does not say what became of each says nothing, and a panic or an
// end of the goroutine neither: all are in doubt, and repeated.
func TestContract_D5_ABatchsAnswerThatIsShort(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(b delivery.Batch) []delivery.Outcome{
		"short": func(b delivery.Batch) []delivery.Outcome { return b.All(delivery.Accepted("m"))[1:] },
		"none":  func(delivery.Batch) []delivery.Outcome { return nil },
		"panic": func(delivery.Batch) []delivery.Outcome { panic("the adapter is broken") },
		"goexit": func(delivery.Batch) []delivery.Outcome {
			runtime.Goexit()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			v := newVan(10)
			v.batch = func(n int, b delivery.Batch) ([]delivery.Outcome, bool) {
				if n == 1 {
					return first(b), true
				}
				return b.All(delivery.Accepted("m")), true
			}
			made := v.reserve(t, db, several(3, nil)...)
			run(t, db, fast(v))
			for _, m := range made {
				if e := until(t, db, m.ID, delivery.Sent); e.Attempts != 2 || v.times(m.ID) > 1 {
					t.Errorf("taken %d times: %+v", v.times(m.ID), e)
				}
			}
		})
	}
}

// An outage tries the same deliveries again, in batches; it costs them nothing.
func TestBatch_AnOutageCostsNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	v := newVan(10)
	v.batch = func(n int, b delivery.Batch) ([]delivery.Outcome, bool) {
		if n == 1 {
			return b.All(delivery.Outage(errCut, 0)), false
		}
		return b.All(delivery.Accepted("m")), true
	}
	made := v.reserve(t, db, several(6, nil)...)
	run(t, db, fast(v))
	batched := 0
	for _, m := range made {
		e := until(t, db, m.ID, delivery.Sent)
		if e.Attempts != 1 || v.times(m.ID) != 1 {
			t.Errorf("%+v", e)
		}
		if e.Batch != nil {
			batched++
		}
	}
	if batched != 5 { // one found out alone whether it was over
		t.Errorf("%d went in a batch", batched)
	}
	if failures := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where action = 'doubt'`); failures != 0 {
		t.Errorf("%d were in doubt", failures)
	}
}

// A batch is of one tenant and at most as large as the provider says; what is too
// bulky, and whatever goes to the sandbox, goes alone.
func TestContract_D7_ABatchIsOfOneTenant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	v := newVan(4)
	var all []delivery.Reserved
	for k, id := range tenants(t, db, 3) {
		list := several(10, func(i int, d *delivery.Delivery) {
			d.Recipient = fmt.Sprintf("t%d@d%d.example", k, i)
			if i == 5 {
				d.Payload = []byte(`{"bulky": true}`)
			}
		})
		all = append(all, v.reserveFor(t, db, id, list...)...)
	}
	run(t, db, fast(v))
	for _, m := range all {
		until(t, db, m.ID, delivery.Sent)
	}
	for _, c := range v.batches() {
		if len(c.ids) > 4 || strings.Contains(c.body, "bulky") {
			t.Errorf("%d in one: %q", len(c.ids), c.body)
		}
		for _, r := range c.whose {
			if r[:2] != c.whose[0][:2] {
				t.Errorf("tenants are mixed: %q", c.whose)
			}
		}
	}
	if len(v.batches()) == 0 {
		t.Error("nothing went in a batch")
	}

	other, boxed := pgtest.New(t), newVan(4)
	opts := fast(boxed)
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: boxed, Sandbox: "me@example.com"}
	made := boxed.reserve(t, other, several(4, nil)...)
	run(t, other, opts)
	for _, m := range made {
		until(t, other, m.ID, delivery.Skipped)
	}
	if n := len(boxed.batches()); n != 0 {
		t.Errorf("%d batches went to the sandbox", n)
	}
}

// The provider's limit is of calls: a batch is one.
func TestBatch_LimitsCountCalls(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker, v := db.Pool(pgtest.Worker), newVan(25)
	v.reserve(t, db, several(60, nil)...)
	for _, id := range tenants(t, db, 4) {
		v.reserveFor(t, db, id, several(1, nil)...)
	}
	db.Exec(t, pgtest.Owner, `insert into deed.rate_limits (provider, lane, rate, burst, tokens, at) values ('fake', '', 0.001, 3, 3, clock_timestamp())`)
	claim := func() (deliveries, calls int) {
		err := worker.QueryRow(t.Context(), `select count(*), count(distinct (tenant_id, call)) from deed.claim_deliveries('fake', 'w', 200, '1 minute', p_batch => 25)`).Scan(&deliveries, &calls)
		if err != nil {
			t.Fatal(err)
		}
		return deliveries, calls
	}
	deliveries, calls := claim()
	if left := pgtest.One[float64](t, worker, `select tokens from deed.rate_limits where provider = 'fake'`); calls != 3 || deliveries < 3 || deliveries > 75 || left > 0.01 {
		t.Errorf("%d deliveries in %d calls, and %g tokens are left", deliveries, calls, left)
	}
	if deliveries, _ := claim(); deliveries != 0 {
		t.Errorf("%d were claimed without a token", deliveries)
	}
	db.Exec(t, pgtest.Owner, `update deed.rate_limits set burst = 100, tokens = 100, at = clock_timestamp()`)
	if deliveries, calls := claim(); deliveries < 3 || pgtest.One[float64](t, worker, `select round(tokens) from deed.rate_limits where provider = 'fake'`) != float64(100-calls) {
		t.Errorf("%d deliveries in %d calls are paid for otherwise", deliveries, calls)
	}
}

// Whoever was calling a batch is gone, as after a crash, or frozen past its lease:
// it is repeated whole under the key that was stored before the call, and what the
// frozen one says late changes nothing.
func TestContract_D4_ABatchWhoseCallerIsGone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	v := newVan(10)
	made := v.reserve(t, db, several(3, nil)...)
	worker := db.Pool(pgtest.Worker)
	ids, claims, batch := attempted(t, worker, 3)
	run(t, db, fast(v)) // beside who has it in hand
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp()`)
	for _, m := range made {
		if e := until(t, db, m.ID, delivery.Sent); e.Attempts != 2 || e.Batch.ID != batch {
			t.Errorf("%+v, %+v", e, e.Batch)
		}
	}
	calls := v.batches()
	if len(calls) != 1 || !calls[0].repeat || calls[0].key != "deed-batch-"+batch || !slices.Equal(calls[0].ids, ids) {
		t.Fatalf("%+v, want %q", calls, ids)
	}
	db.Exec(t, pgtest.Worker, `select from deed.settle($1::text[]::uuid[], $2, array_fill('unknown'::text, array[3]), array_fill(null::text, array[3]), array_fill(null::text, array[3]), array_fill(null::float8, array[3]), 'frozen')`, ids, claims)
	for _, m := range made {
		if e := entry(t, db, m.ID); e.Status != delivery.Sent || v.times(m.ID) != 1 {
			t.Errorf("%+v", e)
		}
	}
}

// Somebody who does not know of batches leaves them alone; a provider that takes
// none any more has them settled one by one.
func TestBatch_ForThoseWhoKnowNone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	made := newVan(10).reserve(t, db, several(3, nil)...)
	worker := db.Pool(pgtest.Worker)
	attempted(t, worker, 3)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp()`)
	for range 2 {
		if n := pgtest.One[int](t, worker, `select count(*) from deed.claim_doubts('fake', 'old', 8, '1 minute', true, false)`); n != 0 {
			t.Errorf("%d were claimed", n)
		}
	}
	if n := pgtest.One[int](t, worker, `select count(*) from deed.channel_outbox where doubt_since is not null and held_at is null and batch_until is not null`); n != 3 {
		t.Errorf("%d of 3 wait", n)
	}
	run(t, db, fast(newFake().withKey(time.Hour)))
	for _, m := range made {
		held(t, db, m.ID)
	}
}

// A batch of which one member is in somebody's hand is claimed by nobody.
func TestBatch_IsClaimedWhole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newVan(10).reserve(t, db, several(3, nil)...)
	worker := db.Pool(pgtest.Worker)
	ids, _, _ := attempted(t, worker, 3)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp()`)
	claim := func() int {
		t.Helper()
		return pgtest.One[int](t, worker, `select count(*) from deed.claim_doubts('fake', 'w', 8, '1 minute', true, false, p_batches => true)`)
	}
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	db.Exec(t, pgtest.Worker, `select from deed.claim_doubts('fake', 'w', 0, '1 minute', true, false, p_batches => true)`) // in doubt by now
	if _, err := tx.Exec(t.Context(), `select from deed.channel_outbox where id = $1::text::uuid for update`, ids[2]); err != nil {
		t.Fatal(err)
	}
	if n := claim(); n != 0 {
		t.Errorf("%d of 3 were claimed", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := claim(); n != 3 {
		t.Errorf("%d of 3 were claimed", n)
	}
}

// attempted claims n deliveries and writes that one call makes them, as a worker
// does that then calls.
func attempted(t testing.TB, worker *pgxpool.Pool, n int) (ids []string, claims []int64, batch string) {
	t.Helper()
	err := worker.QueryRow(t.Context(), `select array_agg(id::text order by id), array_agg(claim) from deed.claim_deliveries('fake', 'frozen', $1, '1 minute', p_batch => 100)`, n).Scan(&ids, &claims)
	if err != nil || len(ids) != n {
		t.Fatal(ids, err)
	}
	batch = "00000000-0000-7000-8000-000000000001"
	rows, err := worker.Exec(t.Context(), `select from deed.attempt($1::text[]::uuid[], $2, array_fill('{}'::bytea, array[$3::int]), '1 hour', '1 minute', 'frozen', 'fake', '', false, array_fill($4::text::uuid, array[$3::int]))`, ids, claims, n, batch)
	if err != nil || rows.RowsAffected() != int64(n) {
		t.Fatal(rows, err)
	}
	return ids, claims, batch
}
