package schema_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// A database has what it asked for by name and nothing else; again changes
// nothing; a later Up brings what is installed up to date.
func TestContracts_InstalledByName(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	conn := db.Conn(t, pgtest.Owner)
	present := func() string {
		t.Helper()
		return pgtest.One[string](t, conn, `
			select concat_ws(' ', to_regclass('public.outbox'), to_regclass('m10_recovery.outbox'), to_regnamespace('app'), to_regnamespace('m10_recovery'))`)
	}
	if got := present(); got != "" {
		t.Errorf("before anything was asked for there is %s", got)
	}
	installFaces(t, db, false, "app")
	if got := present(); got != "public.outbox app" {
		t.Errorf("with the face app there is %s", got)
	}
	if again, err := schema.InstallFaces(ctx, conn, []string{"app"}, nil); len(again) != 0 || err != nil {
		t.Errorf("again: %v, %v", again, err)
	}
	installFaces(t, db, false, "m10")
	if _, err := schema.InstallFaces(ctx, conn, []string{"m11"}, nil); err == nil || !strings.Contains(err.Error(), "m10, app") {
		t.Errorf("an unknown face: %v", err)
	}
	if result := up(t, conn); len(result.Faces) != 0 {
		t.Errorf("Up of what is up to date did %+v", result)
	}
	// As an older program would have left them.
	if _, err := conn.Exec(ctx, `
		update deed.contracts set hash = 'older';
		create or replace function app.outbox_mark_delivered(p_token uuid, p_ids uuid[]) returns int language sql set search_path = pg_catalog as 'select 0'`); err != nil {
		t.Fatal(err)
	}
	if differences, err := schema.Validate(ctx, conn); len(differences) != 2 || !strings.Contains(differences[0], "app.outbox_mark_delivered") || err != nil {
		t.Errorf("Validate of a changed face: %q, %v", differences, err)
	}
	if result := up(t, conn); !slices.Equal(result.Faces, []string{"app", "m10"}) {
		t.Errorf("Up of older faces did %+v", result)
	}
	if differences, err := schema.Validate(ctx, conn); len(differences) != 0 || err != nil {
		t.Errorf("Validate: %q, %v", differences, err)
	}

	if removed, err := schema.UninstallFaces(ctx, conn, []string{"m10", "app"}); len(removed) != 2 || err != nil {
		t.Errorf("removed %v, %v", removed, err)
	}
	if got := present(); got != "" {
		t.Errorf("after the faces were removed there is %s", got)
	}
	if removed, err := schema.UninstallFaces(ctx, conn, []string{"m10", "app"}); len(removed) != 0 || err != nil {
		t.Errorf("removed again: %v, %v", removed, err)
	}
	installFaces(t, db, false, "m10", "app")
	if err := schema.Uninstall(ctx, conn); err != nil {
		t.Fatal(err)
	}
	if got := present(); got != "" {
		t.Errorf("after everything was removed there is %s", got)
	}
}

// The installed faces, object by object, are the committed ones.
func TestContracts_Golden(t *testing.T) {
	t.Parallel()
	got, err := schema.DescribeFaces(context.Background(), withFaces(t).Pool(pgtest.Owner))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("expected_faces.sql", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile("expected_faces.sql")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the faces differ from expected_faces.sql; if they are meant to, run go test ./schema -run Golden -update (-want +got):\n%s", diff)
	}
}

// An overload in a face's schema fails the migration and is named; other
// functions there are their owner's business.
func TestContract_O2_AnOverloadInAFaceIsNamed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := withFaces(t)
	conn := db.Conn(t, pgtest.Owner)
	if _, err := conn.Exec(ctx, `create function app.mine() returns int language sql as 'select 1'`); err != nil {
		t.Fatal(err)
	}
	up(t, conn)
	if _, err := conn.Exec(ctx, `
		create function app.outbox_claim(int, uuid) returns int language sql as 'select 1';
		create function m10_recovery.publish_outbox(text, jsonb) returns int language sql as 'select 1'`); err != nil {
		t.Fatal(err)
	}
	_, err := schema.Up(ctx, conn)
	if err == nil || !strings.Contains(err.Error(), "app.outbox_claim has 2 signatures") || !strings.Contains(err.Error(), "m10_recovery.publish_outbox has 2 signatures") || strings.Contains(err.Error(), "mine") {
		t.Errorf("Up with overloads: %v", err)
	}
}

