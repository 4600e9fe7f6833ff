package delivery_test

import (
	"context"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// Who has opted out is not written to, however the address is written: at the
// reservation, at the attempt, and as a repeat.
func TestSuppressed_HoweverTheAddressIsWritten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	waits := reserve(t, db, email("ＥＶＥ@example.com"), email("Eve@MÜNCHEN.example"))
	n, err := delivery.Suppress(ctx, app, nil, delivery.Coverage{Channel: delivery.Email},
		[]string{"bob@example.com", "Bob@Example.COM", "eve@example.com", "eve@xn--mnchen-3ya.example", "bob@bücher.example"}, audit.Act{By: "test", Reason: "asked to"})
	if err != nil || n != 4 {
		t.Fatalf("%d suppressed, %v; want 4: two are one address", n, err)
	}
	for _, address := range []string{"ｂｏｂ@example.com", "bob@ｅｘａｍｐｌｅ．ＣＯＭ", "BOB@example。com", "bob@xn--bcher-kva.example", "Bob@BÜCHER.example", "bob@bu\u0308cher.example"} {
		if r := reserve(t, db, email(address)); r[0].Status != delivery.Skipped {
			t.Errorf("%s is %s", address, r[0].Status)
		}
	}
	f := newFake()
	l, _ := run(t, db, fast(f))
	drained(t, l)
	for _, r := range waits {
		if e := entry(t, db, r.ID); e.Status != delivery.Skipped || f.called(r.ID) != 0 {
			t.Errorf("%s reserved before is %s, called %d times", e.Recipient, e.Status, f.called(r.ID))
		}
	}
	for _, address := range []string{"ＢＯＢ@example.com", "bob@Bücher.example"} {
		list, err := delivery.Suppressions(ctx, app, delivery.SuppressionFilter{Address: address, Limit: 10})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("listed for %s: %+v, %v", address, list, err)
		}
		if n, err := delivery.Unsuppress(ctx, app, nil, delivery.Coverage{Channel: delivery.Email}, []string{address}, audit.Act{By: "test", Reason: "again"}); n != 1 || err != nil {
			t.Errorf("lifted for %s: %d, %v", address, n, err)
		}
	}
}

// What is not an address is refused wherever one comes in, and the answer does
// not repeat it.
func TestAddress_RefusedWhereItComesIn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	app := db.Pool(pgtest.App)
	for channel, list := range map[delivery.Channel][]string{
		delivery.Email: {
			"Bob <bob@example.com>", "notanaddress", "bob\u00a0@example.com", "bob\u200b@example.com", "bob@exam\u00adple.com", "\u202ebob@example.com",
			"bob@example.com,eve@example.com", "bob@xn--99999999.example",
		},
		delivery.SMS:     {"bob", "+49\u00a0170123456"},
		delivery.Webhook: {"example.com/hook", "https://exam\u200bple.com/hook"},
		delivery.Chat:    {"@b\u200bob"},
	} {
		for _, address := range list {
			d := email(address)
			d.Channel = channel
			_, err := delivery.Reserve(ctx, app, email("good-"+string(channel)+"@example.com"), d)
			refused(t, "reserve "+address, err, "delivery 2", address)
			_, err = delivery.Suppress(ctx, app, nil, delivery.Coverage{Channel: channel}, []string{"good", address}, audit.Act{By: "test", Reason: "asked to"})
			if channel == delivery.Chat {
				refused(t, "suppress "+address, err, "address 2", address)
			} else {
				refused(t, "suppress "+address, err, "address 1", address)
			}
			_, err = delivery.Unsuppress(ctx, app, nil, delivery.Coverage{Channel: channel}, []string{address}, audit.Act{By: "test", Reason: "asked to"})
			refused(t, "unsuppress "+address, err, "address 1", address)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select (select count(*) from deed.channel_outbox) + (select count(*) from deed.suppressions)`); n != 0 {
		t.Errorf("%d rows were stored", n)
	}
}

func refused(t *testing.T, what string, err error, want, not string) {
	t.Helper()
	if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), not) {
		t.Errorf("%+q: %v", what, err)
	}
}

// A row of before that no address can be made of is not called: nobody can say
// whether it is suppressed.
func TestAddress_NoneIsNotCalled(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	good := reserve(t, db, email("bob@example.com"), email("eve@example.com"))
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set recipient = 'Bob <bob@example.com>' where id = $1::text::uuid`, good[0].ID)
	f := newFake()
	l, _ := run(t, db, fast(f))
	drained(t, l)
	e := entry(t, db, good[0].ID)
	if e.Status != delivery.Skipped || !strings.Contains(e.SkipReason, "address") || f.called(good[0].ID) != 0 || f.called(good[1].ID) != 1 {
		t.Errorf("it is %s (%s) after %d calls; the other one was called %d times", e.Status, e.SkipReason, f.called(good[0].ID), f.called(good[1].ID))
	}
}

