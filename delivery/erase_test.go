package delivery_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

var gdpr = audit.Act{By: "operator", Reason: "asked for on paper, file 12"}

// person is a contact that has one identity for each of the canaries.
func person(t testing.TB, db *pgtest.DB, identities ...contact.Identity) string {
	t.Helper()
	list, err := contact.Upsert(context.Background(), db.Pool(pgtest.App), "test", contact.Person{Identities: identities})
	if err != nil {
		t.Fatal(err)
	}
	return list[0].ID
}

func mail(value string) contact.Identity { return contact.Identity{Type: "email", Value: value} }

func erase(t testing.TB, db *pgtest.DB, id string, opts contact.EraseOptions) {
	t.Helper()
	if _, err := contact.Erase(context.Background(), db.Pool(pgtest.App), nil, id, gdpr, opts); err != nil {
		t.Fatal(err)
	}
}

func rowsOf(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// erased takes steps, as a client does, until an erasure has ended.
func erased(t testing.TB, db *pgtest.DB, limit int) {
	t.Helper()
	eventually(t, "the erasures to end", func() bool {
		for pgtest.One[int64](t, db.Pool(pgtest.Worker), `select deed.erase_step($1, 'keeper')`, limit) > 0 {
		}
		db.Exec(t, pgtest.Owner, `update deed.erasing set tried_at = null`)
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select not exists (select from deed.erasing)`)
	})
}

// traces are the tables that have one of these texts, in any column of any row.
func traces(t testing.TB, db *pgtest.DB, texts ...string) (found []string) {
	t.Helper()
	owner := db.Pool(pgtest.Owner)
	tables := rowsOf(t, owner, `
		select c.oid::regclass::text from pg_class c
		where c.relnamespace = 'deed'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition order by 1`)
	for _, table := range tables {
		for _, text := range texts {
			n := pgtest.One[int](t, owner, fmt.Sprintf(`
				select count(*) from %s r where strpos(lower(r::text), lower($1)) > 0 or strpos(r::text, $2) > 0 or strpos(r::text, $3) > 0`, table),
				text, hex.EncodeToString([]byte(text)), hex.EncodeToString([]byte(strings.ToLower(text))))
			if n > 0 {
				found = append(found, fmt.Sprintf("%s: %s (%d)", table, text, n))
			}
		}
	}
	return found
}

// Somebody who was erased has left nothing: whatever states their deliveries were in,
// whoever had quoted their address. And what stays is true: ids, times, statuses, keys.
func TestContract_D12_NothingIsLeft(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := context.Background()
	app := db.Pool(pgtest.App)
	canaries := []string{"canary-one@example.com", "canary-two@example.com", "+4930555001", "canary-external", "canary-note", "canary-text"}
	one := person(t, db, mail("Canary-One@Example.com"), contact.Identity{Type: "phone", Value: "+49 30 555001"}, contact.Identity{Type: "external_id", Value: "canary-external"})
	two := person(t, db, mail("canary-two@example.com"))
	bystander := person(t, db, mail("bystander@example.com"))
	db.Exec(t, pgtest.Owner, `update deed.contacts set data = '{"note": "canary-note"}', zone = 'Europe/Berlin', locale = 'de' where id <> $1::text::uuid`, bystander)
	if _, err := contact.Merge(ctx, app, nil, two, one, audit.Act{By: "ann", Reason: "canary-two@example.com is hers, too"}); err != nil {
		t.Fatal(err)
	}
	if _, err := contact.SetConsents(ctx, app, "ann", contact.Word{Contact: one, Channel: "email", Purpose: "news", State: contact.Revoked, Source: "form", Evidence: []byte(`{"ip": "canary-note"}`)}); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.App, `select deed.suppress('email', array['canary-one@example.com'], 'bounced: <canary-one@example.com> unknown', p_actor => 'ann')`)
	db.Exec(t, pgtest.App, `select deed.unsuppress('email', array['canary-one@example.com'], 'canary-one@example.com wrote to us', p_actor => 'ann')`)
	db.Exec(t, pgtest.App, `select deed.suppress('sms', array['+49 30 555001'], 'canary-note', p_actor => 'ann', p_expires_at => clock_timestamp() + interval '1 year')`)

	f := newFake()
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		request, err := r.Request()
		if err != nil {
			t.Error(err)
		}
		quote := errors.New("550 <canary-one@example.com> canary-text")
		switch {
		case strings.Contains(string(request), "refused"):
			return delivery.Refused(quote), false
		case strings.Contains(string(request), "doubt"):
			return delivery.Unknown(quote), false
		case strings.Contains(string(request), "wamid"):
			return delivery.Accepted("wamid.canary-text"), true
		}
		return delivery.Accepted("m"), true
	}
	to := func(recipient, what string, of string) delivery.Delivery {
		d := email(recipient, what)
		d.RecipientID, d.Contact, d.Payload = "canary-external", of, fmt.Appendf(nil, `{"subject": "canary-text", "do": %q}`, what)
		if strings.HasPrefix(recipient, "bystander") {
			d.RecipientID, d.Payload = "", []byte(`{"subject": "untouched"}`)
		}
		return d
	}
	made := reserve(t, db, to("canary-one@example.com", "sent", one), to("canary-one@example.com", "refused", one), to("canary-two@example.com", "doubt", ""),
		to("canary-two@example.com", "wamid", two), to("elsewhere@example.com", "by name", one), to("bystander@example.com", "another's", ""))
	l, stop := run(t, db, fast(f))
	drained(t, l)
	stop()
	db.Exec(t, pgtest.Owner, `update deed.delivery_attempts set provider_message_id = 'wamid.canary-text' where delivery_id = $1::text::uuid`, made[1].ID)
	waiting := reserve(t, db, to("canary-one@example.com", "queued", ""), to("canary-two@example.com", "queued", two), to("bystander@example.com", "queued", ""))
	before := rowsOf(t, db.Pool(pgtest.Owner), `select row(c.id, c.idempotency_key, c.created_at, c.first_called_at, c.sent_at, c.attempts, encode(sha256(c.request), 'hex'))::text from deed.channel_outbox c order by c.id`)
	if len(traces(t, db, canaries...)) < 10 {
		t.Fatalf("the canaries are where they should be: %v", traces(t, db, canaries...))
	}

	erase(t, db, one, contact.EraseOptions{})
	for i, want := range []delivery.Status{delivery.Skipped, delivery.Skipped, delivery.Queued} {
		if e := entry(t, db, waiting[i].ID); e.Status != want || want == delivery.Skipped && e.SkipReason != "erased" {
			t.Errorf("queued, the %d.: %s %s", i+1, e.Status, e.SkipReason)
		}
	}
	if e := entry(t, db, made[2].ID); e.Status != delivery.Failed || e.LastError != "erased" || e.UnsettledSince == nil {
		t.Errorf("what was in doubt, and may have been accepted: %+v", e)
	}
	erased(t, db, 3) // in several steps
	if found := traces(t, db, canaries...); len(found) > 0 {
		t.Errorf("left: %q", found)
	}
	after := rowsOf(t, db.Pool(pgtest.Owner), `select row(c.id, c.idempotency_key, c.created_at, c.first_called_at, c.sent_at, c.attempts, encode(coalesce(c.request_sha256, sha256(c.request)), 'hex'))::text from deed.channel_outbox c order by c.id`)
	if !slices.Equal(before, after) {
		t.Errorf("what stays has changed:\n%s\n%s", before, after)
	}
	if e := entry(t, db, made[3].ID); !strings.HasPrefix(e.ProviderMessageID, "sha256:") || e.ErasedAt == nil || e.Status != delivery.Sent || e.Recipient != "" {
		t.Errorf("a message id that is made of a number: %+v", e)
	}
	for _, id := range []string{made[5].ID, waiting[2].ID} {
		if e := entry(t, db, id); e.Recipient != "bystander@example.com" || e.ErasedAt != nil || string(e.Payload) != `{"subject": "untouched"}` {
			t.Errorf("a bystander's delivery: %+v", e)
		}
	}
	if n := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select deliveries from deed.erasures`); n != 7 {
		t.Errorf("%d deliveries were erased, want 7", n)
	}
	if list := rowsOf(t, db.Pool(pgtest.Worker), `select invariant || ': ' || detail from deed.verify()`); len(list) > 0 {
		t.Errorf("deed.verify: %q", list)
	}
}

// What was suppressed for somebody who was erased is, whoever brings the address back,
// until somebody takes that back by the address or by the mark that lists show.
func TestContract_D12_SuppressionsHoldOn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	suppress := func(address, purpose string) {
		db.Exec(t, pgtest.App, `select deed.suppress('email', array[$1], 'left', p_purpose => $2)`, address, purpose)
	}
	of := person(t, db, mail("ann@example.com"))
	suppress("ann@example.com", "news")
	erase(t, db, of, contact.EraseOptions{})
	status := func(address, purpose string, n int) string {
		d := email(address, purpose, fmt.Sprint(n))
		d.Purpose = purpose
		return string(reserve(t, db, d)[0].Status)
	}
	if got := status("Ann@Example.com", "news", 1) + " " + status("ann@example.com", "", 2); got != "skipped queued" {
		t.Errorf("after: %s", got)
	}
	// Somebody brings them back, suppresses both, and they are erased once more.
	of = person(t, db, mail("ann@example.com"))
	suppress("ann@example.com", "news")
	suppress("ann@example.com", "")
	erase(t, db, of, contact.EraseOptions{})
	if n := pgtest.One[int](t, app, `select count(*) from deed.suppressions where address like 'hmac:%'`); n != 2 {
		t.Errorf("%d suppressions, want 2", n)
	}
	if got := status("ann@example.com", "", 3); got != "skipped" {
		t.Errorf("once more: %s", got)
	}
	list := rowsOf(t, app, `select purpose || ' ' || address from deed.look_at_suppressions('infinity', null, '', '', '', 100, 100, p_address => 'Ann@example.com') order by 1`)
	if len(list) != 2 || !strings.HasPrefix(list[0], " hmac:") {
		t.Errorf("looked for by the address: %q", list)
	}
	if n := pgtest.One[int](t, app, `select deed.unsuppress('email', array['Ann@example.com'], 'she is back')`); n != 1 {
		t.Errorf("taken back by the address: %d", n)
	}
	if n := pgtest.One[int](t, app, `select deed.unsuppress('email', array[(select address from deed.suppressions)], 'she is back', p_purpose => 'news')`); n != 1 {
		t.Errorf("taken back by the mark: %d", n)
	}
	if got := status("ann@example.com", "news", 4); got != "queued" {
		t.Errorf("taken back: %s", got)
	}
	of = person(t, db, mail("ann@example.com"), contact.Identity{Type: "phone", Value: "+4930555001"})
	erase(t, db, of, contact.EraseOptions{Suppress: true})
	if got := status("ann@example.com", "", 5); got != "skipped" {
		t.Errorf("with Suppress: %s", got)
	}
	if found := traces(t, db, "email:ann@example.com"); len(found) > 0 {
		t.Errorf("the audit log names it: %q", found)
	}
}

// What somebody is calling for is left until they have ended, however: they go on as if
// nothing were, and it is not called again. Then it is erased.
func TestContract_D12_WhatIsInSomebodysHand(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"sent", "refused", "bad address", "unknown", "gone", "claimed"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			worker := db.Pool(pgtest.Worker)
			of := person(t, db, mail("ann@example.com"))
			d := email("ann@example.com", "1")
			d.Contact, d.Guarantee = of, delivery.AtLeastOnce
			id := reserve(t, db, d)[0].ID
			lease := "1 hour"
			if end == "gone" {
				lease = "1 second"
			}
			claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'w', 10, $1::text::interval)`, lease)
			attempt := func() string {
				return pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['canary'::bytea], null, $3::text::interval, 'w')`, id, claim, lease)
			}
			if end != "claimed" {
				if got := attempt(); got != "sending" {
					t.Fatal(got)
				}
			}
			erase(t, db, of, contact.EraseOptions{})
			_ = pgtest.One[int64](t, worker, `select deed.erase_step(100, 'keeper')`)
			want := delivery.Sent
			switch end {
			case "claimed":
				if got := attempt(); got != "skipped" {
					t.Errorf("attempted after the erasure: %s", got)
				}
				want = delivery.Skipped
			case "gone":
				want = delivery.Failed
			default:
				verdict := map[string]string{"sent": "accepted", "refused": "later", "bad address": "bad_address", "unknown": "unknown"}[end]
				got := pgtest.One[string](t, worker, `select status from deed.settle(array[$1::text::uuid], array[$2::bigint], array[$3], array['m'], array['canary'], array[0::float8], 'w', '1 day')`, id, claim, verdict)
				t.Logf("settled as %s: %s", verdict, got)
				want = map[string]delivery.Status{"sent": delivery.Sent, "refused": delivery.Skipped, "bad address": delivery.Failed, "unknown": delivery.Failed}[end]
			}
			erased(t, db, 100)
			if end == "gone" { // and comes back with what the provider had said
				got := pgtest.One[string](t, worker, `
					select string_agg(status, ' ') from deed.note_attempts(array[$1::text::uuid], array[$2::bigint], array[1], array['accepted'], array['wamid.canary'],
						array['250'], array['<ann@example.com> canary'], array['key'], array[false], array[0.1::float8], 'w')`, id, claim)
				t.Logf("told late: %s", got)
			}
			e := entry(t, db, id)
			if e.Status != want || e.ErasedAt == nil || e.Recipient != "" {
				t.Errorf("at the end: %+v, want %s", e, want)
			}
			if found := traces(t, db, "ann@example.com", "canary"); len(found) > 0 {
				t.Errorf("left: %q", found)
			}
		})
	}
}