// The script with faces makes what installing them makes.
func TestSQL_WithContracts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn := pgtest.Bare(t).Conn(t, pgtest.Owner)
	script, err := schema.SQL("m10", "app")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "begin;\n"+script+"commit;"); err != nil {
		t.Fatal(err)
	}
	if differences, err := schema.Validate(ctx, conn); len(differences) != 0 || err != nil {
		t.Errorf("Validate: %v, %v", differences, err)
	}
	if result := up(t, conn); len(result.Faces) != 0 {
		t.Errorf("Up after the script did %+v", result)
	}
}

// outbox004 is a table as seed 004 describes it, with what its worker left.
const outbox004 = `
	create table public.outbox (
	  id uuid primary key default gen_random_uuid(), tenant_id uuid, topic text not null, payload jsonb not null,
	  created_at timestamptz not null default now(), delivered_at timestamptz, processing_token uuid, attempts int
	);
	create index idx_outbox_claimable on public.outbox (delivered_at, created_at) where delivered_at is null and processing_token is null;
	create schema app;
	create function app.outbox_claim(p_limit int, p_token uuid, p_tenant uuid) returns setof public.outbox language sql as 'select null::public.outbox';
	insert into public.outbox (topic, payload, created_at, attempts, delivered_at, processing_token, tenant_id)
	select 'test', jsonb_build_object('n', n), now() - n * interval '1 minute', n % 3,
	  case when n % 4 = 0 then now() end, case when n % 4 = 1 and n < 20 then gen_random_uuid() end,
	  case when n % 2 = 0 then '6f1c2d3e-0000-4000-8000-000000000001'::uuid end
	from generate_series(1, 1600) n`

