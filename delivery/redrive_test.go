package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// ended makes deliveries that have ended so, each with an error of its own.
func ended(t *testing.T, db *pgtest.DB, status string, n int, provider, problem string) {
	t.Helper()
	list := make([]delivery.Delivery, n)
	for i := range list {
		list[i] = email(fmt.Sprintf("%d@example.com", i), status, provider, problem)
		list[i].Provider = provider
	}
	made := reserve(t, db, list...)
	ids := make([]string, n)
	for i, m := range made {
		ids[i] = m.ID
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = $2, attempts = 5, last_error = $3, finished_at = clock_timestamp() where id = any($1::text[]::uuid[])`, ids, status, problem)
}

// Dead deliveries are put back by what they are, as a request that is repeated,
// cut off and gone on with; a dry run changes nothing.
func TestContract_D6_RetryByFilter(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Broken() // what has ended is made so by hand, and the audit log says nothing of it
	owner := db.Pool(pgtest.Owner)
	ended(t, db, "dead", 1200, "mail", "smtp: 451 Greylisted")
	ended(t, db, "dead", 3, "hooks", "status 503")
	ended(t, db, "failed", 4, "mail", "550 no such user")
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set finished_at = finished_at - interval '2 days' where provider = 'hooks' and recipient = '0@example.com'`)
	l := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{})
	for i, c := range []struct {
		r    delivery.Redrive
		want int64
	}{
		{delivery.Redrive{}, 1203},
		{delivery.Redrive{Limit: 7}, 7},
		{delivery.Redrive{Provider: "hooks"}, 3},
		{delivery.Redrive{Provider: "hooks", Since: 24 * time.Hour}, 2},
		{delivery.Redrive{Statuses: []delivery.Status{delivery.Failed, delivery.Dead}, Provider: "mail"}, 1204},
		{delivery.Redrive{Error: "greyLISTED"}, 1200},
		{delivery.Redrive{Provider: "nobody"}, 0},
	} {
		if n, more, err := l.CountRedrive(ctx, c.r); n != c.want || more || err != nil {
			t.Errorf("%d: %d would be put back, want %d: %v", i, n, c.want, err)
		}
	}
	if n := pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where status = 'queued'`); n != 0 {
		t.Errorf("a dry run has put %d back", n)
	}
	for _, r := range []delivery.Redrive{
		{Act: audit.Act{By: "ann"}}, {Act: audit.Act{Reason: "mended"}}, {Act: audit.Act{Reason: "x", By: "ann"}, Statuses: []delivery.Status{delivery.Sent}},
	} {
		if _, err := l.Redrive(ctx, r); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%+v: %v", r, err)
		}
	}

	// Cut off after its first step, and gone on with by another caller.
	r := delivery.Redrive{Act: audit.Act{By: "ann", Reason: "the list is gone"}, Provider: "mail", Error: "greylisted", Request: "inc-1"}
	cut, cancel := context.WithCancel(ctx)
	steps := 0
	r.Progress = func(redriven, chosen int64) {
		steps++
		if redriven != 500 || chosen != 1200 {
			t.Errorf("after a step %d of %d", redriven, chosen)
		}
		cancel()
	}
	if _, err := l.Redrive(cut, r); err == nil || steps != 1 {
		t.Fatal(err, steps)
	}
	r.Progress = nil
	if n, err := l.Redrive(ctx, r); n != 1200 || err != nil {
		t.Fatal(n, err)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'skipped', skipped = true, skip_reason = 'test', finished_at = clock_timestamp() where status = 'queued' and recipient = '1@example.com'`)
	if n, err := l.Redrive(ctx, r); n != 1200 || err != nil {
		t.Errorf("a request that is done: %d, %v", n, err)
	}
	other := r
	other.Provider = "hooks"
	if _, err := l.Redrive(ctx, other); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("a request that meant something else: %v", err)
	}
	back := pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where status = 'queued' and attempts = 0`)
	left := pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where status in ('dead', 'failed')`)
	if back != 1199 || left != 7 {
		t.Errorf("%d are back, %d are left", back, left)
	}
	audited := pgtest.One[int](t, owner, `select sum(affected)::int from deed.audit_log where action = 'retry' and actor = 'ann' and reason = 'the list is gone'`)
	if audited != 1200 {
		t.Errorf("the audit log says %d", audited)
	}

	// Cancelled as a redrive of messages is.
	client, err := admin.New(ctx, db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	paced := delivery.Redrive{Act: audit.Act{By: "ann", Reason: "slowly"}, Provider: "hooks", Rate: 1, Request: "inc-2"}
	paced.Progress = func(int64, int64) {
		if _, err := client.CancelRedrive(ctx, "inc-2", audit.Act{By: "ann", Reason: "no"}); err != nil && deed.CodeOf(err) != deed.Conflict {
			t.Error(err)
		}
	}
	if n, err := l.Redrive(ctx, paced); deed.CodeOf(err) != deed.Conflict || n > 1 {
		t.Errorf("a cancelled request: %d, %v", n, err)
	}
}

