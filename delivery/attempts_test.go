package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

func attempts(t testing.TB, db *pgtest.DB, id string) []delivery.Attempt {
	t.Helper()
	list, total, err := ledger(t, db, delivery.Options{}).Attempts(context.Background(), id)
	if err != nil || total != int64(len(list)) {
		t.Fatal(total, err)
	}
	return list
}

// outcomes are those of a delivery's attempts, in order.
func outcomes(t testing.TB, db *pgtest.DB, id string) (list []string) {
	t.Helper()
	for _, a := range attempts(t, db, id) {
		text := a.Outcome
		if a.Late {
			text += " late"
		}
		list = append(list, text)
	}
	return list
}

// Every call that did not simply succeed is kept, with its code, its key, who
// made it and how long it took; one that did leaves nothing.
func TestAttempts_EveryCallThatDidNotSimplySucceed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake().withKey(time.Hour)
	f.send = func(_ context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
		switch {
		case r.Recipient() == "well@example.com":
		case n == 1:
			return delivery.NotNow(errors.New("busy"), 0).WithCode("452"), false
		case n == 2:
			return delivery.Unknown(errCut), true
		case n == 3:
			return delivery.NotNow(errors.New("concurrent"), 0).WithCode("409"), false
		}
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	opts.Worker = "worker-1"
	made := reserve(t, db, email("a@example.com"), email("well@example.com"))
	run(t, db, opts)
	until(t, db, made[0].ID, delivery.Sent)
	until(t, db, made[1].ID, delivery.Sent)
	list := attempts(t, db, made[0].ID)
	if len(list) != 3 || len(attempts(t, db, made[1].ID)) != 0 {
		t.Fatalf("%+v", list)
	}
	for i, want := range []struct{ outcome, code, text string }{{"not now", "452", "busy"}, {"unknown", "", "cut"}, {"not now", "409", "concurrent"}} {
		a := list[i]
		if a.Outcome != want.outcome || a.Code != want.code || !strings.Contains(a.Error, want.text) || a.Number != i+1 || a.Worker != "worker-1" ||
			a.Late || a.BeganAt == nil || a.BeganAt.After(a.At) || a.TookSeconds < 0 || !strings.HasPrefix(a.ProviderKey, "deed-") {
			t.Errorf("%d: %+v", i+1, a)
		}
	}
}