// Adopting a table of the face's name loses nothing, keeps the order, and goes
// on where it was cut off, while others insert.
func TestContract_O4_AdoptingATable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	conn := db.Conn(t, pgtest.Owner)
	began := pgtest.One[time.Time](t, conn, `select now()`)
	if _, err := conn.Exec(ctx, outbox004); err != nil {
		t.Fatal(err)
	}
	if _, err := schema.InstallFaces(ctx, conn, []string{"app"}, nil); err == nil || !strings.Contains(err.Error(), "--adopt") {
		t.Fatalf("without adopting: %v", err)
	}
	// What cannot be published is said before anything is touched.
	if _, err := conn.Exec(ctx, `insert into public.outbox (topic, payload) values ('no topic', '{}')`); err != nil {
		t.Fatal(err)
	}
	if _, err := schema.InstallFaces(ctx, conn, []string{"app"}, &schema.Takeover{}); err == nil || !strings.Contains(err.Error(), "1 undelivered rows") {
		t.Fatalf("with a row that cannot be published: %v", err)
	}
	if _, err := conn.Exec(ctx, `delete from public.outbox where topic = 'no topic'`); err != nil {
		t.Fatal(err)
	}

	installFaces(t, db, true, "app")
	lines(t, db.Psql(t, pgtest.Team, "-c", `insert into outbox (topic, payload) values ('test', '{"n": 0}')`))
	// Cut off after the first step, in the second.
	cut, cancel := context.WithCancel(ctx)
	defer cancel()
	cutConn := db.Conn(t, pgtest.Owner)
	if list, err := schema.Adopt(cut, cutConn, func(schema.Adoption) { cancel() }); err == nil {
		t.Fatalf("the adoption was not cut off: %+v", list)
	}
	if _, err := schema.UninstallFaces(ctx, conn, []string{"app"}); err == nil || !strings.Contains(err.Error(), "outbox_adopted_") {
		t.Errorf("taking the face away in the middle: %v", err)
	}
	before := pgtest.One[int](t, conn, `select count(*) from deed.log`)
	if before < 2 || before > 1200 {
		t.Fatalf("after the cut the log has %d messages", before)
	}
	list, err := schema.Adopt(ctx, conn, nil)
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if got := list[0].Moved + int64(before) - 1; got != 1200 {
		t.Errorf("%d rows were moved, want 1200", got)
	}
	if again, err := schema.Adopt(ctx, conn, nil); len(again) != 0 || err != nil {
		t.Errorf("adopted again: %+v, %v", again, err)
	}
	if n := pgtest.One[int](t, conn, `select count(*) filter (where delivered_at is not null) * 10000 + count(*) from `+list[0].Table); n != 400*10000+400 {
		t.Errorf("%s has %d rows, delivered * 10000 + all", list[0].Table, n)
	}
	order := pgtest.One[string](t, conn, `
		select coalesce(string_agg(q.n::text, ','), '') from (
		  select n, lag(n) over (order by id) as before
		  from (select id, (deed.payload_json(content_type, payload) ->> 'n')::int as n from deed.log where headers is not null) m
		) q where n >= before`)
	if order != "" {
		t.Errorf("out of order: %s", order)
	}
	wrong := pgtest.One[string](t, conn, `
		select coalesce(string_agg(o.topic || (o.payload ->> 'n'), ', '), '')
		from public.outbox o
		cross join lateral (select (o.payload ->> 'n')::int as n) m
		join deed.pending p on p.id = deed.message_seq(o.id)
		where m.n > 0 and (
		  m.n % 4 = 0 or o.attempts <> m.n % 3
		  or abs(extract(epoch from $1::timestamptz - o.created_at) / 60 - m.n) > 2
		  or (o.tenant_id = '6f1c2d3e-0000-4000-8000-000000000001') <> (m.n % 2 = 0)
		  or (p.process_after > $1::timestamptz + interval '3 minutes') is distinct from (case when m.n % 4 = 1 and m.n < 20 then true end)
		)`, began)
	if wrong != "" {
		t.Errorf("moved with a loss: %s", wrong)
	}
	got := lines(t, db.Psql(t, pgtest.Team, "-c", `select payload ->> 'n' from app.outbox_claim(3, gen_random_uuid(), null)`))
	if !slices.Equal(got, []string{"1599", "1598", "1597"}) {
		t.Errorf("claimed %v, want the oldest", got)
	}
	if removed, err := schema.UninstallFaces(ctx, conn, []string{"app"}); len(removed) != 1 || err != nil {
		t.Errorf("removed %v, %v", removed, err)
	}
}

// Every row that cannot be adopted is told, with the reason, and nothing is
// changed; a topic's name that deed cannot have is mapped to another, also when
// the moving is cut off in between.
func TestContract_O4_AdoptingListsAndMaps(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	conn := db.Conn(t, pgtest.Owner)
	if _, err := conn.Exec(ctx, outbox004+`;
		update public.outbox set topic = 'order placed = paid' where payload ->> 'n' = any ('{1,3,5}') and delivered_at is null;
		insert into public.outbox (id, topic, payload)
		select ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, case when n < 30 then 'no topic' else 'test' end,
		  case when n < 30 then '{}'::jsonb else to_jsonb(repeat('x', 2000000)) end
		from generate_series(1, 31) n`); err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	takeover := &schema.Takeover{
		Topics: map[string]string{"order placed = paid": "order.placed"},
		Unfit:  func(r schema.UnfitRow) { told[r.ID] = r.Topic + " " + r.Problem },
	}
	_, err := schema.InstallFaces(ctx, conn, []string{"app"}, takeover)
	if err == nil || !strings.Contains(err.Error(), "31 undelivered rows of public.outbox") || len(told) != 31 {
		t.Fatalf("%d rows were told, want 31: %v", len(told), err)
	}
	for id, what := range told {
		if n := id[len(id)-2:]; (n < "30") != strings.HasPrefix(what, "no topic topic 'no topic' must be") || (n >= "30") != strings.Contains(what, "over the limit") {
			t.Errorf("row %s: %s", id, what)
		}
	}
	if got := pgtest.One[string](t, conn, `select relkind::text from pg_class where oid = 'public.outbox'::regclass`); got != "r" {
		t.Fatalf("public.outbox is a %q now", got)
	}

	if _, err := conn.Exec(ctx, `delete from public.outbox where topic = 'no topic' or length(payload::text) > 1000000`); err != nil {
		t.Fatal(err)
	}
	takeover.Unfit = func(r schema.UnfitRow) { t.Errorf("unfit: %+v", r) }
	if _, err := schema.InstallFaces(ctx, conn, []string{"app"}, takeover); err != nil {
		t.Fatal(err)
	}
	cut, cancel := context.WithCancel(ctx)
	defer cancel()
	if list, err := schema.Adopt(cut, db.Conn(t, pgtest.Owner), func(schema.Adoption) { cancel() }); err == nil {
		t.Fatalf("the adoption was not cut off: %+v", list)
	}
	if _, err := schema.Adopt(ctx, conn, nil); err != nil {
		t.Fatal(err)
	}
	if got := pgtest.One[string](t, conn, `select string_agg(topic || ' ' || n, ', ' order by topic) from (select topic, count(*) as n from deed.log group by topic) q`); got != "order.placed 3, test 1197" {
		t.Errorf("adopted: %s", got)
	}
	if n := pgtest.One[int](t, conn, `select count(*) from deed.contracts where adopting is not null or adopting_topics is not null`); n != 0 {
		t.Error("the adoption is not over")
	}
}

