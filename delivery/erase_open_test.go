package delivery_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// leftOpen begins a transaction and says what is done in it; it ends with the test, or with end.
func leftOpen(t *testing.T, db *pgtest.DB, role pgtest.Role, sql string, args ...any) (end func()) {
	t.Helper()
	ctx := context.Background()
	tx, err := db.NewPool(role, 1).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(ctx) })
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// Who erases somebody and leaves the transaction open holds up nobody: what is in a relay's
// hand, theirs and all others', keeps its lease and is settled. Once it has committed
// nothing of them is left, and what was in hand and not begun is not begun.
func TestContract_D12_AnErasureLeftOpenHoldsUpNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t) // others' transactions would hold up the erasure
	ids := tenants(t, db, 2)
	db.Providers(t, "fake", "fake")
	cat := pgtest.One[string](t, db.Pool(pgtest.Worker), `select id::text from deed.upsert_contacts('{1}', '{email}', '{cat@example.com}', '{null}', p_tenant => $1::text::uuid)`, ids[0].String())
	made := func(n int, d delivery.Delivery) string {
		t.Helper()
		out, err := delivery.ReserveFor(t.Context(), db.Pool(pgtest.Worker), ids[n], d)
		if err != nil {
			t.Fatal(err)
		}
		return out[0].ID
	}
	named := email("elsewhere@one.example")
	named.Contact = cat
	theirs := []string{made(0, named), made(0, email("cat@example.com"))}
	other := made(1, email("bob@another.example"))
	f, hold := newFake(), make(chan struct{})
	let := sync.OnceFunc(func() { close(hold) })
	f.send = func(ctx context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		select {
		case <-hold:
			return delivery.Accepted("m"), true
		case <-ctx.Done():
			return delivery.Unknown(ctx.Err()), false
		}
	}
	opts := fast(f)
	opts.Lease = 20 * time.Second // renewed each seven: on a busy machine nobody's runs out
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Timeout: 10 * time.Minute, Concurrency: 4, PerLane: 4, Hanging: -1}
	run(t, db, opts)
	t.Cleanup(let)
	var last string
	eventually(t, "the calls", func() bool {
		last = fmt.Sprint(rowsOf(t, db.Pool(pgtest.Owner), `select concat_ws(' ', recipient, status, lane, skip_reason, last_error, lease_until is not null) from deed.channel_outbox`))
		return f.called(theirs[0])+f.called(theirs[1])+f.called(other) == 3
	}, &last)

	end := leftOpen(t, db, pgtest.Admin, `select deed.erase_contact($1::text::uuid, 'asked for', p_tenant => $2::text::uuid)`, cat, ids[0].String())
	for _, id := range append(theirs, other) {
		lease := func() time.Time {
			return pgtest.One[time.Time](t, db.Pool(pgtest.Owner), `select lease_until from deed.channel_outbox where id = $1::text::uuid`, id)
		}
		first := lease()
		eventually(t, "renewals beside the open erasure", func() bool { return lease().After(first.Add(2 * time.Second)) })
	}
	let()
	for _, id := range append(theirs, other) {
		until(t, db, id, delivery.Sent)
	}
	end()
	erased(t, db, 100)
	for i, id := range append(theirs, other) {
		if e := entry(t, db, id); (e.Recipient == "") != (i < 2) || e.Status != delivery.Sent || f.called(id) != 1 {
			t.Errorf("%d: %s to %q, called %d times", i, e.Status, e.Recipient, f.called(id))
		}
	}
	if found := traces(t, db, "cat@example.com", "elsewhere@one.example"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
}