// A call that was accepted and cut, and then another that is refused: nobody may
// read it as certainly not sent. The history has both.
func TestContract_D5_ARefusalAfterADoubtIsNoProof(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(_ context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
		if n == 1 {
			return delivery.Unknown(errCut), true
		}
		return delivery.Refused(errors.New("550 no such user")), false
	}
	often := email("often@example.com")
	often.Guarantee = delivery.AtLeastOnce
	made := reserve(t, db, often, email("once@example.com"), email("never@example.com"))
	f2 := f.send
	f.send = func(ctx context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "never@example.com" {
			n = 2
		}
		return f2(ctx, n, r)
	}
	run(t, db, fast(f))
	dead := until(t, db, made[0].ID, delivery.Dead)
	if !strings.Contains(dead.LastError, "may have been accepted") || !strings.Contains(dead.LastError, "550") || dead.UnsettledSince == nil {
		t.Errorf("at_least_once: %+v", dead)
	}
	if got := outcomes(t, db, dead.ID); !slices.Equal(got, []string{"unknown", "refused"}) {
		t.Errorf("its history: %q", got)
	}
	held(t, db, made[1].ID)
	admin := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{})
	if _, err := admin.Settle(ctx, made[1].ID, delivery.SendAgain, "", audit.Act{By: "ann", Reason: "rather twice"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second call", func() bool { return f.called(made[1].ID) == 2 })
	if e := held(t, db, made[1].ID); !strings.Contains(e.DoubtReason, "may have been accepted") {
		t.Errorf("at_most_once: %+v", e)
	}
	// Nothing is in doubt about what was only ever refused.
	if e := until(t, db, made[2].ID, delivery.Failed); e.UnsettledSince != nil || strings.Contains(e.LastError, "may have") {
		t.Errorf("%+v", e)
	}
}

// An attempt that calls nobody counts, and is kept as others are: of a tenant that the provider does not serve, and to
// a sandbox for which no request can be made.
func TestAttempts_OfNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.render = func(d delivery.Draft) ([]byte, error) {
		if d.SandboxFor != "" {
			return nil, errors.New("not for the sandbox")
		}
		return d.Payload, nil
	}
	id := reserve(t, db, email("a@example.com"))[0].ID
	opts := boxed(f)
	opts.MaxAttempts = 2
	_, stop := run(t, db, opts)
	e := until(t, db, id, delivery.Dead)
	list := attempts(t, db, id)
	if got := outcomes(t, db, id); e.Attempts != 2 || !slices.Equal(got, []string{"not now", "not now"}) {
		t.Fatalf("after %d attempts: %q", e.Attempts, got)
	}
	if a := list[1]; a.Number != 2 || !a.Sandbox || a.Error != "in the sandbox: not for the sandbox" || a.ProviderKey != "" {
		t.Errorf("%+v", a)
	}
	stop()

	ids := tenants(t, db, 2)
	opts = fast(newFake())
	p := opts.Providers["fake"]
	p.Tenants = ids[:1]
	opts.Providers["fake"] = p
	made, err := delivery.ReserveFor(context.Background(), db.Pool(pgtest.Worker), ids[1], email("b@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	id = made[0].ID
	run(t, db, opts)
	until(t, db, id, delivery.Failed)
	if got := attempts(t, db, id); len(got) != 1 || got[0].Outcome != "refused" || !strings.Contains(got[0].Error, "does not serve this tenant") {
		t.Errorf("%+v", got)
	}
}

// A call whose lease ran out is kept as lost where a person decides before anybody has looked, and once; one of
// which nothing was called is not.
func TestAttempts_SettledBeforeAnybodyLooked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	for i, looked := range []bool{false, true} {
		id := reserve(t, db, email("a@example.com", fmt.Sprint(i)))[0].ID
		claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'gone', 1, '1 minute')`)
		pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, '1 minute', 'gone')`, id, claim)
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = now() where id = $1::text::uuid`, id)
		if looked {
			db.Exec(t, pgtest.Worker, `select deed.claim_doubts('fake', 'w', 10, '1 minute', false, false, p_kind => 'another')`)
		}
		if got := pgtest.One[string](t, db.Pool(pgtest.Admin), `select deed.settle_delivery($1::text::uuid, 'failed', 'it is not there', 'ann')`, id); got != "failed" {
			t.Fatal(got)
		}
		list := attempts(t, db, id)
		if len(list) != 1 || list[0].Outcome != "lost" || list[0].Number != 1 || list[0].Worker != "gone" || list[0].BeganAt == nil {
			t.Errorf("looked %t: %+v", looked, list)
		}
	}
}

// An answer that comes when a person has decided, or when the delivery is dead,
// is kept and shown; it does not change what was done, and nobody retries what
// is known to have been accepted.
func TestAttempts_LateAnswers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	answer := make(chan struct{})
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		<-answer
		return delivery.Accepted("m-late"), true
	}
	made := reserve(t, db, email("a@example.com"))
	_, stop := run(t, db, fast(f))
	id := made[0].ID
	eventually(t, "the call", func() bool { return f.called(id) == 1 })
	admin := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{})
	eventually(t, "a person's decision", func() bool {
		// Again and again: it is renewed, unless somebody finds first that it is over.
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second' where id = $1::text::uuid and lease_until is not null`, id)
		status, err := admin.Settle(ctx, id, delivery.HasFailed, "", audit.Act{By: "ann", Reason: "no trace of it"})
		return err == nil && status == delivery.Failed
	})
	close(answer)
	eventually(t, "the late answer", func() bool { return entry(t, db, id).ProvedAt != nil })
	stop()
	e := entry(t, db, id)
	if e.Status != delivery.Failed || e.SentAt != nil {
		t.Errorf("%+v", e)
	}
	if got := outcomes(t, db, id); !slices.Contains(got, "accepted late") || !slices.Contains(got, "proved late") {
		t.Errorf("its history: %q", got)
	}
	if n, err := admin.Retry(ctx, []string{id}, audit.Act{By: "ann", Reason: "again"}); n != 0 && err == nil {
		t.Error("what is known to have been accepted is retried")
	}
	_, events, err := ledger(t, db, delivery.Options{}).Show(ctx, id, false)
	if err != nil || !slices.ContainsFunc(events, func(e delivery.Event) bool { return e.Action == "proof" && e.From == "failed" && e.To == "failed" }) {
		t.Errorf("%+v, %v", events, err)
	}
	// Said again, it is the same: neither its history nor the log has more.
	before := outcomes(t, db, id)
	if ended, err := ledger(t, db, delivery.Options{}).Prove(ctx, id, "m-2", "event"); ended || err != nil {
		t.Error(ended, err)
	}
	_, after, err := ledger(t, db, delivery.Options{}).Show(ctx, id, false)
	if got := outcomes(t, db, id); !slices.Equal(got, before) || len(after) != len(events) || err != nil {
		t.Errorf("said again, its history goes from %q to %q, and the log from %+v to %+v, %v", before, got, events, after, err)
	}
}

