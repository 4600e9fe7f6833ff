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

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

func links(t testing.TB, url string) *contact.Links {
	t.Helper()
	l, err := contact.NewLinks(contact.LinkOptions{URL: url, Secret: "a secret for tests"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// asMail is a fake whose request is what an adapter of e-mail makes of a draft.
func asMail() *fake {
	f := newFake()
	f.render = func(d delivery.Draft) ([]byte, error) {
		e, err := delivery.ReadEmail(d, shop)
		return e.JSON(), err
	}
	return f
}

func mailFor(recipient, purpose, of string, headers map[string]string) delivery.Delivery {
	d := email(recipient, purpose, of, fmt.Sprint(headers))
	d.Purpose, d.Contact, d.Payload = purpose, of, delivery.EmailPayload{Subject: "hello", Text: "x", Headers: headers}.JSON()
	return d
}

// headersOf are those of the request that is stored.
func headersOf(t *testing.T, db *pgtest.DB, id string) map[string]string {
	t.Helper()
	var e delivery.EmailPayload
	if err := json.Unmarshal(until(t, db, id, delivery.Sent).Request, &e); err != nil {
		t.Fatal(err)
	}
	return e.Headers
}

// leaving has a ledger with links, and what is left by the link of a delivery's header.
func leaving(t *testing.T, db *pgtest.DB) func(id string) contact.Leaving {
	t.Helper()
	made, opts := links(t, "https://hooks.example.com"), fast(asMail())
	opts.Links = made
	run(t, db, opts)
	return func(id string) contact.Leaving {
		t.Helper()
		header := headersOf(t, db, id)["List-Unsubscribe"]
		from, err := made.Left(strings.Trim(header, "<>"), time.Now())
		if err != nil {
			t.Fatalf("%q: %v", header, err)
		}
		return from
	}
}

func leave(t *testing.T, db *pgtest.DB, from contact.Leaving, want contact.Left) {
	t.Helper()
	if got, err := contact.Leave(context.Background(), db.Pool(pgtest.Worker), "link", from); err != nil || got != want {
		t.Errorf("left %q, not %q: %v", got, want, err)
	}
}

func whoLeft(t *testing.T, db *pgtest.DB) []string {
	t.Helper()
	return rowsOf(t, db.Pool(pgtest.Owner), `select address || ' ' || purpose || ' ' || reason from deed.suppressions order by 1`)
}

// An e-mail with a purpose has the pair of headers, stored with it; one without has none, nor
// has one that says its own, or where nobody has said where links lead, or not at https.
func TestUnsubscribe_TheHeaders(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	from := leaving(t, db)
	ann := person(t, db, mail("ann@example.com"))
	made := reserve(t, db, mailFor("ann@example.com", "news", ann, map[string]string{"References": "<1@x>"}), mailFor("ann@example.com", "", ann, nil),
		mailFor("ann@example.com", "own", ann, map[string]string{"list-UNSUBSCRIBE": "<mailto:x@y.z>"}))
	if got, want := from(made[0].ID), (contact.Leaving{Tenant: tenant.Default.String(), Channel: "email", Purpose: "news", Delivery: made[0].ID, Contact: ann}); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
	h := headersOf(t, db, made[0].ID)
	if !strings.HasPrefix(h["List-Unsubscribe"], "<https://hooks.example.com/u/") || h["List-Unsubscribe-Post"] != "List-Unsubscribe=One-Click" || h["References"] != "<1@x>" || len(h) != 3 {
		t.Errorf("%v", h)
	}
	if len(h["List-Unsubscribe"]) > 400 || strings.Contains(h["List-Unsubscribe"], "ann") {
		t.Errorf("%q", h["List-Unsubscribe"])
	}
	if h := headersOf(t, db, made[1].ID); len(h) != 0 {
		t.Errorf("transactional: %v", h)
	}
	if h := headersOf(t, db, made[2].ID); len(h) != 1 || h["list-UNSUBSCRIBE"] != "<mailto:x@y.z>" {
		t.Errorf("its own: %v", h)
	}
	for what, made := range map[string]*contact.Links{"none": nil, "in the clear": links(t, "http://hooks.example.com")} {
		db := pgtest.New(t)
		opts := fast(asMail())
		opts.Links = made
		run(t, db, opts)
		if h := headersOf(t, db, reserve(t, db, mailFor("ann@example.com", "news", "", nil))[0].ID); len(h) != 0 {
			t.Errorf("%s: %v", what, h)
		}
	}
}

// What goes to the sandbox has no link: who tests would unsubscribe somebody.
func TestUnsubscribe_NotFromTheSandbox(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := asMail()
	opts := fast(f)
	opts.Links = links(t, "https://hooks.example.com")
	p := opts.Providers["fake"]
	p.Sandbox = "me@example.com"
	opts.Providers["fake"] = p
	run(t, db, opts)
	id := reserve(t, db, mailFor("ann@example.com", "news", "", nil))[0].ID
	until(t, db, id, delivery.Skipped)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, list := range f.requests {
		if len(list) == 0 || strings.Contains(strings.Join(list, ""), "List-Unsubscribe") {
			t.Errorf("%q", list)
		}
	}
}

// Who leaves gets no more of that, whatever is queued, over any of their addresses, and all the
// rest; once and again.
func TestContract_D11_WhoLeavesGetsNoMoreOfIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	from := leaving(t, db)
	ann := person(t, db, mail("ann@example.com"), mail("ann@work.example"))
	made := reserve(t, db, mailFor("ann@example.com", "news", ann, nil), mailFor("bob@example.com", "news", "", nil), mailFor("old@example.com", "news", ann, nil))
	later := mailFor("ann@work.example", "news", ann, map[string]string{"Keywords": "later"})
	later.ProcessAfter = time.Now().Add(time.Hour)
	queued := reserve(t, db, later)[0]
	anns, bobs, olds := from(made[0].ID), from(made[1].ID), from(made[2].ID)
	leave(t, db, anns, contact.LeftNow)
	leave(t, db, anns, contact.LeftBefore)
	leave(t, db, bobs, contact.LeftNow)
	leave(t, db, bobs, contact.LeftBefore)
	leave(t, db, olds, contact.LeftNow) // an address that is the contact's no more
	leave(t, db, olds, contact.LeftBefore)
	want := []string{"ann@example.com news consent revoked", "ann@work.example news consent revoked", "bob@example.com news unsubscribed: delivery " + made[1].ID, "old@example.com news unsubscribed: delivery " + made[2].ID}
	if got := whoLeft(t, db); !slices.Equal(got, want) {
		t.Errorf("suppressed: %q", got)
	}
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select purpose || ' ' || state || ' ' || source || ' ' || (evidence ->> 'delivery') from deed.consents`); !slices.Equal(got, []string{"news revoked list-unsubscribe " + made[0].ID}) {
		t.Errorf("consents: %q", got)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where id = $1::text::uuid`, queued.ID)
	if e := until(t, db, queued.ID, delivery.Skipped); e.SkipReason != "suppressed: consent revoked" {
		t.Errorf("queued: %q", e.SkipReason)
	}
	other := reserve(t, db, mailFor("ann@example.com", "offers", ann, nil), mailFor("bob@example.com", "", "", nil))
	for _, r := range other {
		until(t, db, r.ID, delivery.Sent)
	}
	// Who comes back is written to again.
	if _, err := contact.SetConsents(context.Background(), db.Pool(pgtest.App), "ann", contact.Word{Contact: ann, Channel: "email", Purpose: "news", State: contact.Granted, Source: "form"}); err != nil {
		t.Fatal(err)
	}
	if r := reserve(t, db, mailFor("ann@example.com", "news", ann, map[string]string{"Keywords": "again"}))[0]; r.Status != delivery.Queued {
		t.Errorf("after coming back: %s", r.Status)
	}
}

// Who leaves once more, after somebody has lifted by hand what stood for it, leaves again, also by a link whose delivery is gone: a page
// that said that they get no more had them get more.
func TestContract_D11_WhoLeavesOnceMore(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	from := leaving(t, db)
	ann := person(t, db, mail("ann@example.com"), mail("ann@work.example"))
	anns := from(reserve(t, db, mailFor("ann@example.com", "news", ann, nil))[0].ID)
	leave(t, db, anns, contact.LeftNow)
	want := []string{"ann@example.com news consent revoked", "ann@work.example news consent revoked"}
	for _, purged := range []bool{false, true} {
		if n := pgtest.One[int](t, db.Pool(pgtest.App), `select deed.unsuppress('email', array['ann@example.com'], 'a mistake', p_purpose => 'news')::int`); n != 1 {
			t.Fatalf("%d were lifted", n)
		}
		if purged {
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set finished_at = finished_at - interval '2 days'`)
			db.Exec(t, pgtest.Worker, `select deed.purge_deliveries('1 day', 100, 'keeper')`)
		}
		leave(t, db, anns, contact.LeftNow)
		leave(t, db, anns, contact.LeftBefore)
		if got := whoLeft(t, db); !slices.Equal(got, want) {
			t.Errorf("purged %t, suppressed: %q", purged, got)
		}
	}
	// For everything is for this, too, and nothing is written down again.
	db.Exec(t, pgtest.App, `select deed.unsuppress('email', array['ann@example.com'], 'a mistake', p_purpose => 'news')`)
	db.Exec(t, pgtest.App, `select deed.suppress('email', array['ann@example.com'], 'bounced')`)
	leave(t, db, anns, contact.LeftBefore)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.consents`); n != 3 {
		t.Errorf("%d words were kept, want 3", n)
	}
}

// A link of somebody who was merged, erased or whose delivery is gone does what it still can;
// one that does not fit, or of a tenant that is gone, changes nothing.
func TestContract_D11_LinksOutliveWhatTheyAreOf(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := context.Background()
	owner, worker := db.Pool(pgtest.Owner), db.Pool(pgtest.Worker)
	from := leaving(t, db)
	ann, eve, kim := person(t, db, mail("ann@example.com")), person(t, db, mail("eve@example.com")), person(t, db, mail("kim@example.com"))
	made := reserve(t, db, mailFor("ann@example.com", "news", ann, nil), mailFor("eve@example.com", "news", eve, nil), mailFor("kim@example.com", "news", kim, nil), mailFor("nobody@example.com", "news", "", nil))
	anns, eves, kims, nobodys := from(made[0].ID), from(made[1].ID), from(made[2].ID), from(made[3].ID)

	if _, err := contact.Merge(ctx, db.Pool(pgtest.App), nil, ann, kim, audit.Act{By: "ann", Reason: "the same"}); err != nil {
		t.Fatal(err)
	}
	erase(t, db, eve, contact.EraseOptions{})
	leave(t, db, eves, contact.LeftNobody) // before it is emptied, and after
	erased(t, db, 10)
	leave(t, db, eves, contact.LeftNobody)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set finished_at = finished_at - interval '2 days'`)
	db.Exec(t, pgtest.Worker, `select deed.purge_deliveries('1 day', 100, 'keeper')`)
	leave(t, db, nobodys, contact.LeftNobody)
	if got := whoLeft(t, db); len(got) != 0 {
		t.Errorf("suppressed: %q", got)
	}
	leave(t, db, anns, contact.LeftNow)
	leave(t, db, kims, contact.LeftBefore)
	if got := whoLeft(t, db); !slices.Equal(got, []string{"ann@example.com news consent revoked", "kim@example.com news consent revoked"}) {
		t.Errorf("suppressed: %q", got)
	}

	other := tenant.ID{7}
	if err := tenant.Add(ctx, db.Pool(pgtest.Admin), other, "other"); err != nil {
		t.Fatal(err)
	}
	var foreign string
	err := pgx.BeginFunc(ctx, db.Pool(pgtest.App), func(tx pgx.Tx) error {
		if err := tenant.Set(ctx, tx, other); err != nil {
			return err
		}
		list, err := delivery.Reserve(ctx, tx, mailFor("max@example.com", "news", "", nil))
		if err == nil {
			foreign = list[0].ID
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	before := whoLeft(t, db)
	for what, l := range map[string]contact.Leaving{
		"another tenant's delivery": {Tenant: tenant.Default.String(), Channel: "email", Purpose: "news", Delivery: foreign},
		"another channel's":         {Tenant: other.String(), Channel: "sms", Purpose: "news", Delivery: foreign},
		"another purpose's":         {Tenant: other.String(), Channel: "email", Purpose: "offers", Delivery: foreign},
		"another tenant's contact":  {Tenant: other.String(), Channel: "email", Purpose: "news", Delivery: made[0].ID, Contact: ann},
	} {
		if got, err := contact.Leave(ctx, worker, "link", l); err != nil || got != contact.LeftNobody || !slices.Equal(whoLeft(t, db), before) {
			t.Errorf("%s: %s, %v", what, got, err)
		}
	}
	for what, l := range map[string]contact.Leaving{
		"no tenant":   {Tenant: (tenant.ID{9}).String(), Channel: "email", Purpose: "news", Delivery: foreign},
		"no purpose":  {Tenant: other.String(), Channel: "email", Delivery: foreign},
		"all of them": {Tenant: other.String(), Channel: "email", Purpose: "*", Delivery: foreign},
		"no delivery": {Tenant: other.String(), Channel: "email", Purpose: "news", Delivery: "x"},
	} {
		if got, err := contact.Leave(ctx, worker, "link", l); err == nil || !slices.Equal(whoLeft(t, db), before) {
			t.Errorf("%s: %s", what, got)
		}
	}
	db.Exec(t, pgtest.Admin, `select deed.remove_tenant($1::text::uuid, 'ends', 'ann')`, other.String())
	if _, err := contact.Leave(ctx, worker, "link", contact.Leaving{Tenant: other.String(), Channel: "email", Purpose: "news", Delivery: foreign}); !errors.Is(err, contact.ErrConflict) && !errors.Is(err, contact.ErrNotFound) {
		t.Errorf("of a tenant that is being removed: %v", err)
	}
	if n := pgtest.One[int](t, owner, `select count(*) from deed.suppressions`); n != len(before) {
		t.Errorf("%d suppressions", n)
	}
}

// That somebody left by a delivery's link stands beside it, and is told to the application once, whoever says it again, the
// provider, too; of one who was erased nothing does.
func TestContract_D13_LeavingIsToldOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	made, opts := links(t, "https://hooks.example.com"), said(asMail())
	opts.Links = made
	l, _ := run(t, db, opts)
	ann, eve := person(t, db, mail("ann@example.com")), person(t, db, mail("eve@example.com"))
	ids := sent(t, db, mailFor("ann@example.com", "news", ann, nil), mailFor("bob@example.com", "news", "", nil), mailFor("eve@example.com", "news", eve, nil))
	of := func(n int, who string) contact.Leaving {
		return contact.Leaving{Channel: "email", Purpose: "news", Delivery: ids[n], Contact: who}
	}
	got := listen(t, db)
	leave(t, db, of(0, ann), contact.LeftNow)
	leave(t, db, of(0, ann), contact.LeftBefore)
	leave(t, db, of(1, ""), contact.LeftNow)
	record(t, l, delivery.StatusEvent{Said: delivery.SaidUnsubscribed, Delivery: ids[0]}, delivery.StatusEvent{Said: delivery.SaidUnsubscribed, Delivery: ids[1]})
	erase(t, db, eve, contact.EraseOptions{})
	leave(t, db, of(2, eve), contact.LeftNobody)
	want := ids[0] + " unsubscribed, " + ids[1] + " unsubscribed"
	if s := strings.Join(rowsOf(t, db.Pool(pgtest.Owner), `select key || ' ' || type from deed.log where topic = 'deed.feedback' order by id`), ", "); s != want {
		t.Errorf("told: %s\nwant: %s", s, want)
	}
	eventually(t, "the messages", func() bool { return len(got.messages()) == 2 })
	for i, id := range ids {
		if at := feedback(t, l, id).UnsubscribedAt; (at != nil) != (i < 2) {
			t.Errorf("beside delivery %d: %v", i, at)
		}
	}
}

// Who leaves waits for nobody who keeps the delivery locked, as somebody may in a transaction that is left open: then it is not counted beside
// the delivery, and is when it is said again. Whoever records meanwhile what a provider says, delivery first, ends as well.
func TestUnsubscribe_WaitsForNoDelivery(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	from := leaving(t, db)
	ann := person(t, db, mail("ann@example.com"))
	anns := from(reserve(t, db, mailFor("ann@example.com", "news", ann, nil))[0].ID)
	counted := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.delivery_feedback where delivery_id = $1::text::uuid and unsubscribed_at is not null`, anns.Delivery)
	}
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from deed.channel_outbox where id = $1::text::uuid for no key update`, anns.Delivery); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if did, err := contact.Leave(ctx, db.Pool(pgtest.Worker), "link", anns); err != nil || did != contact.LeftNow || counted() != 0 {
		t.Errorf("beside a delivery that is locked: %s, %v, counted %d times", did, err, counted())
	}
	_, err = tx.Exec(t.Context(), `select deed.suppress('email', array['ann@example.com'], 'unsubscribed, says fake', 'w', '00000000-0000-0000-0000-000000000000', 'news')`)
	if err = errors.Join(err, tx.Commit(t.Context())); err != nil {
		t.Error(err)
	}
	leave(t, db, anns, contact.LeftBefore)
	if counted() != 1 {
		t.Errorf("said again it is counted %d times", counted())
	}
}
