package deed_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// fill makes n pending messages of one subscription by hand, fast.
func fill(t testing.TB, db *pgtest.DB, subscription, n int, due, dead string) {
	t.Helper()
	db.ExecSteps(t, pgtest.Owner, n, `
		with based as (
		  select t.slot_base as base from deed.topics t where t.topic = 'orders'
		),
		made as (
		  select nextval('deed.log_seq') as id, (random() * 63)::int as slot from generate_series($1::int, $2::int)
		),
		logged as (
		  insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, payload)
		  select id, pg_current_xact_id(), base + slot, 1000000, '00000000-0000-0000-0000-000000000000', now(), 'orders', '{}' from made, based
		)
		insert into deed.pending (subscription, slot, id, tenant_id, ord_at, process_after, dead_at, last_error)
		select `+itoa(subscription)+`, base + slot, id, '00000000-0000-0000-0000-000000000000', now(), `+due+`, `+dead+`, 'x' from made, based`)
}

// The hot statements touch a bounded number of buffers, with a million
// scheduled, a million dead and half a million due messages about, tables that
// were never analysed, autovacuum off, and an idle write transaction.
func TestPlan_HotStatementsAtMillions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t) // the idle transaction is nobody else's
	id := subscribe(t, db, "orders", "s")
	other := subscribe(t, db, "elsewhere", "s")
	db.Exec(t, pgtest.Owner, `alter table deed.pending set (autovacuum_enabled = off); alter table deed.log_p0 set (autovacuum_enabled = off)`)
	subscribe(t, db, "rare", "s")
	for i := range 20 {
		publish(t, db, deed.Message{Topic: "rare", Key: fmt.Sprint(i % 5), Value: i})
	}
	idle, err := db.Conn(t, pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Rollback(ctx)
	pgtest.One[int64](t, idle, `select deed.publish('orders', '{}')`)
	fill(t, db, id, 500_000, `now() + interval '1 day'`, `null`)
	fill(t, db, id, 500_000, `null`, `now()`)
	fill(t, db, other, 50_000, `null`, `null`)
	fill(t, db, id, 2000, `null`, `null`)
	conn := db.Conn(t, pgtest.Worker)

	for _, warm := range []string{`select deed.claim('orders', 'w', 1, 's')`, `select deed.extend(1, 0, '{}')`, `select deed.watch(null, '{1}', '{now}')`, `select deed.next_due(1)`, `select deed.unfinished('{1}', '0')`} {
		pgtest.Measure(t, conn, pgtest.Any, warm) // the session's first call reads the catalogue
	}
	batch := claim(t, db.Pool(pgtest.Worker), "orders", "w", 100)
	held := fmt.Sprintf("%d, '{%s}'", batch[0].Claim, strings.Trim(strings.ReplaceAll(fmt.Sprint(ids(batch)), " ", ","), "[]"))
	for _, test := range []struct {
		q          string
		rows, most int
	}{
		// A message costs two look-ups by index and two rows, one of them changed.
		{`select * from deed.watch(null, array[` + itoa(id) + `, ` + itoa(other) + `], array['-infinity', '-infinity']::timestamptz[])`, 1, 60},
		{`select deed.next_due(` + itoa(other) + `)`, 1, 100},
		{`select deed.unfinished(array[1], '1 minute')`, 1, 30},
		{`select * from deed.claim('orders', 'w', 1, 's')`, 1, 60},
		{`select * from deed.claim('orders', 'w', 100, 's')`, 100, 2000},
		{`select * from deed.claim('orders', 'w', 1000, 's')`, 1000, 18000},
		{`select deed.extend(` + itoa(id) + `, ` + held + `)`, 1, 2000},
		{`select deed.finish(` + itoa(id) + `, ` + held + `)`, 1, 2500},
	} {
		c := pgtest.Measure(t, conn, test.most, test.q)
		t.Logf("%6d buffers, %4d rows: %.90s", c.Buffers, c.Rows, test.q)
		if c.Buffers > test.most || c.Rows != test.rows {
			t.Errorf("%.90s\ntouched %d buffers for %d rows, want at most %d for %d", test.q, c.Buffers, c.Rows, test.most, test.rows)
		}
	}
	looksAtMillions(t, db)
	db.Broken() // the filled rows are not what a publisher makes
}