// Who reserves for a contact while it is erased has reserved before, and it is erased
// with the rest, or is told that there is nobody any more.
func TestContract_D12_NobodyReservesBesideIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.NewPool(pgtest.App, 8)
	db.Providers(t, "fake", "fake")
	for round := range 20 {
		of := person(t, db, mail(fmt.Sprintf("ann%d@example.com", round)))
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() {
				for i := range 10 {
					d := email("other@example.com", fmt.Sprint(round, n, i))
					d.Contact = of
					_, err := delivery.Reserve(context.Background(), app, d)
					if deed.CodeOf(err) == deed.Conflict {
						return
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Go(func() {
			time.Sleep(time.Duration(round) * time.Millisecond)
			erase(t, db, of, contact.EraseOptions{})
		})
		all.Wait()
	}
	// Neither passes by the other, though nobody has committed.
	of := person(t, db, mail("last@example.com"))
	d := email("other@example.com", "last")
	d.Contact = of
	waits := func(what string, first, second func(pgx.Tx) error) {
		t.Helper()
		ctx := context.Background()
		a, err := app.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Rollback(ctx) }()
		b, err := app.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Rollback(ctx) }()
		if err := first(a); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		_, err = b.Exec(ctx, `set local lock_timeout = '200ms'`)
		if err == nil {
			err = second(b)
		}
		if !strings.Contains(fmt.Sprint(err), "55P03") {
			t.Errorf("%s: the second did not wait: %v", what, err)
		}
	}
	reserves := func(tx pgx.Tx) error {
		_, err := delivery.Reserve(context.Background(), tx, d)
		return err
	}
	erases := func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), `select deed.erase_contact($1::text::uuid, 'x')`, of)
		return err
	}
	waits("an erasure", reserves, erases)
	waits("a reservation", erases, reserves)
	erased(t, db, 1000)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where erased_at is null or status <> 'skipped'`); n > 0 {
		t.Errorf("%d deliveries for erased contacts were not", n)
	}
	one := pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.erasures limit 1`)
	for contactID, want := range map[string]deed.Code{one: deed.Conflict, "01a1fe76-14ee-7f1b-b119-532699ab7d4c": deed.NotFound, "ann@example.com": deed.Invalid} {
		d := email("x@example.com", contactID)
		d.Contact = contactID
		if _, err := delivery.Reserve(context.Background(), app, d); deed.CodeOf(err) != want || strings.Contains(err.Error(), "ann@example.com") {
			t.Errorf("reserved for %s: %v, want %v", contactID, err, want)
		}
	}
}