// What somebody's relay has in hand when they are erased, and has not begun, is not begun; nor
// is a call repeated whose outcome is unknown. Until a step has come by the ledger says so at
// the provider's door, by the contact and by the address.
func TestContract_D12_WhatIsInHandIsNotBegun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := person(t, db, mail("ann@example.com"))
	named := email("elsewhere@example.com")
	named.Contact = ann
	list := reserve(t, db, named, email("ann@example.com"), email("bob@example.com"))
	worker := db.NewPool(pgtest.Worker, 1)
	claim := func(sql string) (ids []string, claims []int64) {
		t.Helper()
		rows, err := worker.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		type row struct {
			ID    string
			Claim int64
		}
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		if err != nil || len(found) != 3 {
			t.Fatalf("%d claimed: %v", len(found), err)
		}
		for _, r := range found {
			ids, claims = append(ids, r.ID), append(claims, r.Claim)
		}
		return ids, claims
	}
	attempt := func(ids []string, claims []int64) map[string]string {
		t.Helper()
		became := map[string]string{}
		for _, line := range rowsOf(t, worker, `
			select id::text || ' ' || status || coalesce(' ' || why, '')
			from deed.attempt($1::text[]::uuid[], $2::bigint[], array_fill('x'::bytea, array[cardinality($1::text[])]), '1 hour', '1 hour', 'w')`, ids, claims) {
			became[line[:36]] = line[37:]
		}
		return became
	}
	ids, claims := claim(`select id::text, claim from deed.claim_deliveries('fake', 'w', 10, '1 minute') where id is not null`)
	erase(t, db, ann, contact.EraseOptions{})
	became := attempt(ids, claims)
	for i, want := range []string{"skipped erased", "skipped erased", "sending"} {
		if got := became[list[i].ID]; got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}

	cat := person(t, db, mail("cat@example.com"))
	named = email("nowhere@example.com")
	named.Contact = cat
	list = reserve(t, db, named, email("cat@example.com"), email("bob@example.com", "again"))
	ids, claims = claim(`select id::text, claim from deed.claim_deliveries('fake', 'w', 10, '1 minute') where id is not null`)
	attempt(ids, claims)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set doubt_since = clock_timestamp(), doubt_reason = 'test', claimed_at = null, claimed_by = null, lease_until = null where id = any ($1::text[]::uuid[])`, ids)
	ids, claims = claim(`select id::text, claim from deed.claim_doubts('fake', 'w', 10, '1 minute', true, false) where id is not null`)
	erase(t, db, cat, contact.EraseOptions{})
	for i, id := range ids {
		may := pgtest.One[bool](t, worker, `select deed.may_repeat($1::text::uuid, $2, 'fake', '', false)`, id, claims[i])
		if want := id == list[2].ID; may != want {
			t.Errorf("a call of %s may be repeated: %t, want %t", entry(t, db, id).Recipient, may, want)
		}
	}
}

// What somebody has locked keeps its place in the hand of the relay that has it: the leases of
// all others are renewed at once, and it is not taken for lost.
func TestExtend_WaitsForNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list := reserve(t, db, email("ann@example.com"), email("bob@example.com"), email("carl@example.com"))
	db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 10, '10 minutes')`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() where id = $1::text::uuid`, list[2].ID)
	end := leftOpen(t, db, pgtest.Owner, `select from deed.channel_outbox where id <> $1::text::uuid for update`, list[1].ID)
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Patience)
	defer cancel()
	kept := func(off int) (n int) {
		t.Helper()
		err := db.Pool(pgtest.Worker).QueryRow(ctx, `select cardinality(deed.extend_deliveries(array_agg(c.id), array_agg(c.claim + $1), '1 hour')) from deed.channel_outbox c`, off).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := kept(0); n != 2 {
		t.Errorf("%d kept, want that which was renewed, and that whose lease lasts", n)
	}
	renewed := rowsOf(t, db.Pool(pgtest.Owner), `select id::text from deed.channel_outbox where lease_until > clock_timestamp() + interval '30 minutes'`)
	if fmt.Sprint(renewed) != fmt.Sprint([]string{list[1].ID}) {
		t.Errorf("renewed %v, want the one that nobody has locked", renewed)
	}
	if n := kept(1); n != 0 {
		t.Errorf("%d kept under others' claims", n)
	}
	end()
}

// Events that came before their messages go on beside those of a delivery that somebody has locked, which are kept.
func TestMatch_WaitsForNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, stop := run(t, db, said(newFake()))
	ids := sent(t, db, email("ann@example.com"), email("bob@example.com"))
	for _, id := range ids {
		record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, ID: "ev " + id, MessageID: "later " + id})
	}
	stop()
	db.Broken() // the test's own changes stand in no audit row
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set provider_message_id = 'later ' || id`)
	end := leftOpen(t, db, pgtest.Owner, `select from deed.channel_outbox where id = $1::text::uuid for update`, ids[0])
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Patience)
	defer cancel()
	for _, c := range []struct{ free, bounced int }{{1, 1}, {2, 2}} {
		db.Exec(t, pgtest.Owner, `update deed.unmatched_events set tried_at = tried_at - interval '1 minute', received_at = received_at - interval '8 days'`)
		if _, err := db.Pool(pgtest.Worker).Exec(ctx, `select deed.match_events(100, 'w')`); err != nil {
			t.Fatal(err)
		}
		if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.delivery_feedback where bounced_at is not null`); n != c.bounced {
			t.Errorf("%d free, and %d have bounced", c.free, n)
		}
		if c.free == 1 {
			end()
		}
	}
}

// Erasures go on beside a delivery that somebody has locked, and come back to it.
func TestErase_AStepWaitsForNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	ann, cat := person(t, db, mail("ann@example.com")), person(t, db, mail("cat@example.com"))
	list := reserve(t, db, email("ann@example.com"), email("cat@example.com"))
	l, stop := run(t, db, fast(newFake()))
	drained(t, l)
	stop()
	erase(t, db, ann, contact.EraseOptions{})
	erase(t, db, cat, contact.EraseOptions{})
	end := leftOpen(t, db, pgtest.Owner, `select from deed.channel_outbox where id = $1::text::uuid for update`, list[0].ID)
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Patience)
	defer cancel()
	eventually(t, "the other's end", func() bool {
		if _, err := db.Pool(pgtest.Worker).Exec(ctx, `select deed.erase_step(100, 'keeper')`); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, pgtest.Owner, `update deed.erasing set tried_at = null`)
		return entry(t, db, list[1].ID).ErasedAt != nil
	})
	if e := entry(t, db, list[0].ID); e.ErasedAt != nil {
		t.Error("what is locked was written")
	}
	end()
	erased(t, db, 100)
	if found := traces(t, db, "ann@example.com", "cat@example.com"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
}
