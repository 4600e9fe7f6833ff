package delivery_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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
	copied := email("bob@example.com", "copied")
	copied.Payload = delivery.EmailPayload{From: "a@example.com", Subject: "copied", Text: "copied", CC: []string{"Ann@Example.com"}}.JSON()
	failedCopy := reserve(t, db, copied)[0].ID
	_, stop := run(t, db, fast(f))
	until(t, db, failed, delivery.Failed)
	until(t, db, failedCopy, delivery.Failed)
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
	if n := pgtest.One[int](t, db.Pool(pgtest.Admin), `select deed.retry_deliveries(array[$1::text::uuid, $2::text::uuid], 'again', 'bob')`, failed, failedCopy); n != 0 {
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
	for _, id := range []string{failed, failedCopy, late} {
		if e := entry(t, db, id); e.Recipient != "" || e.ErasedAt == nil {
			t.Errorf("not emptied: %+v", e)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.verify()`); n != 0 {
		t.Errorf("deed.verify finds %d", n)
	}
}

// A number by chat that was erased when such addresses were kept with their + is still found by
// the mark that it got then.
func TestContract_D12_MarksOfNumbersAsTheyWere(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	erase(t, db, person(t, db, mail("ann@example.com")), contact.EraseOptions{})
	const nobody = `'00000000-0000-0000-0000-000000000000'`
	db.Exec(t, pgtest.Owner, `
		insert into deed.suppressions (tenant_id, channel, address, purpose, reason, actor, created_at)
		select `+nobody+`, 'chat', deed.address_mark(`+nobody+`, 'chat', '+4930123456'), 'news', 'erased', 'op', now()`)
	for _, address := range []string{"+49 30 123456", "4930123456"} {
		if why := rowsOf(t, db.Pool(pgtest.Owner), `select reason from deed.suppressed(`+nobody+`, 'chat', deed.fold_address('chat', $1), 'news', now())`, address); len(why) != 1 {
			t.Errorf("%s is suppressed for %q", address, why)
		}
		list, err := delivery.Suppressions(t.Context(), db.Pool(pgtest.Admin), delivery.SuppressionFilter{Address: address})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("%s in the list: %v, %v", address, list.Items, err)
		}
	}
	if why := rowsOf(t, db.Pool(pgtest.Owner), `select reason from deed.suppressed(`+nobody+`, 'chat', '4930123457', 'news', now())`); len(why) != 0 {
		t.Errorf("another is suppressed for %q", why)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.App), `select deed.unsuppress('chat', array['+4930123456'], 'a mistake', p_purpose => 'news')::int`); n != 1 {
		t.Errorf("%d were taken back", n)
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

// An address that somebody was written to without being known by it goes on under its mark, too, where it is suppressed for what became of
// that: before the erasure, of what had ended and what was in doubt, and after it. What else is said of it stays, and so does another's.
func TestContract_D12_SuppressedAtAnotherAddress(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann, bob := person(t, db, mail("ann@example.com")), person(t, db, mail("bob@example.com"))
	l, stop := run(t, db, said(newFake()))
	to := func(of, address string) delivery.Delivery {
		d := email(address)
		d.Contact, d.Purpose = of, "news"
		return d
	}
	ids := sent(t, db, to(ann, "one@elsewhere.example"), to(ann, "two@elsewhere.example"), to(ann, "three@elsewhere.example"), to(bob, "four@elsewhere.example"))
	doubted := reserve(t, db, to(ann, "cut@example.com"))[0].ID
	eventually(t, "the doubt", func() bool { return entry(t, db, doubted).HeldAt != nil })
	stop()
	bounced := func(of int) { record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: ids[of]}) }
	bounced(0)
	bounced(3)
	record(t, l, delivery.StatusEvent{Said: delivery.SaidUnsubscribed, Delivery: ids[1]})
	leave(t, db, contact.Leaving{Channel: "email", Purpose: "news", Delivery: doubted, Contact: ann}, contact.LeftNow)
	db.Exec(t, pgtest.App, `select deed.suppress('email', '{two@elsewhere.example}', 'asked by telephone', p_purpose => 'offers')`)
	erase(t, db, ann, contact.EraseOptions{})
	bounced(2)
	erased(t, db, 100)

	got := rowsOf(t, db.Pool(pgtest.Owner), `select case when address like 'hmac:%' then 'a mark' else address end || ' for ' || purpose || ': ' || reason from deed.suppressions`)
	slices.Sort(got)
	want := []string{
		"a mark for : erased", "a mark for : erased", "a mark for news: erased", "a mark for news: erased", "a mark for news: erased",
		"four@elsewhere.example for : bounced, says fake: event ev, delivery " + ids[3], "two@elsewhere.example for offers: asked by telephone",
	}
	if !slices.Equal(got, want) {
		t.Errorf("suppressed: %q\nwant: %q", got, want)
	}
	if found := traces(t, db, "one@elsewhere.example", "three@elsewhere.example", "cut@example.com"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
	reasons := rowsOf(t, db.Pool(pgtest.Owner), `select reason from deed.audit_log where subject_type = 'suppression' and reason <> 'erased'`)
	slices.Sort(reasons)
	if !slices.Equal(reasons, []string{"asked by telephone", "bounced, says fake: event ev, delivery " + ids[3], "consent revoked"}) {
		t.Errorf("the audit log has %q", reasons)
	}
	for _, address := range []string{"one@elsewhere.example", "three@elsewhere.example", "cut@example.com"} {
		d := email(address, "after")
		d.Purpose = "news"
		if r := reserve(t, db, d)[0]; r.Status != delivery.Skipped {
			t.Errorf("%s is written to again: %s", address, r.Status)
		}
	}
}

// Why two were merged, and taken apart, goes with either of them, from the other's history, too; why that one was merged with a third stays.
func TestContract_D12_WhatWasSaidOfAMerge(t *testing.T) {
	t.Parallel()
	for _, into := range []bool{false, true} {
		db := pgtest.New(t)
		app := db.Pool(pgtest.App)
		ann, bob, kim := person(t, db, mail("ann@example.com")), person(t, db, mail("bob@example.com")), person(t, db, mail("kim@example.com"))
		from, to := ann, bob
		if into {
			from, to = bob, ann
		}
		merge := func(from, to, why string) {
			t.Helper()
			if _, err := contact.Merge(t.Context(), app, nil, from, to, audit.Act{By: "op", Reason: why}); err != nil {
				t.Fatal(err)
			}
		}
		merge(from, to, "canary: one person")
		if _, err := contact.Unmerge(t.Context(), app, nil, from, audit.Act{By: "op", Reason: "canary: father and son"}); err != nil {
			t.Fatal(err)
		}
		merge(kim, bob, "bob's other name")
		erase(t, db, ann, contact.EraseOptions{})
		if found := traces(t, db, "canary"); len(found) > 0 {
			t.Errorf("into her %t: left in %v", into, found)
		}
		if n := pgtest.One[int](t, app, `select count(*)::int from deed.contact_merges where reason = 'bob''s other name'`); n != 1 {
			t.Errorf("into her %t: what was said of others went, too", into)
		}
	}
}

// An attempt that has waited for a row judges all of them by what is so when it goes on:
// who has been erased meanwhile is not called (D12), nor for what has expired.
func TestContract_D12_ErasedWhileAnAttemptWaited(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	app, owner := db.Pool(pgtest.App), db.Pool(pgtest.Owner)
	ann := person(t, db, mail("ann@example.com"))
	made := reserve(t, db, email("bob@example.com"), email("carl@example.com"))
	// The attempt locks in this order, and has not come to the second yet.
	slices.SortFunc(made, func(a, b delivery.Reserved) int { return strings.Compare(a.ID, b.ID) })
	reserving, err := app.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reserving.Rollback(context.Background()) }()
	if _, err := delivery.Reserve(ctx, reserving, email("ann@example.com")); err != nil {
		t.Fatal(err)
	}
	// It does not see what is being reserved, and leaves that to its steps.
	erasing, err := app.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = erasing.Rollback(context.Background()) }()
	if _, err := contact.Erase(ctx, erasing, nil, ann, gdpr, contact.EraseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := reserving.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	holding, err := owner.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holding.Rollback(context.Background()) }()
	if got := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*)::int from deed.claim_deliveries('fake', 'w', 10, interval '1 minute')`); got != 3 {
		t.Fatalf("%d claimed", got)
	}
	if _, err := holding.Exec(ctx, `select from deed.channel_outbox where id = $1 for update`, made[0].ID); err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 1)
	go func() {
		var s string
		if err := db.Pool(pgtest.Worker).QueryRow(ctx, `
			with c as (select id, claim from deed.channel_outbox)
			select string_agg(a.status || coalesce(' ' || a.why, ''), ', ' order by a.why nulls first)
			from deed.attempt(array(select id from c order by id), array(select claim from c order by id), array['x', 'x', 'x']::bytea[], null, '1 minute', 'w') a`).Scan(&s); err != nil {
			s = err.Error()
		}
		told <- s
	}()
	eventually(t, "the attempt to wait", func() bool {
		return pgtest.One[bool](t, owner, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%deed.attempt%')`)
	})
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set expires_at = clock_timestamp() where id = $1`, made[1].ID)
	if err := erasing.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := holding.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if got, want := <-told, "sending, skipped erased, skipped expired"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