// A transaction that had reserved for an address before it was erased and commits later
// is waited for.
func TestContract_D12_LateCommits(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	ctx := context.Background()
	of := person(t, db, mail("ann@example.com"))
	db.Providers(t, "fake", "fake")
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	late, err := delivery.Reserve(ctx, tx, email("ann@example.com", "late"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := contact.Erase(ctx, db.NewPool(pgtest.App, 1), nil, of, gdpr, contact.EraseOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := pgtest.One[int64](t, db.Pool(pgtest.Worker), `select deed.erase_step(100, 'keeper')`); n != 0 {
		t.Errorf("it went on beside a transaction that may have reserved: %d", n)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	erased(t, db, 100)
	if e := entry(t, db, late[0].ID); e.Status != delivery.Skipped || e.Recipient != "" {
		t.Errorf("what came late: %+v", e)
	}
}

// What was erased stays so: nobody retries it, gives it a request again, or rewrites
// the audit log by the way.
func TestContract_D12_ErasedStays(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := context.Background()
	of := person(t, db, mail("ann@example.com"))
	f := newFake()
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Refused(errors.New("no")), false
	}
	d := email("ann@example.com", "1")
	d.Contact = of
	id := reserve(t, db, d)[0].ID
	_, stop := run(t, db, fast(f))
	until(t, db, id, delivery.Failed)
	stop()
	erase(t, db, of, contact.EraseOptions{})
	for _, when := range []string{"before it is emptied", "after"} {
		if n := pgtest.One[int](t, db.Pool(pgtest.Admin), `select deed.retry_deliveries(array[$1::text::uuid], 'again', 'ann')`, id); n != 0 {
			t.Errorf("retried %s: %d", when, n)
		}
		erased(t, db, 100)
	}
	for what, sql := range map[string]string{
		"a request again":        `update deed.channel_outbox set request = 'x'`,
		"another tenant's":       `update deed.channel_outbox set tenant_id = gen_random_uuid()`,
		"an audit row":           `update deed.audit_log set reason = 'else' where reason is not null`,
		"an audit row's subject": `update deed.audit_log set subject_id = 'email:else' where subject_type = 'suppression' or subject_id is not null`,
		"an audit row's actor":   `update deed.audit_log set actor = 'else'`,
		"no audit row":           `delete from deed.audit_log`,
	} {
		if _, err := db.Pool(pgtest.Owner).Exec(ctx, sql); sqlState(err) != "DDCON" {
			t.Errorf("%s: %v", what, err)
		}
	}
	// One that lives still cannot be emptied.
	live := reserve(t, db, email("bob@example.com", "1"))[0].ID
	g := newFake()
	_, stop = run(t, db, fast(g))
	until(t, db, live, delivery.Sent)
	stop()
	if _, err := db.Pool(pgtest.Owner).Exec(ctx, `update deed.channel_outbox set request = null where id = $1::text::uuid`, live); sqlState(err) != "DDCON" {
		t.Errorf("a request taken away without an erasure: %v", err)
	}
	if n, err := contact.Erase(ctx, db.Pool(pgtest.App), nil, of, gdpr, contact.EraseOptions{}); err != nil || n == 0 {
		t.Errorf("erased again: %d, %v", n, err)
	}
	for _, bad := range []struct {
		of, reason string
		want       error
	}{{"ann@example.com", "x", contact.ErrInvalid}, {of, "", contact.ErrInvalid}, {"01a1fe76-14ee-7f1b-b119-532699ab7d4c", "x", contact.ErrNotFound}} {
		if _, err := contact.Erase(ctx, db.Pool(pgtest.App), nil, bad.of, audit.Act{Reason: bad.reason}, contact.EraseOptions{}); !errors.Is(err, bad.want) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// Addresses that older programs wrote into the audit log become marks.
func TestContract_D12_OldAuditRowsAreMarked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.App, `select deed.suppress('email', array['ann@example.com'], 'left')`)
	mark := pgtest.One[string](t, db.Pool(pgtest.Owner), `select subject_id from deed.audit_log where action = 'suppress'`)
	tenant := pgtest.One[string](t, db.Pool(pgtest.Owner), `select tenant_id::text from deed.audit_log where action = 'suppress'`)
	db.Broken() // there are more suppressed by the log than are
	for range 7 {
		db.Exec(t, pgtest.Owner, `insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason) values ($1::text::uuid, 'ann', 'suppress', 'suppression', 'email:ann@example.com', 'left')`, tenant)
	}
	db.Exec(t, pgtest.Owner, `insert into deed.audit_log (tenant_id, actor, action, subject_type, reason) values ($1::text::uuid, 'ann', 'suppress', 'suppression', 'left')`, tenant)
	for _, want := range []int64{3, 3, 1, 0} {
		if n := pgtest.One[int64](t, db.Pool(pgtest.Worker), `select deed.mark_audit(3)`); n != want {
			t.Errorf("%d marked, want %d", n, want)
		}
	}
	got := rowsOf(t, db.Pool(pgtest.Owner), `select distinct coalesce(subject_id, '-') from deed.audit_log where action = 'suppress' order by 1`)
	if !slices.Equal(got, []string{"-", mark}) {
		t.Errorf("subjects %q, want %q", got, mark)
	}
}

// No role reads the key, nor the addresses that an erasure still needs.
func TestContract_D12_NobodyReadsTheKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, role := range []pgtest.Role{pgtest.App, pgtest.Worker, pgtest.Admin} {
		for _, sql := range []string{`select * from deed.secrets`, `select * from deed.erasing`} {
			rows, err := db.Pool(role).Query(context.Background(), sql)
			if err == nil {
				_, err = pgx.CollectRows(rows, pgx.RowToMap)
			}
			if sqlState(err) != "42501" {
				t.Errorf("%s, %s: %v", role, sql, err)
			}
		}
	}
	keys := func(db *pgtest.DB) string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select outer_key::text || inner_key::text from deed.secrets`)
	}
	other := pgtest.Bare(t) // not of the tests' template, whose key its databases share
	if _, err := schema.Up(t.Context(), other.Conn(t, pgtest.Owner)); err != nil {
		t.Fatal(err)
	}
	if a, b := keys(db), keys(other); len(a) != 260 || len(b) != 260 || a == b {
		t.Errorf("two installations have keys of %d and %d characters, the same: %t", len(a), len(b), a == b)
	}
}

// What is kept of a lane that is one person's goes with them, and others' stays.
func TestContract_D12_LanesOfTheErased(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.caps.Lanes, f.caps.Limits = delivery.LanePerRecipient, map[string]float64{"*": 0.001}
	registered(t, db, fast(f))
	ann := person(t, db, contact.Identity{Type: "telegram", Value: "4711"})
	person(t, db, contact.Identity{Type: "telegram", Value: "4712"})
	made := reserve(t, db, chat("4711/7"), chat("4712"))
	if n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.claim_deliveries('fake', 'w', 10, '1 minute')`); n != 2 {
		t.Fatalf("claimed %d", n)
	}
	db.Exec(t, pgtest.Owner, `
		insert into deed.pauses (provider, destination, tenant_id, since, until, why)
		select c.provider, c.lane, c.tenant_id, now(), now() + interval '1 day', '429' from deed.channel_outbox c`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = now() - interval '1 second'`)
	lane := laneOf(t, db, made[1].ID)
	erase(t, db, ann, contact.EraseOptions{})
	erased(t, db, 100)
	for _, q := range []string{`select string_agg(lane, ' ') from deed.lane_tokens`, `select string_agg(destination, ' ') from deed.pauses`} {
		if got := pgtest.One[string](t, db.Pool(pgtest.Owner), q); got != lane {
			t.Errorf("%s: %q, want the other's, %q", q, got, lane)
		}
	}
}

// An address that is being suppressed while its contact is erased goes on under its mark, once the erasure has
// ended: nothing says in clear who was forgotten, and nothing is sent there.
func TestContract_D12_SuppressedWhileErased(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := person(t, db, mail("cat@example.com"))
	tx, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select deed.suppress('email', '{cat@example.com}', 'cat has had enough')`); err != nil {
		t.Fatal(err)
	}
	erase(t, db, id, contact.EraseOptions{})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	erased(t, db, 100)
	if found := traces(t, db, "cat@example.com", "had enough"); len(found) > 0 {
		t.Errorf("there are traces in %q", found)
	}
	if e := entry(t, db, reserve(t, db, email("cat@example.com"))[0].ID); e.Status != delivery.Skipped {
		t.Errorf("what is reserved afterwards is %s", e.Status)
	}
}