// An event that proves the first call while the second one is made ends the delivery, and what comes of the
// second call is kept all the same: it was taken twice.
func TestAttempts_AnEventOfAnEarlierCall(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	answer := make(chan struct{})
	f.send = func(ctx context.Context, n int, _ delivery.Reservation) (delivery.Outcome, bool) {
		if n == 1 {
			return delivery.Unknown(errCut), true
		}
		select {
		case <-answer:
		case <-ctx.Done(): // it has been taken for all that
		}
		return delivery.Accepted("m-2"), true
	}
	d := email("a@example.com")
	d.Guarantee = delivery.AtLeastOnce
	id := reserve(t, db, d)[0].ID
	_, stop := run(t, db, fast(f))
	eventually(t, "the second call", func() bool { return f.called(id) == 2 })
	if ended, err := ledger(t, db, delivery.Options{}).Prove(ctx, id, "m-1", "event"); !ended || err != nil {
		t.Fatal(ended, err)
	}
	close(answer)
	eventually(t, "what came of the second call", func() bool { return slices.Contains(outcomes(t, db, id), "accepted late") })
	stop()
	if e := entry(t, db, id); e.Status != delivery.Sent || e.ProviderMessageID != "m-1" {
		t.Errorf("%+v", e)
	}
	for _, a := range attempts(t, db, id) {
		if a.Outcome == "accepted" && (a.MessageID != "m-2" || a.Number != 2) {
			t.Errorf("%+v", a)
		}
	}
}

// An outcome that is settled twice, since the answer to the first time was lost,
// is kept once; one of another claim is late.
func TestAttempts_SettledTwice(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	made := reserve(t, db, email("a@example.com"), email("b@example.com"))
	note := func(id string, claim int64, outcome string) int {
		return pgtest.One[int](t, worker, `
			select count(*)::int from deed.note_attempts(array[$1::text::uuid], array[$2::bigint], '{1}', array[$3::text], '{m}', '{null}', '{null}', '{null}', '{false}', '{0.1}', 'w')`, id, claim, outcome)
	}
	for i, kind := range []string{"later", "accepted"} {
		id := made[i].ID
		claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'w', 10, interval '1 minute') where id = $1::text::uuid`, id)
		pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, '1 minute', 'w')`, id, claim)
		outcome := map[string]string{"later": "not now", "accepted": "accepted"}[kind]
		if n := note(id, claim, outcome); n != 0 {
			t.Errorf("%s: %d late at the first time", kind, n)
		}
		pgtest.One[string](t, worker, `select status from deed.settle(array[$1::text::uuid], array[$2::bigint], array[$3::text], '{m}', '{null}', '{null}', 'w')`, id, claim, kind)
		if n := note(id, claim, outcome); n != 0 {
			t.Errorf("%s: %d late at the second time", kind, n)
		}
		if got := len(attempts(t, db, id)); got != 1-i {
			t.Errorf("%s: %d attempts are kept", kind, got)
		}
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claim = null, claimed_at = null, claimed_by = null, lease_until = null where status = 'queued'`)
	}
	if n := note(made[1].ID, 99999, "refused"); n != 1 {
		t.Errorf("%d late of another claim", n)
	}
}

// A tenant sees the attempts of its own deliveries, and they go with them.
func TestContract_D7_AttemptsAreTheTenants(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(_ context.Context, n int, _ delivery.Reservation) (delivery.Outcome, bool) {
		if n == 1 {
			return delivery.NotNow(errors.New("busy"), 0), false
		}
		return delivery.Accepted("m"), true
	}
	one, two := tenant.ID{15: 1}, tenant.ID{15: 2}
	for _, id := range []tenant.ID{one, two} {
		db.Exec(t, pgtest.Owner, `insert into deed.tenants (tenant_id, name, created_at) values ($1::text::uuid, $1, now())`, id.String())
	}
	db.Providers(t, "fake", "fake")
	made, err := delivery.ReserveFor(ctx, db.Pool(pgtest.Worker), one, email("a@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	_, stop := run(t, db, fast(f))
	until(t, db, made[0].ID, delivery.Sent)
	stop()
	for _, c := range []struct {
		as   tenant.ID
		want int
	}{{one, 1}, {two, 0}} {
		tx, err := db.Pool(pgtest.App).Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := tenant.Set(ctx, tx, c.as); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := tx.QueryRow(ctx, `select count(*) from deed.delivery_attempts`).Scan(&n); err != nil || n != c.want {
			t.Errorf("%s sees %d, want %d: %v", c.as, n, c.want, err)
		}
		_ = tx.Rollback(ctx)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set finished_at = finished_at - interval '2 days'`)
	pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.purge_deliveries('1 day', 100, 'w')`)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.delivery_attempts`); n != 0 {
		t.Errorf("%d attempts of a delivery that has been removed", n)
	}
}
