package deed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// A DELETE on a face's relation says how many messages it has removed, and
// returns those: what another subscription has still to deliver stays and is not
// counted, and of two that delete the same one alone counts it.
func TestContract_O4_ADeleteCountsWhatItRemoves(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := faces(t)
	subscribe(t, db, "shared", "door")
	other := subscribe(t, db, "shared", "s")
	db.Exec(t, pgtest.Admin, `select deed.set_door('shared', 'door')`)
	worker := db.Pool(pgtest.Worker)
	left := func() int { return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log`) }
	deliver := func() {
		t.Helper()
		db.Exec(t, pgtest.Worker, `
			select app.outbox_mark_delivered('`+tokenA+`', array(select id from app.outbox_claim(100, '`+tokenA+`', null)))`)
	}

	db.Exec(t, pgtest.App, `insert into public.outbox (topic, payload) select 'shared', '{}' from generate_series(1, 5)`)
	deliver()
	batch := claim(t, worker, "shared", "w", 2)
	if n := pgtest.One[int](t, worker, `select deed.finish($1, $2, $3)`, other, batch[0].Claim, ids(batch)); n != 2 {
		t.Fatalf("%d finished for the other subscription", n)
	}
	tag, err := worker.Exec(ctx, `delete from public.outbox where delivered_at is not null`)
	if err != nil || tag.RowsAffected() != 2 || left() != 3 {
		t.Errorf("said %d were removed, %v; %d are left, want 3", tag.RowsAffected(), err, left())
	}
	if got := list(t, worker, `delete from m10_recovery.outbox where processed_at is not null returning id::text`); len(got) != 0 {
		t.Errorf("%v were returned as removed, and none was", got)
	}

	// Two at once, of the same.
	db.Exec(t, pgtest.App, `insert into public.outbox (topic, payload) select 'alone', '{}' from generate_series(1, 4)`)
	deliver()
	first, err := db.Conn(t, pgtest.Worker).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Rollback(ctx) }()
	if tag, err := first.Exec(ctx, `delete from public.outbox where topic = 'alone' and delivered_at is not null`); err != nil || tag.RowsAffected() != 4 {
		t.Fatalf("the first removed %d, %v", tag.RowsAffected(), err)
	}
	second := make(chan int64, 1)
	go func() {
		tag, err := worker.Exec(ctx, `delete from public.outbox where topic = 'alone' and delivered_at is not null /* the second */`)
		if err != nil {
			t.Error(err)
		}
		second <- tag.RowsAffected()
	}()
	eventually(t, "the second to wait for the first", func() bool {
		return len(second) == 1 || pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (
			select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%the second%')`)
	})
	if err := first.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if n := <-second; n != 0 || left() != 3 {
		t.Errorf("the second says it removed %d; %d are left, want 3", n, left())
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.purges`); n != 0 {
		t.Errorf("%d ids were left behind", n)
	}
}

// waitsFor waits until a session waits for another's lock with a statement in which word stands, or ended has something.
func waitsFor(t testing.TB, db *pgtest.DB, word string, ended func() bool) {
	t.Helper()
	eventually(t, "a statement with "+word+" to wait, or to end", func() bool {
		return ended() || pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (
			select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and position($1 in query) > 0 and pid <> pg_backend_pid())`, word)
	})
}

