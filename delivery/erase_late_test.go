package delivery_test

import (
	"context"
	"errors"
	"testing"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// Between an erasure and the step that empties what was for the address alone, which waits
// for older transactions, nobody is called: neither for what an operator puts back nor for
// what was being reserved. What is reserved afterwards is.
func TestContract_D12_NobodyIsCalledBeforeItIsEmptied(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	ctx := context.Background()
	of := person(t, db, mail("ann@example.com"))
	f := newFake()
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Refused(errors.New("no")), false
	}
	failed := reserve(t, db, email("Ann@Example.com", "failed"))[0].ID
	_, stop := run(t, db, fast(f))
	until(t, db, failed, delivery.Failed)
	stop()

	begin := func() (reserved string, commit func()) {
		tx, err := db.NewPool(pgtest.App, 1).Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(ctx) })
		made, err := delivery.Reserve(ctx, tx, email("ann@example.com", t.Name()+of))
		if err != nil {
			t.Fatal(err)
		}
		of += "x" // another key
		return made[0].ID, func() {
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	whom := of
	late, commitLate := begin()
	_, commitOld := begin()
	erase(t, db, whom, contact.EraseOptions{})
	commitLate()
	if n := pgtest.One[int](t, db.Pool(pgtest.Admin), `select deed.retry_deliveries(array[$1::text::uuid], 'again', 'bob')`, failed); n != 0 {
		t.Error("what is being erased was put back")
	}
	after := reserve(t, db, email("ann@example.com", "after"), email("bob@example.com", "another's"))
	g := newFake()
	_, stop = run(t, db, fast(g))
	until(t, db, late, delivery.Skipped)
	until(t, db, after[0].ID, delivery.Sent)
	until(t, db, after[1].ID, delivery.Sent)
	stop()
	if e := entry(t, db, late); e.SkipReason != "erased" {
		t.Errorf("skipped for %q", e.SkipReason)
	}
	commitOld()
	erased(t, db, 100)
	for _, id := range []string{failed, late} {
		if e := entry(t, db, id); e.Recipient != "" || e.ErasedAt == nil {
			t.Errorf("not emptied: %+v", e)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.verify()`); n != 0 {
		t.Errorf("deed.verify finds %d", n)
	}
}

// What people wrote about somebody goes with them where it stands elsewhere: under the
// contact that was merged into them for a while, and under many deliveries at once.
func TestContract_D12_WhatWasSaidOfThemElsewhere(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := context.Background()
	one, other := person(t, db, mail("ann@example.com"), mail("ann@example.org")), person(t, db, mail("bob@example.com"))
	app, admin := db.Pool(pgtest.App), db.Pool(pgtest.Admin)
	if _, err := contact.Merge(ctx, app, nil, other, one, audit.Act{By: "op", Reason: "canary: one person"}); err != nil {
		t.Fatal(err)
	}
	if _, err := contact.Unmerge(ctx, app, nil, other, audit.Act{By: "op", Reason: "canary: father and son"}); err != nil {
		t.Fatal(err)
	}
	f := newFake()
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "ann@example.org" {
			return delivery.Unknown(errors.New("silence")), false
		}
		return delivery.Refused(errors.New("no")), false
	}
	ids := reserve(t, db, email("ann@example.com", "1"), email("ann@example.com", "2"), email("bob@example.com", "3"), email("bob@example.com", "4"))
	doubted := reserve(t, db, email("ann@example.org", "5"))[0].ID
	_, stop := run(t, db, fast(f))
	for _, r := range ids {
		until(t, db, r.ID, delivery.Failed)
	}
	eventually(t, "the doubt", func() bool { return entry(t, db, doubted).HeldAt != nil })
	stop()
	retry := func(reason string, of ...delivery.Reserved) {
		var list []string
		for _, r := range of {
			list = append(list, r.ID)
		}
		if n := pgtest.One[int](t, admin, `select deed.retry_deliveries($1::text[]::uuid[], $2, 'op')`, list, reason); n != len(of) {
			t.Fatalf("%d were put back", n)
		}
	}
	retry("canary wrote again", ids[0], ids[1])
	retry("bob wrote again", ids[2], ids[3])
	pgtest.One[string](t, admin, `select deed.settle_delivery($1::text::uuid, 'sent', 'canary was seen', 'op', 'wamid.canary')`, doubted)
	erase(t, db, one, contact.EraseOptions{})
	erased(t, db, 100)
	if found := traces(t, db, "canary"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
	if n := pgtest.One[int](t, admin, `select count(*)::int from deed.audit_log where reason = 'bob wrote again'`); n != 1 {
		t.Error("what was said of another went, too")
	}
}
