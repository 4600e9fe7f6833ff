package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

var statuses = []string{"queued", "sending", "sent", "called", "posted", "failed", "dead", "skipped"}

// raw inserts a row as the owner, who may do anything that the database lets
// anybody do.
const raw = `insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, recipient, payload, created_at, updated_at, status, skipped, skip_reason,
	finished_at, sent_at, request, claim, attempts, first_called_at, called_at)
 values ($1::text::uuid, '00000000-0000-0000-0000-000000000000', sha256(convert_to($1, 'UTF8')), $3, 'p', 'a@example.com', '{}', now(), now(), $2, $2 = 'skipped',
	case when $2 = 'skipped' then 'x' end, case when $2 not in ('queued', 'sending') then now() end, case when $2 in ('sent', 'called', 'posted') then now() end,
	'x', 1, 1, now(), now())`

func channelOf(status string) string {
	if channel, ok := map[string]string{"called": "voice", "posted": "social"}[status]; ok {
		return channel
	}
	return "email"
}

// The database refuses every change of status but those of its table, whoever
// asks; and every impossible row.
func TestContract_D3_OnlyTheTransitions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	owner := db.Conn(t, pgtest.Owner)
	rows, err := owner.Query(ctx, `select from_status || ' ' || to_status from deed.delivery_transitions where made_by = 'ledger'`)
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, from := range append([]string{""}, statuses...) {
		for _, to := range statuses {
			if from == to {
				continue
			}
			n++
			id := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
			channel := channelOf(from)
			if from == "" || from == "queued" || from == "sending" {
				channel = channelOf(to)
			}
			tx, err := owner.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if from == "" {
				_, err = tx.Exec(ctx, raw, id, to, channel)
			} else {
				// Put there behind the triggers' back.
				if _, err := tx.Exec(ctx, `set local session_replication_role = replica`); err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(ctx, raw, id, from, channel); err != nil {
					t.Fatalf("a row that is %s: %v", from, err)
				}
				if _, err := tx.Exec(ctx, `set local session_replication_role = origin`); err != nil {
					t.Fatal(err)
				}
				_, err = tx.Exec(ctx, `
					update deed.channel_outbox
					set status = $2, skipped = $2 = 'skipped', skip_reason = case when $2 = 'skipped' then 'x' end,
					  finished_at = case when $2 not in ('queued', 'sending') then now() end, sent_at = case when $2 in ('sent', 'called', 'posted') then now() end
					where id = $1::text::uuid`, id, to)
			}
			switch may := slices.Contains(allowed, from+" "+to); {
			case may && err != nil:
				t.Errorf("%q to %s is refused: %v", from, to, err)
			case !may && sqlState(err) != "DDCON":
				t.Errorf("%q to %s is allowed: %v", from, to, err)
			}
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// C2 of the seed, and what else no row may be, whoever writes it.
func TestContract_D3_ImpossibleRows(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	made := reserve(t, db, email("a@example.com"))
	owner := db.Pool(pgtest.Owner)
	for _, set := range []string{
		`status = 'pending'`, `skipped = true`, `idempotency_key = null`, `idempotency_key = 'short'`, `held_at = now()`, `doubt_since = now(), doubt_reason = 'x'`,
		`status = 'sending'`, `status = 'sending', claim = 1, attempts = 1`, `finished_at = now()`, `sent_at = now()`, `lease_until = now()`,
		`status = 'skipped', finished_at = now()`, `attempts = -1`, `payload = '[]'`, `channel = 'pigeon'`, `guarantee = 'perhaps'`, `tenant_id = gen_random_uuid()`,
		`id = gen_random_uuid()`, `provider = 'other'`,
	} {
		if _, err := owner.Exec(ctx, `update deed.channel_outbox set `+set+` where id = $1::text::uuid`, made[0].ID); err == nil {
			t.Errorf("the database takes a row with %s", set)
		}
	}
	for _, sql := range []string{`delete from deed.channel_outbox`, `truncate deed.channel_outbox`} {
		if _, err := owner.Exec(ctx, sql); sqlState(err) != "DDCON" {
			t.Errorf("%s: %v, want DDCON", sql, err)
		}
	}
	// The bytes of a request never change once they are there.
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set request = 'a' where id = $1::text::uuid`, made[0].ID)
	for _, set := range []string{`request = 'b'`, `request = null`} {
		if _, err := owner.Exec(ctx, `update deed.channel_outbox set `+set); sqlState(err) != "DDCON" {
			t.Errorf("a stored request may be changed: %s: %v", set, err)
		}
	}
}

// A person's transitions are a person's: from dead and failed back to queued.
func TestContract_D3_RetryIsAPersonsAct(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	refuse := true
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		if refuse {
			return delivery.Refused(fmt.Errorf("no such address")), false
		}
		return delivery.Accepted("m"), true
	}
	made := reserve(t, db, email("a@example.com"), email("b@example.com"))
	ofRun(t, db, made[1].ID, "00000000-0000-4000-8000-000000000001")
	_, stop := run(t, db, fast(f))
	until(t, db, made[0].ID, delivery.Failed)
	until(t, db, made[1].ID, delivery.Failed)
	stop()
	refuse = false
	if _, err := db.Pool(pgtest.Owner).Exec(ctx, `update deed.channel_outbox set status = 'queued', finished_at = null`); sqlState(err) != "DDCON" {
		t.Errorf("the owner may put failed deliveries back: %v", err)
	}
	admin := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{})
	if _, err := admin.Retry(ctx, []string{made[1].ID}, audit.Act{By: "ann", Reason: "again"}); sqlState(err) == "" && err == nil {
		t.Error("a run's delivery was put back")
	}
	if n, err := admin.Retry(ctx, []string{made[0].ID}, audit.Act{By: "ann", Reason: "the address was repaired"}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	run(t, db, fast(f))
	e := until(t, db, made[0].ID, delivery.Sent)
	if e.Attempts != 1 {
		t.Errorf("%d attempts after a retry, want 1", e.Attempts)
	}
	_, events, err := admin.Show(ctx, made[0].ID, false)
	if err != nil || !slices.ContainsFunc(events, func(v delivery.Event) bool {
		return v.Action == "retry" && v.Actor == "ann" && v.From == delivery.Failed && v.Reason == "the address was repaired"
	}) {
		t.Errorf("history: %+v, %v", events, err)
	}
}

// Before a provider is called the row says so and holds the request, for all
// to see; what is claimed and not called is still queued.
func TestContract_D4_WrittenBeforeTheCall(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	seen := make(chan string, 100)
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		// Another session sees only what is committed.
		seen <- pgtest.One[string](t, db.Pool(pgtest.Owner), `select status || ' ' || convert_from(request, 'UTF8') || ' ' || attempts from deed.channel_outbox where id = $1::text::uuid`, r.ID())
		return delivery.Accepted("m"), true
	}
	var list []delivery.Delivery
	for i := range 100 {
		list = append(list, email(fmt.Sprintf("%d@example.com", i)))
	}
	reserve(t, db, list...)
	l, _ := run(t, db, fast(f))
	drained(t, l)
	for range list {
		if got := <-seen; got != `sending {"subject": "hello"} 1` {
			t.Errorf("at the call the row was %q", got)
		}
	}
	if n, repeats := f.acceptances(); n != 100 || repeats != 0 {
		t.Errorf("%d accepted, %d repeats", n, repeats)
	}
}

// A claim that ran out before the call is claimed again: nobody was called.
func TestContract_D4_ClaimedIsNotCalled(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	made := reserve(t, db, email("a@example.com"))
	worker := db.Pool(pgtest.Worker)
	n := pgtest.One[int](t, worker, `select count(*) from deed.claim_deliveries('fake', 'gone', 10, '1 second')`)
	if e := entry(t, db, made[0].ID); n != 1 || e.Status != delivery.Queued || e.Attempts != 0 {
		t.Fatalf("claimed %d: %+v", n, e)
	}
	f := newFake()
	run(t, db, fast(f))
	if e := until(t, db, made[0].ID, delivery.Sent); e.Attempts != 1 || f.called(e.ID) != 1 {
		t.Errorf("%d attempts, %d calls", e.Attempts, f.called(e.ID))
	}
}

// Many workers: nothing is called twice, and a stale claim settles nothing.
func TestContract_D4_NeverTwoClaims(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	var list []delivery.Delivery
	for i := range 600 {
		list = append(list, email(fmt.Sprintf("%d@example.com", i)))
	}
	made := reserve(t, db, list...)
	f := newFake()
	var last *delivery.Ledger
	for range 4 {
		last, _ = run(t, db, fast(f))
	}
	drained(t, last)
	if n, repeats := f.acceptances(); n != len(list) || repeats != 0 {
		t.Errorf("%d accepted, %d repeats", n, repeats)
	}
	tag, err := db.Pool(pgtest.Worker).Query(ctx, `select * from deed.settle(array[$1::text::uuid], array[7::bigint], '{refused}', '{null}', '{stale}', '{null}', 'w')`, made[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	tag.Close()
	if tag.CommandTag().RowsAffected() != 0 || entry(t, db, made[0].ID).Status != delivery.Sent {
		t.Error("a stale claim settled a delivery")
	}
}

// Voice and social end as called and posted.
func TestContract_D3_StatusOfTheChannel(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	voice, social := email("+100"), email("@somebody")
	voice.Channel, social.Channel = delivery.Voice, delivery.Social
	made := reserve(t, db, voice, social, email("", "none"))
	if made[2].Status != delivery.Skipped {
		t.Errorf("without an address: %+v", made[2])
	}
	run(t, db, fast(newFake()))
	until(t, db, made[0].ID, delivery.Called)
	until(t, db, made[1].ID, delivery.Posted)
	if e := entry(t, db, made[2].ID); e.SkipReason != "no address" || e.FinishedAt == nil {
		t.Errorf("%+v", e)
	}
}

// A suppression holds at the reservation and at the provider's door, also for
// what was claimed by then, and without regard to case.
func TestContract_D3_SuppressedIsSkipped(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	suppress := func(address string) {
		if n, err := delivery.Suppress(ctx, db.Pool(pgtest.App), nil, delivery.Coverage{Channel: delivery.Email}, []string{address}, audit.Act{By: "ann", Reason: "unsubscribed"}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	suppress("A@Example.com")
	before := reserve(t, db, email("a@example.COM"), email("b@example.com"))
	if before[0].Status != delivery.Skipped || before[1].Status != delivery.Queued {
		t.Fatalf("%+v", before)
	}
	f := newFake()
	once := sync.OnceFunc(func() { suppress("b@example.com") })
	f.render = func(d delivery.Draft) ([]byte, error) {
		// Claimed by now, and about to be called.
		if d.Recipient == "b@example.com" && d.ID == before[1].ID {
			once()
		}
		return d.Payload, nil
	}
	run(t, db, fast(f))
	e := until(t, db, before[1].ID, delivery.Skipped)
	if f.called(e.ID) != 0 || e.SkipReason != "suppressed: unsubscribed" || e.Attempts != 0 || e.FinishedAt == nil {
		t.Errorf("called %d times: %+v", f.called(e.ID), e)
	}
	if n, err := delivery.Unsuppress(ctx, db.Pool(pgtest.App), nil, delivery.Coverage{Channel: delivery.Email}, []string{"b@EXAMPLE.com"}, audit.Act{By: "ann", Reason: "asked to"}); n != 1 || err != nil {
		t.Error(n, err)
	}
	again := reserve(t, db, email("b@example.com", "another"))
	until(t, db, again[0].ID, delivery.Sent)
}

// process_after holds a delivery back.
func TestReserve_ProcessAfter(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	late := email("late@example.com")
	late.ProcessAfter = time.Now().Add(time.Hour)
	made := reserve(t, db, late, email("now@example.com"))
	f := newFake()
	l, _ := run(t, db, fast(f))
	until(t, db, made[1].ID, delivery.Sent)
	drained(t, l)
	if f.called(made[0].ID) != 0 {
		t.Error("it was called early")
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() where status = 'queued'`)
	until(t, db, made[0].ID, delivery.Sent)
}