// Adopting does not stand behind a long transaction with everyone behind it: it
// tries for moments, and says who is in the way.
func TestContract_O4_AdoptingDoesNotStopTheTable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	conn := db.Conn(t, pgtest.Owner)
	if _, err := conn.Exec(ctx, outbox004); err != nil {
		t.Fatal(err)
	}
	idle, err := db.Conn(t, pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Rollback(ctx)
	if _, err := idle.Exec(ctx, `insert into public.outbox (topic, payload) values ('test', '{"n": -1}')`); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := schema.InstallFaces(ctx, conn, []string{"app"}, &schema.Takeover{})
		result <- err
	}()
	// It waits for the table, and gives way.
	other := db.Conn(t, pgtest.Owner)
	for waiting, end := false, time.Now().Add(pgtest.Patience); !waiting; { // at once again: it waits for moments
		if len(result) > 0 || time.Now().After(end) {
			t.Fatal("the adoption does not wait for the open transaction")
		}
		waiting = pgtest.One[bool](t, other, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%rename to%')`)
	}
	bounded, cancel := context.WithTimeout(ctx, pgtest.Patience/2) // who stood behind it would wait as long as the transaction is open
	defer cancel()
	if _, err := other.Exec(bounded, `insert into public.outbox (topic, payload) values ('test', '{"n": -2}')`); err != nil {
		t.Errorf("another publisher was stopped: %v", err)
	}
	if err := idle.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	list, err := schema.Adopt(ctx, conn, nil)
	if err != nil || list[0].Moved != 1202 {
		t.Errorf("%+v, %v; want 1202 rows with the two that came meanwhile", list, err)
	}
}

// outbox003 is a table as seed 003 describes it.
const outbox003 = `
	create schema m10_recovery;
	create table m10_recovery.outbox (
	  id bigint generated always as identity primary key, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
	  created_at timestamptz default now(), processed_at timestamptz, retry_count int default 0, process_after timestamptz,
	  claimed_at timestamptz, claimed_by text
	);`