// looksAtMillions looks at what [TestPlan_HotStatementsAtMillions] has filled, and at
// two hundred thousand rows of what the program has written into the audit log.
func looksAtMillions(t *testing.T, db *pgtest.DB) {
	db.Exec(t, pgtest.Owner, `
		alter table deed.audit_log set (autovacuum_enabled = off);
		insert into deed.audit_log (actor, action, subject_type) values ('ann', 'topic set', 'topic')`)
	db.ExecSteps(t, pgtest.Owner, 200_000, `
		insert into deed.audit_log (actor, action, subject_type, subject_id, details)
		select 'w', 'settle', 'delivery', case when n % 2 = 0 then n::text end, case when n % 50 = 0 then '{"decision": "sent"}' else '{}' end::jsonb from generate_series($1::int, $2::int) n`)
	db.Exec(t, pgtest.Owner, `update deed.pending set key_hash = id, parked = false where dead_at is not null and id % 10 = 0`)
	for pgtest.One[int](t, db.Pool(pgtest.Owner), `select deed.summarise_log()`) > 0 {
		continue
	}
	owner := db.Conn(t, pgtest.Owner)
	if _, err := owner.Exec(t.Context(), `set enable_bitmapscan = off; set plan_cache_mode = force_generic_plan`); err != nil { // as deed.backfill has it
		t.Fatal(err)
	}
	const between = `select * from deed.undeclared_between('nothing', 300000, 301000, 1000)`
	pgtest.Measure(t, owner, pgtest.Any, between)
	if got := pgtest.Measure(t, owner, 300, between).Buffers; got > 300 {
		t.Errorf("%s touched %d buffers", between, got)
	} else {
		t.Logf("%6d buffers: %s", got, between)
	}
	top := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select max(id) from deed.log`)
	dead := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select max(id) from deed.pending where dead_at is not null`)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		if mode == "force_generic_plan" { // and with statistics
			db.Exec(t, pgtest.Owner, `analyze deed.log, deed.pending, deed.audit_log`)
		}
		conn := db.Conn(t, pgtest.Admin)
		if _, err := conn.Exec(t.Context(), "set plan_cache_mode = "+mode); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			q    string
			rows int
		}{
			{fmt.Sprintf(`select * from deed.look_by_number(%d, %d, 100)`, top-200, top), 100},
			{`select * from deed.look_by_number(300000, 300200, 100)`, 100},
			{`select * from deed.look_by_number(299999, 300000, 1)`, 1},
			{`select * from deed.tail_window(300000, 300200, '3:3:', pg_current_snapshot())`, 1},
			{`select * from deed.look_by_topic('orders', 9223372036854775807, 9, 100)`, 100},
			{`select * from deed.look_by_topic('orders', 300000, 9, 100)`, 100},
			{`select * from deed.look_by_topic('rare', 9223372036854775807, 9, 100)`, 20},
			{`select * from deed.look_by_topic('rare', 9223372036854775807, 100, 100, '1')`, 4},
			{`select * from deed.look_by_topic('nothing', 9223372036854775807, 9, 100)`, 1},
			{`select * from deed.look_at_kept(9223372036854775807, 101, 100)`, 1},
			{`select * from deed.look_at_dead(9223372036854775807, 2147483647, 100, 300, 100)`, 100},
			{`select * from deed.look_at_dead(9223372036854775807, 2147483647, 100, 300, 100, 'orders')`, 100},
			{fmt.Sprintf(`select * from deed.look_at_dead(%d, 0, 100, 300, 100)`, dead-100_000), 100},
			{fmt.Sprintf(`select * from deed.look_at_dead(9223372036854775807, 2147483647, 100, 300, 100, p_ids => array[%d, %d])`, dead, dead-10), 2},
			{`select * from deed.look_at_blocked(0, 0, 100, 100, 200)`, 100},
			{`select * from deed.look_at_blocked(500000, 0, 100, 100, 200)`, 100},
			{`select * from deed.look_at_topics(100)`, 3},
			{`select * from deed.look_at_audit(9223372036854775807, 100)`, 100},
			{`select * from deed.look_at_audit(9223372036854775807, 100, p_all => true)`, 100},
			{`select * from deed.look_at_audit(9223372036854775807, 100, '100000')`, 1},
			{`select * from deed.look_at_audit(9223372036854775807, 100, 'nothing')`, 0},
		} {
			pgtest.Measure(t, conn, pgtest.Any, test.q) // the session's first call reads the catalogue
			c := pgtest.Measure(t, conn, 2000, test.q)
			t.Logf("%6d buffers, %4d rows: %.110s", c.Buffers, c.Rows, test.q)
			if c.Buffers > 2000 || c.Rows != test.rows {
				t.Errorf("%s: %s\ntouched %d buffers for %d rows, want at most 2000 for %d", mode, test.q, c.Buffers, c.Rows, test.rows)
			}
		}
	}
}