// Of two who take messages out of one receipt at the same time each leaves what the other has left of it.
func TestFaces_TwoTakeMessagesOutOfOneReceipt(t *testing.T) {
	t.Parallel()
	for what, second := range map[string]string{
		"a DELETE":           `delete from public.outbox where tenant_id = '%s' and delivered_at is not null -- the second`,
		"a tenant's removal": `select deed.take_tenant_log('%s', 0, 1000) -- the second`,
	} {
		for stay := range 2 {
			t.Run(fmt.Sprintf("%s, %d stay", what, stay), func(t *testing.T) {
				t.Parallel()
				db := faces(t)
				owner := db.Pool(pgtest.Owner)
				a, b := tenant.ID{0xa}, tenant.ID{0xb}
				for id, name := range map[tenant.ID]string{a: "a", b: "b"} {
					if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), id, name); err != nil {
						t.Fatal(err)
					}
				}
				as(t, db, b, message("alone", 0))
				for n := range 1 + stay {
					as(t, db, a, message("alone", n))
				}
				db.Exec(t, pgtest.Worker, `
					select app.outbox_mark_delivered('`+tokenA+`', array(select id from app.outbox_claim(100, '`+tokenA+`', null)))`)
				named := func() string {
					return pgtest.One[string](t, owner, `select coalesce(string_agg(r.ids::text, ' ' order by r.n), '') from deed.receipts r where r.finished > 0`)
				}
				logged := func() string {
					return pgtest.One[string](t, owner, `select coalesce(array_agg(l.id order by l.id)::text, '') from deed.log l`)
				}
				same(t, "one receipt names", named(), logged())
				of := list(t, owner, `select id::text from public.outbox where tenant_id = $1::text::uuid order by id`, a.String())
				first := openTx(t, db, pgtest.Worker, `delete from public.outbox where id = '`+of[0]+`'`)
				ended := make(chan error, 1)
				go func() { // ends with the first
					_, err := owner.Exec(context.Background(), fmt.Sprintf(second, b))
					ended <- err
				}()
				waitsFor(t, db, "the second", func() bool { return len(ended) > 0 })
				if err := first.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				same(t, "how many are left", pgtest.One[int](t, owner, `select count(*) from deed.log`), stay)
				same(t, "the receipt names", named(), logged())
			})
		}
	}
}

// Seed 003 lets whoever works with the outbox move process_after: what is
// unclaimed is due then, and the audit log says who moved it.
func TestContract_O5_ProcessAfterIsWritable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := faces(t)
	worker, owner := db.Pool(pgtest.Worker), db.Pool(pgtest.Owner)
	db.Exec(t, pgtest.App, `select m10_recovery.publish_outbox('order', n::text, 'placed', '{}') from generate_series(1, 4) n`)
	claimed := list(t, worker, `select id::text from m10_recovery.claim_outbox_events('busy', 1)`)
	update := func(set, where string) int64 {
		t.Helper()
		tag, err := worker.Exec(ctx, `update m10_recovery.outbox set process_after = `+set+` where `+where)
		if err != nil {
			t.Fatalf("%s: %v", set, err)
		}
		return tag.RowsAffected()
	}
	if n := update(`now() + interval '1 hour'`, `processed_at is null`); n != 3 {
		t.Errorf("%d were moved, want the 3 that nobody has claimed", n)
	}
	if got := list(t, worker, `select id::text from m10_recovery.claim_outbox_events('w', 10)`); len(got) != 0 {
		t.Errorf("%v were claimed an hour early", got)
	}
	if n := update(`now()`, `aggregate_id = '2'`) + update(`null`, `aggregate_id = '3'`); n != 2 {
		t.Errorf("%d were moved, want 2", n)
	}
	if got := list(t, worker, `select (payload || jsonb_build_object('n', aggregate_id)) ->> 'n' from m10_recovery.claim_outbox_events('w', 10)`); strings.Join(got, " ") != "2 3" {
		t.Errorf("due were %v, want 2 and 3", got)
	}
	acts := pgtest.One[string](t, owner, `
		select string_agg(distinct concat_ws(' ', action, subject_type, details ->> 'topic', details ->> 'subscription'), ', ') || ' ' || count(*)
		from deed.audit_log where action = 'reschedule'`)
	if acts != "reschedule message placed default 5" {
		t.Errorf("the audit log has %q", acts)
	}

	for sql, want := range map[string]string{
		`update m10_recovery.outbox set process_after = 'infinity' where aggregate_id = '4'`:             "DDARG",
		`update m10_recovery.outbox set process_after = '10001-01-01' where aggregate_id = '4'`:          "DDARG",
		`update m10_recovery.outbox set process_after = now(), retry_count = 7 where aggregate_id = '4'`: "DDARG",
		`update m10_recovery.outbox set process_after = now(), payload = '[]' where aggregate_id = '4'`:  "DDARG",
	} {
		_, err := worker.Exec(ctx, sql)
		if sqlState(err) != want {
			t.Errorf("%s: %v, want %q", sql, err, want)
		}
	}
	if _, err := worker.Exec(ctx, `select m10_recovery.complete_outbox_event($1::text::bigint, 'busy', true)`, claimed[0]); err != nil {
		t.Fatal(err)
	}
	_, err := worker.Exec(ctx, `update m10_recovery.outbox set process_after = now() where id = `+claimed[0])
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "DDARG" || !strings.Contains(pg.Message, "has been processed") {
		t.Errorf("a processed event: %v", err)
	}
	_, err = db.Pool(pgtest.App).Exec(ctx, `update m10_recovery.outbox set process_after = now()`)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "42501" || !strings.Contains(pg.Hint, "deed_worker") {
		t.Errorf("an application: %v", err)
	}
}