// Seed 003's table is adopted as well: its retries and its claims are kept.
func TestContract_O3_AdoptingATable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	conn := db.Conn(t, pgtest.Owner)
	_, err := conn.Exec(ctx, outbox003+`
		insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, processed_at, retry_count, process_after, claimed_at, claimed_by)
		values ('order', '1', 'order.placed', '{}', now(), 0, null, null, 'w'), ('order', '2', 'order.placed', '{}', null, 3, now() + interval '1 hour', null, null),
		  ('order', '3', 'order.placed', '{}', null, 0, null, now(), 'w')`)
	if err != nil {
		t.Fatal(err)
	}
	installFaces(t, db, true, "m10")
	if list, err := schema.Adopt(ctx, conn, nil); err != nil || len(list) != 1 || list[0].Moved != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	got := lines(t, db.Psql(t, pgtest.Team, "-c", `
		select aggregate_type, aggregate_id, event_type, retry_count, round(extract(epoch from process_after - created_at) / 60) from m10_recovery.outbox order by id`))
	if want := []string{"order|2|order.placed|3|60", "order|3|order.placed|0|5"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A face is not put into a schema of a login's that could replace its functions; in that of deed's owner it is.
func TestContracts_SomebodyElsesSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	conn := db.Conn(t, pgtest.Owner)
	for name, face := range map[string]string{"m10_recovery": "m10", "app": "app"} {
		db.Exec(t, pgtest.Owner, `create schema `+name+` authorization deed_test_app`)
		_, err := schema.InstallFaces(ctx, conn, []string{face}, &schema.Takeover{})
		if want := "the schema " + name + " belongs to deed_test_app"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "alter schema "+name+" owner to ") {
			t.Errorf("%v, want %s", err, want)
		}
		if n := pgtest.One[int](t, conn, `select count(*) from pg_proc where pronamespace = $1::regnamespace`, name); n != 0 {
			t.Errorf("%d functions were put into %s", n, name)
		}
		db.Exec(t, pgtest.Owner, `alter schema `+name+` owner to current_user`)
	}
	installFaces(t, db, false, "m10", "app")
}

// What publishing takes of no row, a time or an aggregate type, is told like the rest, before anything
// is changed; what it just takes is adopted.
func TestContracts_AdoptingTellsOfTimesAndTypes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	conn := db.Conn(t, pgtest.Owner)
	if _, err := conn.Exec(ctx, outbox003+`
		insert into m10_recovery.outbox (aggregate_type, event_type, payload, created_at, process_after, claimed_at)
		values ('zero', 'order.placed', '{}', '0001-01-01Z', null, null), ('parked', 'order.placed', '{}', now(), 'infinity', null),
		  ('far', 'order.placed', '{}', now(), '10000-01-01Z', null), ('claimed', 'order.placed', '{}', now(), null, 'infinity'),
		  (repeat('x', 1001), 'order.placed', '{}', now(), null, null), ('twice', 'no topic', '{}', '-infinity', null, null),
		  ('first', 'order.placed', '{}', '1970-01-01Z', null, null), (repeat('x', 1000), 'order.placed', '{}', now(), '9999-12-31Z', null)`); err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	_, err := schema.InstallFaces(ctx, conn, []string{"m10"}, &schema.Takeover{Unfit: func(r schema.UnfitRow) { told[r.ID] = r.Problem }})
	if err == nil || !strings.Contains(err.Error(), "6 undelivered rows of m10_recovery.outbox") || len(told) != 6 {
		t.Errorf("%q were told, want 6: %v", told, err)
	}
	for id, want := range map[string]string{
		"1": "created_at 0001-", "2": "process_after infinity is infinite or out of range", "3": "process_after ", "4": "claimed_at infinity is",
		"5": "aggregate type of 1001 bytes is over the limit of 1000", "6": "",
	} {
		if !strings.HasPrefix(told[id], want) {
			t.Errorf("row %s: %q, want %q", id, told[id], want)
		}
	}
	if got := pgtest.One[string](t, conn, `select relkind::text from pg_class where oid = 'm10_recovery.outbox'::regclass`); got != "r" {
		t.Fatalf("m10_recovery.outbox is a %q now", got)
	}
	if _, err := conn.Exec(ctx, `delete from m10_recovery.outbox where id <= 6`); err != nil {
		t.Fatal(err)
	}
	installFaces(t, db, true, "m10")
	if list, err := schema.Adopt(ctx, conn, nil); err != nil || len(list) != 1 || list[0].Moved != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}