// Looks and counts are of what may be put back: not of a run's, which is retried as a whole, nor of what is known to have
// been accepted, nor of who was erased. A dry run says what is put back.
func TestDead_OnlyWhatMayBePutBackCounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Broken() // what has ended is made so by hand
	ended(t, db, "dead", 5, "mail", "refused")
	ofRun(t, db, pgtest.One[string](t, db.Pool(pgtest.Owner), `select id::text from deed.channel_outbox where recipient = '0@example.com'`), "00000000-0000-7000-8000-000000000001")
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set proved_at = clock_timestamp() where recipient = '1@example.com'`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set erased_at = clock_timestamp() where recipient = '2@example.com'`)
	l := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{})
	dead := func(want int64) {
		t.Helper()
		if states, err := l.Providers(ctx); err != nil || len(states) != 1 || states[0].Dead != want {
			t.Errorf("%+v, %v; want %d dead", states, err, want)
		}
	}
	dead(2)
	r := delivery.Redrive{Act: audit.Act{By: "ann", Reason: "mended"}, Provider: "mail"}
	if n, more, err := l.CountRedrive(ctx, r); n != 2 || more || err != nil {
		t.Errorf("%d would be put back, %t, %v", n, more, err)
	}
	if n, err := l.Redrive(ctx, r); n != 2 || err != nil {
		t.Errorf("%d were put back, %v", n, err)
	}
	dead(0)
}

// What waits while nobody may be called ends when its time is over: expired, or
// given up with its host.
func TestContract_D6_EndsInAPause(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	short, long, new := email("a@down.example"), email("b@down.example"), email("c@down.example")
	short.ExpiresAt = time.Now().Add(time.Hour)
	made := reserve(t, db, short, long, new)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lane = 'down.example'`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set expires_at = clock_timestamp() where id = $1::text::uuid`, made[0].ID)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() - interval '25 hours' where id = $1::text::uuid`, made[1].ID)
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, since, until, why) values
		('fake', 'down.example', clock_timestamp() - interval '25 hours', clock_timestamp() + interval '1 hour', 'connection refused'),
		('fake', 'forgotten.example', clock_timestamp() - interval '25 hours', clock_timestamp() - interval '2 hours', 'connection refused')`)
	f := newFake()
	f.caps.Lanes = delivery.LanePerHost
	run(t, db, patient(f))
	if e := until(t, db, made[0].ID, delivery.Skipped); e.SkipReason != "expired" {
		t.Errorf("%+v", e)
	}
	if e := until(t, db, made[1].ID, delivery.Dead); e.LastError != "given up after 24:00:00: connection refused" {
		t.Errorf("%+v", e)
	}
	if e := entry(t, db, made[2].ID); e.Status != delivery.Queued || len(f.all()) != 0 {
		t.Errorf("%+v, %d calls", e, len(f.all()))
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pauses`); n != 1 {
		t.Errorf("%d pauses are left", n)
	}
}

// What any number of dead deliveries costs a look at providers, and a count of
// those that would be put back, is bounded; what was not counted is said.
func TestDead_CountsAreBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Broken() // nothing recorded that they died
	db.Providers(t, "fake", "fake")
	db.ExecSteps(t, pgtest.Owner, 200_010, `
		with quiet as (select set_config('session_replication_role', 'replica', true))
		insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, recipient, payload, created_at, updated_at, status, finished_at, request, attempts, last_error, due)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256(convert_to(n::text, 'UTF8')), 'email', 'fake', n || '@example.com', '{}', now(), now(),
		  'dead', now(), 'x', 1, case when n <= 10 then 'rare' else 'usual' end, false
		from quiet, generate_series($1::int, $2::int) n`)
	opts := delivery.Options{Deadline: pgtest.Patience} // what is bounded is what they read
	l := ledger(t, db, opts)
	states, err := l.Providers(ctx)
	if err != nil || len(states) != 1 || states[0].Dead != delivery.MostCounted {
		t.Errorf("%+v, %v", states, err)
	}
	admin, err := delivery.New(ctx, db.Pool(pgtest.Admin), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r           delivery.Redrive
		least, most int64
		more        bool
	}{
		{delivery.Redrive{Provider: "fake", Error: "usual"}, 100_000, 100_000, true},
		{delivery.Redrive{Provider: "fake", Error: "rare"}, 5, 10, true}, // it may be that one of them is among the few that are not looked at
		{delivery.Redrive{Provider: "fake", Error: "none"}, 0, 0, true},
		{delivery.Redrive{Provider: "fake", Error: "usual", Limit: 5}, 5, 5, false},
		{delivery.Redrive{Provider: "other"}, 0, 0, false},
	} {
		if n, more, err := admin.CountRedrive(ctx, c.r); n < c.least || n > c.most || more != c.more || err != nil {
			t.Errorf("%+v: %d, more %v, %v", c.r, n, more, err)
		}
	}
}