// A message that waits is due when an operator says so; one that somebody works
// on, is dead or is finished is not touched.
func TestReschedule(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "s")
	subscribe(t, db, "orders", "b")
	c := operator(t, db)
	seq := publish(t, db, message("orders", 1))[0].Seq
	after := func(name string) string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select coalesce(to_char(p.process_after at time zone 'UTC', 'YYYY-MM-DD HH24'), 'null')
			from deed.pending p join deed.subscriptions s on s.id = p.subscription where s.name = $1`, name)
	}
	at := time.Date(2070, 1, 2, 3, 0, 0, 0, time.UTC)
	if n, err := c.Reschedule(ctx, seq, at, "", audit.Act{By: "ann", Reason: "a quiet night"}); n != 2 || err != nil || after("s") != "2070-01-02 03" {
		t.Errorf("%d, %v, due at %s", n, err, after("s"))
	}
	if n, err := c.Reschedule(ctx, seq, time.Time{}, "s", audit.Act{}); n != 1 || err != nil || after("s") != "null" || after("b") != "2070-01-02 03" {
		t.Errorf("%d, %v, due at %s and %s", n, err, after("s"), after("b"))
	}
	if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select actor || ', ' || reason || ', ' || subject_id || ', ' || (details ->> 'to') from deed.audit_log
		where action = 'reschedule' and details ->> 'subscription' = 's' order by n limit 1`); !strings.HasPrefix(got, "ann, a quiet night, "+itoa(int(seq))+", 2070-01-02T03:00:00") {
		t.Errorf("the audit log has %q", got)
	}
	if len(claim(t, db.Pool(pgtest.Worker), "orders", "w", 1)) != 1 {
		t.Fatal("not due")
	}
	if _, err := c.Reschedule(ctx, seq, at, "s", audit.Act{}); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("a claimed one: %v", err)
	}
	if n, err := c.Reschedule(ctx, seq, at, "", audit.Act{}); n != 1 || err != nil {
		t.Errorf("one of two is claimed: %d, %v", n, err)
	}
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = now(), claim = null, claimed_at = null, claimed_by = null, lease_until = null`)
	if _, err := c.Reschedule(ctx, seq, at, "", audit.Act{}); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("a dead one: %v", err)
	}
	if _, err := c.Reschedule(ctx, seq+1, at, "", audit.Act{}); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("one that is not there: %v", err)
	}
	if _, err := c.Reschedule(ctx, seq, time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC), "", audit.Act{}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("the year 12000: %v", err)
	}
	db.Broken() // a hand killed it
}

// Who moves a message that another is moving waits for that, and then moves it.
func TestReschedule_BesideAnother(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "s")
	seq := publish(t, db, message("orders", 1))[0].Seq
	first := openTx(t, db, pgtest.Admin, fmt.Sprintf(`select deed.reschedule(%d, '2070-01-02 00:00Z')`, seq))
	c := operator(t, db)
	ended := make(chan error, 1)
	go func() { // ends with the first
		n, err := c.Reschedule(context.Background(), seq, time.Date(2071, 1, 2, 0, 0, 0, 0, time.UTC), "", audit.Act{})
		if err == nil && n != 1 {
			err = fmt.Errorf("moved for %d subscriptions", n)
		}
		ended <- err
	}()
	waitsFor(t, db, "reschedule", func() bool { return len(ended) > 0 })
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	same(t, "due in", pgtest.One[int](t, db.Pool(pgtest.Owner), `select extract(year from process_after at time zone 'UTC')::int from deed.pending`), 2071)
	same(t, "moves in the audit log", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where action = 'reschedule'`), 2)
}
