package deed_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// tenantTables are all tables that say whose their rows are, by the catalog.
func tenantTables(t *testing.T, db *pgtest.DB) []string {
	t.Helper()
	return slices.DeleteFunc(names(t, db, `
		select c.relname from pg_class c
		join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
		where c.relnamespace = 'deed'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
		order by 1`), func(name string) bool { return name == "tenant_removals" })
}

// others are the rows of all tenants but one, byte by byte, by table.
func others(t *testing.T, db *pgtest.DB, but tenant.ID) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for _, table := range tenantTables(t, db) {
		rows[table] = pgtest.One[string](t, db.Pool(pgtest.Owner),
			`select coalesce(string_agg(r::text, e'\n' order by r::text), '') from deed.`+table+` r where r.tenant_id <> $1::text::uuid`, but.String())
	}
	return rows
}

// left are how many rows of a tenant's there are, by table, but for those that have none.
func left(t *testing.T, db *pgtest.DB, id tenant.ID) map[string]int64 {
	t.Helper()
	rows := map[string]int64{}
	for _, table := range tenantTables(t, db) {
		if n := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select count(*) from deed.`+table+` where tenant_id = $1::text::uuid`, id.String()); n > 0 {
			rows[table] = n
		}
	}
	return rows
}

// as publishes for a tenant.
func as(t *testing.T, db *pgtest.DB, id tenant.ID, list ...deed.Message) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
		if err := tenant.Set(t.Context(), tx, id); err != nil {
			return err
		}
		_, err := deed.Publish(t.Context(), tx, list...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ofTwo has two tenants own something in every table, a stream's messages among it that
// were read, put aside, and not read yet.
func ofTwo(t *testing.T, db *pgtest.DB) (a, b tenant.ID) {
	t.Helper()
	a, b = twoTenants(t, db)
	sink := &recorder{fail: func(m deed.Message) error {
		if strings.HasPrefix(m.Key, "bad") {
			return deed.AfterError(time.Hour, errors.New("not yet"))
		}
		return nil
	}}
	_, stop := runStream(t, db, deed.Options{
		Topics:        []deed.Topic{{Name: "events", Mode: deed.ModeStream, Lanes: 2}},
		Subscriptions: []deed.Subscription{{Topic: "events", Name: "s", Sink: sink}, {Topic: "jobs", Name: "s", Sink: &recorder{}}},
	})
	events := func(key string, n int) deed.Message { return deed.Message{Topic: "events", Key: key, Value: n} }
	for i := range 10 {
		for _, id := range []tenant.ID{a, b} {
			as(t, db, id, events("good", i), events("bad", i), events(fmt.Sprint("bad", i), i), message("jobs", i))
		}
	}
	worker := db.Pool(pgtest.Worker)
	eventually(t, "the stream to be read", func() bool {
		aside := pgtest.One[int](t, worker, `select count(*) from deed.pending p join deed.subscriptions s on s.id = p.subscription where s.topic = 'events'`)
		done := pgtest.One[int](t, worker, `select coalesce(sum(finished), 0) from deed.receipts r join deed.subscriptions s on s.id = r.subscription where s.topic = 'jobs'`)
		return aside == 40 && done == 20
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []tenant.ID{a, b} {
		as(t, db, id, events("good", 10), events("unread", 10), message("jobs", 10))
		db.Exec(t, pgtest.Owner, `
			insert into deed.pauses (provider, destination, tenant_id, since, until, why)
			values ('p', 'example.org', $1::text::uuid, now(), now() + interval '1 minute', 'x')`, id.String())
		db.Exec(t, pgtest.Owner, `insert into deed.erased_contents (tenant_id, sha256, actor, tried_at) values ($1::text::uuid, sha256('x'), 'x', now())`, id.String())
	}
	login := pgtest.One[string](t, db.Pool(pgtest.App), `select session_user::text`)
	if _, err := tenant.Bind(t.Context(), db.Pool(pgtest.Admin), login, []tenant.ID{a, b}, audit.Act{By: "x", Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// askRemoval asks for a tenant to be removed.
func askRemoval(t *testing.T, db *pgtest.DB, id tenant.ID) {
	t.Helper()
	first, err := tenant.Remove(t.Context(), db.Pool(pgtest.Admin), id, audit.Act{By: "ann", Reason: "the contract has ended"})
	if err != nil || !first {
		t.Fatalf("Remove: %t, %v", first, err)
	}
}

// removalStep takes a step and says what it said.
func removalStep(t *testing.T, db pgtest.Queryer, id tenant.ID, limit int) string {
	t.Helper()
	return pgtest.One[string](t, db, `select state from deed.remove_tenant_step($1::text::uuid, $2)`, id.String(), limit)
}

// removed takes steps until nothing is left. What other tests' transactions do on the same server is waited
// for.
func removed(t *testing.T, db *pgtest.DB, id tenant.ID) {
	t.Helper()
	eventuallyWithin(t, 3*time.Minute, "the tenant to be removed", func() bool {
		state := "going"
		for state == "going" {
			state = removalStep(t, db.Pool(pgtest.Worker), id, 5000)
		}
		return state == "done"
	})
}

// Nothing of a removed tenant is left in any table that says whose its rows are, and
// every row of another is as it was; each step may be killed before it is over, and
// what deed.verify says holds in between. What was counted before is what went.
func TestContract_D7_ARemovedTenantLeavesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, b := ofTwo(t, db)
	db.Exec(t, pgtest.Owner, `insert into deed.rate_limits (provider, lane, rate, burst, tokens, at, run_id) select provider, id::text, 1, 1, 1, now(), id from deed.campaign_runs`)
	verified(t, db)
	before, had := others(t, db, b), left(t, db, b)
	for _, table := range tenantTables(t, db) {
		if before[table] == "" || had[table] == 0 {
			t.Errorf("table %s: a or b has no row in it: the test shows nothing; put one there", table)
		}
	}
	counts, err := tenant.CountRows(t.Context(), db.Pool(pgtest.Admin), b)
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]int64{}
	for _, c := range counts {
		counted[c.Table] = c.Rows
		if c.Stays != (c.Table == "audit_log") {
			t.Errorf("%s stays: %t", c.Table, c.Stays)
		}
	}
	same(t, "what was counted", counted, had)
	same(t, "counting changes nothing", left(t, db, b), had)

	askRemoval(t, db, b)
	worker := db.Pool(pgtest.Worker)
	steps := 0
	stepped := func() (done bool) { // as far as it goes now
		for state := "going"; ; steps++ {
			// Killed, and once more.
			tx, err := worker.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			removalStep(t, tx, b, 2)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			state = removalStep(t, worker, b, 2)
			if verified(t, db); t.Failed() {
				t.Fatalf("after step %d, which said %s", steps, state)
			}
			if state != "going" {
				return state == "done"
			}
		}
	}
	if !stepped() { // which takes its time; what others have open is waited for from then on
		eventuallyWithin(t, 3*time.Minute, "the tenant to be removed", stepped)
	}
	if steps < 50 {
		t.Errorf("only %d steps: they were not bounded", steps)
	}
	after := others(t, db, b)
	for table, rows := range before {
		if after[table] != rows {
			t.Errorf("%s: a's rows have changed:\n%s\nwere\n%s", table, after[table], rows)
		}
	}
	same(t, "rates of runs", pgtest.One[int](t, worker, `select count(*) from deed.rate_limits where run_id is not null`), 1)
	stays := left(t, db, b)
	same(t, "what is left", slices.Collect(maps.Keys(stays)), []string{"audit_log"})
	same(t, "its rows in the audit log", stays["audit_log"], had["audit_log"])
	same(t, "what people and providers wrote in them", pgtest.One[int](t, worker,
		`select count(*) from deed.audit_log where tenant_id = $1::text::uuid and reason <> 'erased'`, b.String()), 0)

	list, err := tenant.Removals(t.Context(), db.Pool(pgtest.Admin), "", 10)
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d removals, %v", len(list.Items), err)
	}
	r := list.Items[0]
	same(t, "the removal", fmt.Sprint(r.Tenant, r.Name, r.State, r.By, r.Reason), fmt.Sprint(b, mark, "done", "ann", "the contract has ended"))
	delete(r.Taken, "audit_log")
	delete(counted, "audit_log")
	same(t, "what went", r.Taken, counted)
	acts := pgtest.One[string](t, worker, `
		select string_agg(concat_ws(' ', action, actor, subject_type, subject_id, reason, affected > 1), ', ' order by n)
		from deed.audit_log where action like 'tenant remov%' and tenant_id is null`)
	same(t, "audit", acts, fmt.Sprintf("tenant removed ann tenant %s the contract has ended f, tenant removal finished ann tenant %[1]s the contract has ended t", b))
}

// Everything in every table, whatever the column, as text: nothing of b's own marks is
// left but its name where it says that it was removed.
func TestContract_D12_ARemovedTenantsTextsAreGone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, b := ofTwo(t, db)
	// What others wrote stands in details, too.
	db.Exec(t, pgtest.Owner, `
		insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, details)
		select $1::text::uuid, 'x', d.action, 'message', '1', jsonb_build_object(d.key, $2::text, 'kept', 1)
		from (values ('discard', 'last_error'), ('consent', 'source'), ('redrive', 'error'), ('settle', 'message_id')) d(action, key)`, b.String(), mark)
	db.Exec(t, pgtest.Owner, `
		insert into deed.redrives (request, asked, chosen, actor, reason, state, finished_at)
		values ('b', jsonb_build_object('tenant', $1::text, 'error', $2::text), 1, 'x', $2, 'done', now()), ('a', jsonb_build_object('error', 'another''s'), 1, 'x', 'another''s', 'done', now())`, b.String(), mark)
	askRemoval(t, db, b)
	removed(t, db, b)
	same(t, "what is left of the details", names(t, db, `select distinct details::text from deed.audit_log where tenant_id = '`+b.String()+`' and details ? 'kept'`), []string{`{"kept": 1}`})
	same(t, "another's redrive", names(t, db, `select reason || (asked ->> 'error') from deed.redrives where request = 'a'`), []string{"another'sanother's"})
	same(t, "marks", names(t, db, `select subject_id from deed.audit_log where tenant_id = '`+b.String()+`' and subject_type = 'suppression' and subject_id is not null`), []string{})
	for _, table := range names(t, db, `select relname from pg_class where relnamespace = 'deed'::regnamespace and relkind in ('r', 'p') and not relispartition`) {
		where := map[string]string{"tenant_removals": "false", "audit_log": "r.action not like 'tenant remov%'"}[table]
		if where == "" {
			where = "true"
		}
		for _, row := range names(t, db, `select r::text from deed.`+table+` r where position('`+mark+`' in r::text) > 0 and `+where) {
			if table == "audit_log" && strings.Contains(row, ","+mark+",") {
				continue // who did it
			}
			t.Errorf("%s: %s", table, row)
		}
	}
	verified(t, db)
}

// A relay that is killed while it takes a tenant's rows away leaves what another goes on
// with.
func TestCrash_ATenantsRemovalIsKilledAndGoesOn(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.New(t))
	gone := tenant.ID{0xb}
	if err := tenant.Add(t.Context(), s.db.Pool(pgtest.Admin), gone, "gone"); err != nil {
		t.Fatal(err)
	}
	subscribe(t, s.db, "many", "s")
	pgtest.One[int](t, s.db.Pool(pgtest.Admin), `
		select count(*) from deed.publish_many(array_fill('many'::text, array[22000]), array_fill('{}'::bytea, array[22000]), p_tenants => array_fill($1::text::uuid, array[22000]))`, gone.String())
	askRemoval(t, s.db, gone)
	v := s.start("removing a tenant:2", patient) // a step that runs out of time counts as well
	v.Crashed(t, "removing a tenant:2", 2*pgWait)
	same(t, "rows that are left", left(t, s.db, gone), map[string]int64{"log": 22000, "pending": 12000, "tenants": 1})
	verified(t, s.db)
	rest := s.start("", patient)
	eventuallyWithin(t, 3*time.Minute, "the rest to be taken away", func() bool { return len(left(t, s.db, gone)) == 0 })
	rest.Stop()
	if err := rest.Wait(t, pgWait); err != nil {
		t.Errorf("the second relay ended with %v", err)
	}
	r, ok, err := tenant.FindRemoval(t.Context(), s.db.Pool(pgtest.Worker), gone)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	same(t, "what went in all", r.Taken, map[string]int64{"log": 22000, "pending": 22000, "tenants": 1})
	verified(t, s.db)
}

// What is of a tenant that was removed, and is there all the same, deed.verify names.
func TestVerify_ARemovedTenantHasMessages(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, b := twoTenants(t, db)
	askRemoval(t, db, b)
	removed(t, db, b)
	db.Broken()
	db.Exec(t, pgtest.Owner, `
		with l as (
		  insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, content_type, payload)
		  values (nextval('deed.log_seq'), pg_current_xact_id(), 0, 1, $1::text::uuid, now(), 'undeclared', 'text/plain', 'x') returning *
		)
		insert into deed.pending (subscription, slot, id, tenant_id, ord_at) select 0, l.slot, l.id, l.tenant_id, now() from l`, b.String())
	same(t, "what is found", pgtest.One[string](t, db.Pool(pgtest.Worker), `select string_agg(distinct invariant || ': ' || detail, ', ') from deed.verify()`),
		"tenant that was removed has messages: tenant "+b.String())
}

// What comes of a kind that was over is taken by another pass. Passes do not follow one another without a pause: each
// reads the whole log, and nothing else of its process goes on meanwhile.
func TestRemoveTenant_APassAfterTheLastWaits(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, b := twoTenants(t, db)
	db.Exec(t, pgtest.Owner, `create table public.theirs (tenant_id uuid not null references deed.tenants)`)
	db.Exec(t, pgtest.Owner, `insert into public.theirs values ($1::text::uuid)`, b.String())
	askRemoval(t, db, b)
	eventuallyWithin(t, 3*time.Minute, "a last pass that finds something", func() bool {
		for going := 0; removalStep(t, db.Pool(pgtest.Worker), b, 5000) == "going"; going++ {
			if going == 500 {
				t.Fatal("500 steps, and none says that it waits")
			}
		}
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select is_final and stage = 0 from deed.tenant_removals`)
	})
	db.Exec(t, pgtest.Owner, `delete from public.theirs`)
	removed(t, db, b)
}