// Suppressions of before the upgrade are stored as addresses are compared since;
// what no address can be made of stays, and holds for that text.
func TestAddress_StoredSuppressionsAreFolded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `
		insert into deed.suppressions (tenant_id, channel, address, reason, actor, created_at)
		select '00000000-0000-0000-0000-000000000000', c, a, 'of before', 'test', now()
		from (values ('email', 'bob@münchen.example'), ('email', 'ｂｏｂ@example.com'), ('email', 'eve@example.com'), ('email', 'ｅｖｅ@example.com'),
			('email', 'bob <bob@example.com>'), ('email', 'notanaddress'), ('sms', '+49 170 1234567'), ('webhook', 'https://example.com')) v(c, a)`)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select deed.refold_suppressions()`); n != 5 {
		t.Errorf("%d were folded, want 5", n)
	}
	got := pgtest.One[[]string](t, db.Pool(pgtest.Owner), `select array_agg(channel || ' ' || address order by 1) from (select channel, address from deed.suppressions order by 1, 2) s`)
	want := []string{
		"email bob <bob@example.com>", "email bob@example.com", "email bob@xn--mnchen-3ya.example", "email eve@example.com", "email notanaddress",
		"sms +491701234567", "webhook https://example.com/",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("stored are\n%s", strings.Join(got, "\n"))
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select deed.refold_suppressions()`); n != 0 {
		t.Errorf("%d were folded again", n)
	}
	// Of two of an address the one that holds longer decides.
	db.Exec(t, pgtest.Owner, `
		insert into deed.suppressions (tenant_id, channel, address, reason, actor, created_at, expires_at)
		select '00000000-0000-0000-0000-000000000000', 'email', a, 'of before', 'test', now(), e::timestamptz
		from (values ('one@example.com', '9000-01-01'), ('ｏｎｅ@example.com', null), ('two@example.com', null), ('ｔｗｏ@example.com', '9000-01-01'),
			('three@example.com', '9000-01-01'), ('ｔｈｒｅｅ@example.com', '9001-01-01')) v(a, e)`)
	pgtest.One[int](t, db.Pool(pgtest.Owner), `select deed.refold_suppressions()`)
	until := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(split_part(address, '@', 1) || ' ' || coalesce(extract(year from expires_at)::text, 'ever'), ', ' order by address) from deed.suppressions
		where split_part(address, '@', 1) in ('one', 'two', 'three')`)
	if until != "one ever, three 9001, two ever" {
		t.Errorf("they hold until %s", until)
	}
	// What a person had said stays behind a revocation.
	db.Exec(t, pgtest.Owner, `
		insert into deed.suppressions (tenant_id, channel, address, purpose, reason, actor, created_at, by_consent, kept_until, kept_reason, kept_actor)
		select '00000000-0000-0000-0000-000000000000', 'email', a, 'news', 'consent revoked', 'test', now(), true, e::timestamptz, 'said ' || e, 'ann'
		from (values ('ｆｏｕｒ@example.com', '9001-01-01'), ('five@example.com', '9001-01-01'), ('ｆｉｖｅ@example.com', '9002-01-01'), ('fｉve@example.com', '9000-01-01')) v(a, e)`)
	pgtest.One[int](t, db.Pool(pgtest.Owner), `select deed.refold_suppressions()`)
	if kept := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(concat_ws(' ', split_part(address, '@', 1), extract(year from kept_until), kept_reason, kept_actor), ', ' order by address) from deed.suppressions where by_consent`); kept != "five 9002 said 9002-01-01 ann, four 9001 said 9001-01-01 ann" {
		t.Errorf("kept are %s", kept)
	}
	n, err := delivery.Unsuppress(ctx, db.Pool(pgtest.App), nil, delivery.Coverage{Channel: delivery.Email}, []string{"Bob <bob@example.com>", "notanaddress"}, audit.Act{By: "test", Reason: "mended"})
	if n != 2 || err != nil {
		t.Errorf("what no address can be made of cannot be removed: %d, %v", n, err)
	}
}

// The lane of a delivery is its domain, however it is
// written.
func TestAddress_LanesAreOfTheDomain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	opts := fast(f)
	p := opts.Providers["fake"]
	p.Lanes = map[string]float64{"MÜNCHEN.example": 1000}
	opts.Providers["fake"] = p
	early := reserve(t, db, email("early@münchen.example"))
	_, stop := run(t, db, opts)
	until(t, db, early[0].ID, delivery.Sent)
	stop()
	made := reserve(t, db, email("a@münchen.example"), email("b@xn--mnchen-3ya.example"), email("c@ＭÜＮＣＨＥＮ.example"), email("d@example.com"))
	for i, want := range []string{"xn--mnchen-3ya.example", "xn--mnchen-3ya.example", "xn--mnchen-3ya.example", "example.com"} {
		if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select lane from deed.channel_outbox where id = $1::text::uuid`, made[i].ID); got != want {
			t.Errorf("lane %q, want %q", got, want)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select deed.relane_deliveries('fake', 100)`); n != 0 {
		t.Errorf("%d are in another lane than they belong to", n)
	}
}