// A look that no plan test counts may cost anything.
func TestPlan_EveryLookHasACase(t *testing.T) {
	t.Parallel()
	var cases strings.Builder
	for _, file := range []string{"plan_test.go", "delivery/plan_test.go", "delivery/rates_test.go", "delivery/content_look_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cases.Write(text)
	}
	looks := 0
	for _, name := range schema.FunctionNames() {
		if strings.HasPrefix(name, "look_") {
			looks++
			if !strings.Contains(cases.String(), "from deed."+name+"(") {
				t.Errorf("deed.%s has no case in a plan test", name)
			}
		}
	}
	if looks < 7 {
		t.Errorf("only %d functions are looks", looks)
	}
}

// The same with the statistics of a drained table: one row was analysed, then
// two hundred thousand were published.
func TestPlan_StatisticsOfADrainedTable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t) // what others change has a session read the catalogue again, and that is counted
	id := subscribe(t, db, "orders", "s")
	db.Exec(t, pgtest.Owner, `alter table deed.pending set (autovacuum_enabled = off); alter table deed.log_p0 set (autovacuum_enabled = off)`)
	fill(t, db, id, 1, `null`, `null`)
	db.Exec(t, pgtest.Owner, `analyze deed.pending; analyze deed.log`)
	conn := db.Conn(t, pgtest.Worker)
	for range 3 { // plans are cached while the table is nearly empty
		for _, q := range []string{
			`select deed.claim('orders', 'w', 0, 's')`, `select deed.extend(1, 0, '{1}')`, `select deed.finish(1, -1, '{}')`,
			`select deed.fail(1, 0, '{1}', '{x}')`, `select deed.watch(null, '{1}', '{now}')`, `select deed.next_due(1)`, `select deed.unfinished('{1}', '0')`,
		} {
			if _, err := conn.Exec(ctx, q); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(t, db, id, 200_000, `null`, `null`)
	fill(t, db, id, 200_000, `now() + interval '1 day'`, `null`)
	fresh := db.Conn(t, pgtest.Worker)
	for _, warm := range []string{`select deed.claim('orders', 'w', 1, 's')`, `select deed.extend(1, 0, '{1}')`, `select deed.finish(1, 0, '{}')`, `select deed.fail(1, 0, '{1}', '{x}')`, `select deed.watch(null, '{1}', '{now}')`, `select deed.unfinished('{1}', '0')`} {
		pgtest.Measure(t, fresh, pgtest.Any, warm)
	}
	for name, conn := range map[string]*pgx.Conn{"cached": conn, "fresh": fresh} {
		batch := claim(t, db.Pool(pgtest.Worker), "orders", "w", 200)
		held := func(from, upto int) string {
			return fmt.Sprintf("%d, %d, '{%s}'", id, batch[0].Claim, strings.Trim(strings.ReplaceAll(fmt.Sprint(ids(batch[from:upto])), " ", ","), "[]"))
		}
		for _, test := range []struct {
			q          string
			rows, most int
		}{
			{`select * from deed.claim('orders', 'w', 100, 's')`, 100, 2500},
			{`select deed.extend(` + held(0, 200) + `)`, 1, 4000},
			{`select deed.finish(` + held(0, 100) + `)`, 1, 2500},
			{`select * from deed.fail(` + held(100, 200) + `, array_fill('x'::text, '{100}'))`, 100, 5000},
			{`select * from deed.watch(null, array[` + itoa(id) + `], array['-infinity']::timestamptz[])`, 1, 1500}, // it steps over what is leased,
			{`select deed.unfinished(array[` + itoa(id) + `], '1 minute')`, 1, 60},
			{`select deed.next_due(` + itoa(id) + `)`, 1, 2500}, // the thousand oldest
		} {
			c := pgtest.Measure(t, conn, test.most, test.q)
			t.Logf("%s %6d buffers, %4d rows: %.70s", name, c.Buffers, c.Rows, test.q)
			if c.Buffers > test.most || c.Rows != test.rows {
				t.Errorf("%s: %.90s\ntouched %d buffers for %d rows, want at most %d for %d", name, test.q, c.Buffers, c.Rows, test.most, test.rows)
			}
		}
	}
	db.Broken() // the filled rows are not what a publisher makes
}

func itoa(n int) string { return fmt.Sprint(n) }

// Who begins to read a lane asks for what is aside in its own slots, and so does who looks
// after its keys: what other lanes have aside, however much, costs nothing.
func TestPlan_ALaneLooksAtItsOwnKeys(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // the filled rows are not what a publisher makes
	db.Exec(t, pgtest.Owner, `alter table deed.pending set (autovacuum_enabled = off)`)
	const perByte = 100 // keys of each of the 256 first bytes, of which four are a slot's: the lowest, the highest, and others
	db.Exec(t, pgtest.Owner, `
		insert into deed.pending (subscription, slot, id, tenant_id, ord_at, key_hash)
		select 7, b & 63, 1000 * b + n, '00000000-0000-0000-0000-000000000000', now(),
		  (b - case when b > 127 then 256 else 0 end) * 72057594037927936 + case n when 1 then 0 when 2 then 72057594037927935 else n end
		from generate_series(0, 255) b, generate_series(1, $1::int) n`, perByte)
	conn := db.Conn(t, pgtest.Worker)
	for _, test := range []struct {
		q    string
		keys int
	}{
		{`select count(distinct k) from deed.keys_aside(7, '{0}', '{63}') k`, 256 * perByte},
		{`select count(distinct k) from deed.keys_aside(7, '{69}', '{69}') k where (k >> 56) & 63 = 5`, 4 * perByte},
		{`select count(distinct k) from deed.keys_aside(7, '{5,62}', '{6,62}') k`, 12 * perByte},
	} {
		same(t, test.q, pgtest.One[int](t, conn, test.q), test.keys)
	}
	for _, test := range []struct {
		q    string
		most int
	}{
		{`select count(*) from deed.keys_aside(7, '{5}', '{5}')`, 4 * perByte * 8},
		{`select deed.heal_keys(7, '{5}', '{5}')`, 4 * perByte * 16},
	} {
		pgtest.Measure(t, conn, pgtest.Any, test.q) // the first call reads the catalogue
		c := pgtest.Measure(t, conn, test.most, test.q)
		t.Logf("%d buffers: %s", c.Buffers, test.q)
		if c.Buffers > test.most {
			t.Errorf("%s touched %d buffers, want at most %d", test.q, c.Buffers, test.most)
		}
	}
}