// What is of a removed tenant is told before anything is changed. Of one that is removed while its rows are
// moved the rest stays, and holds up nobody else's.
func TestContracts_AdoptingBesideARemoval(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	conn := db.Conn(t, pgtest.Owner)
	const gone, going = "6f1c2d3e-0000-4000-8000-00000000000a", "6f1c2d3e-0000-4000-8000-00000000000b"
	remove := func(id string) {
		db.Exec(t, pgtest.Admin, `select deed.add_tenant($1::text::uuid, $1)`, id)
		db.Exec(t, pgtest.Admin, `select deed.remove_tenant($1::text::uuid, 'they have left')`, id)
	}
	if _, err := conn.Exec(ctx, outbox004); err != nil {
		t.Fatal(err)
	}
	insert := func(tenants ...string) {
		if _, err := conn.Exec(ctx, `insert into public.outbox (topic, payload, created_at, tenant_id) select 'test', '{}', now() - interval '1 year', t from unnest($1::text[]::uuid[]) t`, tenants); err != nil {
			t.Fatal(err)
		}
	}
	remove(gone)
	insert(gone, gone)
	told := ""
	_, err := schema.InstallFaces(ctx, conn, []string{"app"}, &schema.Takeover{Unfit: func(r schema.UnfitRow) { told = r.Problem }})
	if err == nil || !strings.Contains(err.Error(), "2 undelivered rows of public.outbox") || told != "tenant "+gone+" was removed" {
		t.Fatalf("told %q, %v", told, err)
	}
	if _, err := conn.Exec(ctx, `delete from public.outbox where tenant_id::text = $1`, gone); err != nil {
		t.Fatal(err)
	}
	insert(going, going, going)
	installFaces(t, db, true, "app")
	table := pgtest.One[string](t, conn, `select adopting from deed.contracts where pack = 'app'`)
	remove(going)
	if list, err := schema.Adopt(ctx, conn, nil); err != nil || len(list) != 1 || list[0].Moved != 1200 {
		t.Errorf("%+v, %v", list, err)
	}
	if n := pgtest.One[int](t, conn, `select count(*)::int from `+table+` where delivered_at is null`); n != 3 {
		t.Errorf("%d undelivered rows have stayed, want the removed tenant's 3", n)
	}
}

// The owner is no superuser and holds none of deed's roles.
func TestContracts_AsAnOrdinaryOwner(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Bare(t)
	super := db.Conn(t, pgtest.Owner)
	up(t, pgtest.Bare(t).Conn(t, pgtest.Owner)) // makes the roles
	name := pgtest.One[string](t, super, `select current_database()`)
	owner := "owner_" + name
	if _, err := super.Exec(ctx, fmt.Sprintf(`create role %[1]s login; grant create on database %[2]s to %[1]s; grant create on schema public to %[1]s`, owner, name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := super.Exec(ctx, `drop schema if exists deed, app, m10_recovery cascade; drop owned by `+owner+`; drop role `+owner); err != nil {
			t.Error(err)
		}
	})
	cfg := super.Config().Copy()
	cfg.User = owner
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	up(t, conn)
	if _, err := conn.Exec(ctx, strings.Replace(outbox004, "create schema app;", "create schema app; alter table public.outbox enable row level security, force row level security; create policy mine on public.outbox using (true);", 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := schema.InstallFaces(ctx, conn, []string{"m10", "app"}, &schema.Takeover{}); err != nil {
		t.Fatal(err)
	}
	if list, err := schema.Adopt(ctx, conn, nil); err == nil || !strings.Contains(err.Error(), "row-level security") {
		t.Errorf("rows may be hidden, and nothing is said: %+v, %v", list, err)
	}
	table := pgtest.One[string](t, conn, `select adopting from deed.contracts where pack = 'app'`)
	if _, err := conn.Exec(ctx, `alter table `+table+` no force row level security`); err != nil {
		t.Fatal(err)
	}
	if list, err := schema.Adopt(ctx, conn, nil); err != nil || list[0].Moved != 1200 {
		t.Errorf("%+v, %v", list, err)
	}
	if n := len(lines(t, db.Psql(t, pgtest.Team, "-c", `select id from app.outbox_claim(2000, gen_random_uuid(), null)`))); n < 1190 {
		t.Errorf("claimed %d", n)
	}
}
