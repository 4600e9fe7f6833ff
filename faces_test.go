package deed_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
	"github.com/deedhq/deed/tenant"
)

// faces returns a database with both published faces.
func faces(t testing.TB) *pgtest.DB {
	t.Helper()
	db := pgtest.New(t)
	if _, err := schema.InstallFaces(context.Background(), db.Conn(t, pgtest.Owner), schema.Faces(), nil); err != nil {
		t.Fatal(err)
	}
	return db
}

// The faces' relations show an application its tenant's messages, both halves,
// and a worker all of them.
func TestContract_D7_FacesShowOnesOwnTenant(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := faces(t)
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	conn := db.Conn(t, pgtest.App)
	as := func(id *tenant.ID, fn func(pgx.Tx)) {
		t.Helper()
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if id != nil {
				if err := tenant.Set(ctx, tx, *id); err != nil {
					return err
				}
			}
			fn(tx)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []tenant.ID{a, b} {
		as(&id, func(tx pgx.Tx) {
			for range 2 {
				if got := pgtest.One[string](t, tx, `insert into public.outbox (topic, payload) values ('t', '{}') returning tenant_id::text`); got != id.String() {
					t.Errorf("the message is tenant %s's, want %s's", got, id)
				}
			}
			// Nobody publishes for somebody else.
			nested, err := tx.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_, err = nested.Exec(ctx, `insert into public.outbox (topic, payload, tenant_id) values ('t', '{}', $1)`, tenant.ID{0xc}.String())
			if sqlState(err) != "DDTEN" {
				t.Errorf("published for another tenant: %v", err)
			}
			if err := nested.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
		})
		n := pgtest.One[int](t, db.Pool(pgtest.Worker), `
			with mine as (select id from app.outbox_claim(1, '11111111-1111-1111-1111-111111111111', $1::text::uuid))
			select app.outbox_mark_delivered('11111111-1111-1111-1111-111111111111', (select array_agg(id) from mine))`, id.String())
		if n != 1 {
			t.Fatalf("delivered %d", n)
		}
	}
	sees := func(q pgtest.Queryer) string {
		t.Helper()
		return pgtest.One[string](t, q, `
			select coalesce(string_agg(substr(tenant_id::text, 1, 2) || case when delivered_at is null then '' else '!' end, ' ' order by tenant_id, delivered_at), 'nothing')
			from public.outbox`)
	}
	for id, want := range map[*tenant.ID]string{&a: "0a! 0a", &b: "0b! 0b", nil: "nothing"} {
		as(id, func(tx pgx.Tx) {
			if got := sees(tx); got != want {
				t.Errorf("tenant %v sees %s, want %s", id, got, want)
			}
			if n := pgtest.One[int](t, tx, `select count(*) from m10_recovery.outbox`); (n == 2) != (id != nil) {
				t.Errorf("tenant %v sees %d events", id, n)
			}
		})
	}
	for _, role := range []pgtest.Role{pgtest.Worker, pgtest.Admin} {
		if got := sees(db.Pool(role)); got != "0a! 0a 0b! 0b" {
			t.Errorf("%s sees %s", role, got)
		}
	}
	for _, q := range []string{
		`select app.outbox_claim(1, gen_random_uuid(), null)`, `select app.outbox_mark_delivered(gen_random_uuid(), '{}')`,
		`select m10_recovery.claim_outbox_events('w')`, `select m10_recovery.complete_outbox_event(1, 'w', true)`,
		`delete from public.outbox`, `select deed.purge()`, `select deed.set_door('t', 's')`, `select deed.adopt('app')`,
	} {
		if _, err := conn.Exec(ctx, q); sqlState(err) != "42501" {
			t.Errorf("the application may run %q: %v", q, err)
		}
	}
}

const tokenA, tokenB = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"

// list returns the one column that a query answers with.
func list(t testing.TB, q interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, sql string, args ...any,
) []string {
	t.Helper()
	rows, err := q.Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// publishFaces are the four faces to publish through; each stores one message of
// a topic, whose payload is {"n": n}.
var publishFaces = map[string]func(t testing.TB, db *pgtest.DB, topic string, n int){
	"go": func(t testing.TB, db *pgtest.DB, topic string, n int) { publish(t, db, message(topic, n)) },
	"sql": func(t testing.TB, db *pgtest.DB, topic string, n int) {
		db.Exec(t, pgtest.App, `select deed.publish($1, jsonb_build_object('n', $2::int))`, topic, n)
	},
	"m10": func(t testing.TB, db *pgtest.DB, topic string, n int) {
		db.Exec(t, pgtest.App, `select m10_recovery.publish_outbox('order', '42', $1, jsonb_build_object('n', $2::int))`, topic, n)
	},
	"app": func(t testing.TB, db *pgtest.DB, topic string, n int) {
		db.Exec(t, pgtest.App, `insert into public.outbox (topic, payload) values ($1, jsonb_build_object('n', $2::int))`, topic, n)
	},
}

// claimFaces are the faces to claim through with SQL: each claims up to two
// messages and finishes them, and returns their numbers.
var claimFaces = map[string]func(t testing.TB, q *pgxpool.Pool, topic, subscription string) []string{
	"sql": func(t testing.TB, q *pgxpool.Pool, topic, subscription string) []string {
		return list(t, q, `
			with c as materialized (select * from deed.claim($1, 'w', 2, $2)),
			done as materialized (select deed.finish(subscription, claim, array_agg(id)) as n from c group by subscription, claim)
			select convert_from(payload, 'UTF8')::jsonb ->> 'n' from c where (select sum(n) from done) = (select count(*) from c)`, topic, subscription)
	},
	"m10": func(t testing.TB, q *pgxpool.Pool, _, _ string) []string {
		var got []string
		for _, row := range list(t, q, `select id || ' ' || (payload ->> 'n') from m10_recovery.claim_outbox_events('w', 2)`) {
			id, n, _ := strings.Cut(row, " ")
			if _, err := q.Exec(context.Background(), `select m10_recovery.complete_outbox_event($1::text::bigint, 'w', true)`, id); err != nil {
				t.Error(err)
			}
			got = append(got, n)
		}
		return got
	},
	"app": func(t testing.TB, q *pgxpool.Pool, _, _ string) []string {
		rows := list(t, q, `select id || ' ' || (payload ->> 'n') from app.outbox_claim(2, $1::text::uuid, null)`, tokenA)
		var ids, got []string
		for _, row := range rows {
			id, n, _ := strings.Cut(row, " ")
			ids, got = append(ids, id), append(got, n)
		}
		if n := pgtest.One[int](t, q, `select app.outbox_mark_delivered($1::text::uuid, $2::text[]::uuid[])`, tokenA, ids); n != len(ids) {
			t.Errorf("marked %d of %d", n, len(ids))
		}
		return got
	},
}

// Whatever door a message came in through, it is claimed and finished through
// any other, of a topic that nobody declared and of a declared one.
func TestContract_O3_EveryWayInToEveryWayOut(t *testing.T) {
	t.Parallel()
	for topic, subscription := range map[string]string{"undeclared": "default", "declared": "handler"} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			db := faces(t)
			claimTopic, runTopic := topic, topic
			if topic == "undeclared" {
				claimTopic, runTopic = "", ""
			} else {
				subscribe(t, db, topic, subscription)
				if err := operator(t, db).SetDoor(context.Background(), topic, subscription, true); err != nil {
					t.Fatal(err)
				}
			}
			n := 0
			for in, put := range publishFaces {
				for out, take := range claimFaces {
					n++
					put(t, db, topic, n)
					if got := take(t, db.Pool(pgtest.Worker), claimTopic, subscription); len(got) != 1 || got[0] != fmt.Sprint(n) {
						t.Errorf("%s to %s: claimed %v, want %d", in, out, got, n)
					}
				}
			}
			rec := &recorder{}
			c, stop := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: runTopic, Name: subscription, Sink: rec}}})
			for _, put := range publishFaces {
				n++
				put(t, db, topic, n)
			}
			eventually(t, "the Go worker to deliver", func() bool { m, _ := rec.counts(); return m == len(publishFaces) })
			drained(t, c)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			owner := db.Pool(pgtest.Owner)
			if got := pgtest.One[int](t, owner, `select count(*) from public.outbox where delivered_at is not null and attempts = 1`); got != n {
				t.Errorf("public.outbox shows %d delivered, want %d", got, n)
			}
			if got := pgtest.One[int](t, owner, `select count(*) from m10_recovery.outbox where processed_at is not null and retry_count = 0 and claimed_by is not null`); got != n {
				t.Errorf("m10_recovery.outbox shows %d processed, want %d", got, n)
			}
		})
	}
}

// Mixed workers on one topic, all at once: nobody gets what another has, and
// nothing is left.
func TestContract_O6_MixedWorkersShareATopic(t *testing.T) {
	t.Parallel()
	db := faces(t)
	subscribe(t, db, "orders", "handler")
	db.Exec(t, pgtest.Admin, `select deed.set_door('orders', 'handler')`)
	const n = 3000
	var msgs []deed.Message
	for i := range n {
		topic := "orders"
		if i%2 == 1 {
			topic = "undeclared"
		}
		msgs = append(msgs, message(topic, i))
	}
	publish(t, db, msgs...)
	var mu sync.Mutex
	seen := map[string]int{} // guarded by mu
	note := func(got []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, g := range got {
			seen[g]++
		}
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
	sink := deed.SinkFunc(func(_ context.Context, m deed.Message) error {
		note([]string{regexp.MustCompile(`\d+`).FindString(string(m.Payload))})
		return nil
	})
	pool := db.NewPool(pgtest.Worker, 16)
	var wg sync.WaitGroup
	for _, take := range claimFaces {
		for range 3 {
			wg.Go(func() {
				for empty := 0; empty < 200 && count() < n; {
					got := take(t, pool, "orders", "handler")
					note(got)
					if len(got) == 0 {
						empty++
					}
				}
			})
		}
	}
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{
		{Topic: "orders", Name: "handler", Sink: sink, BatchSize: 20}, {Name: "default", Sink: sink, BatchSize: 20},
	}})
	wg.Wait()
	eventually(t, "all messages to be delivered", func() bool { return count() == n })
	drained(t, c)
	for m, times := range seen {
		if times != 1 {
			t.Errorf("message %s was handed out %d times", m, times)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select sum(lost) from deed.receipts`); n != 0 {
		t.Errorf("%d claims were lost", n)
	}
}

// Thirty-two psql processes claim at once, through both faces.
func TestContract_O6_ThirtyTwoPsqlClaimers(t *testing.T) {
	t.Parallel()
	db := faces(t)
	db.Exec(t, pgtest.App, `select m10_recovery.publish_outbox('order', '42', 'order.placed', '{}') from generate_series(1, 400)`)
	var mu sync.Mutex
	seen := map[string]int{} // guarded by mu
	var wg sync.WaitGroup
	for i := range 32 {
		sql := `select deed.message_seq(id) from app.outbox_claim(10, gen_random_uuid(), null)`
		if i%2 == 1 {
			sql = fmt.Sprintf(`select id from m10_recovery.claim_outbox_events('psql-%d')`, i)
		}
		cmd := db.Psql(t, pgtest.Team, "-c", sql)
		wg.Go(func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			got := strings.Fields(string(out))
			if len(got) != 10 {
				t.Errorf("claimer %d got %d messages, want 10: nobody waits or goes without while there are enough", i, len(got))
			}
			mu.Lock()
			defer mu.Unlock()
			for _, id := range got {
				seen[id]++
			}
		})
	}
	wg.Wait()
	if len(seen) != 320 {
		t.Errorf("320 claims gave %d messages", len(seen))
	}
}

// A claimer that is killed before it commits has claimed nothing, and nobody
// waits for it meanwhile; one that is killed later keeps its claim until the
// lease is over, and then its token finishes nothing.
func TestContract_O14_PsqlClaimerIsKilled(t *testing.T) {
	t.Parallel()
	db := faces(t)
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.App, `insert into public.outbox (topic, payload) select 't', '{}' from generate_series(1, 10)`)
	cmd := db.Psql(t, pgtest.Team)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "begin;\nselect id from app.outbox_claim(5, '"+tokenA+"', null);\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 5 {
		if !lines.Scan() {
			t.Fatal("psql claimed nothing")
		}
	}
	if got := list(t, worker, `select id::text from app.outbox_claim(10, $1::text::uuid, null)`, tokenB); len(got) != 5 {
		t.Errorf("beside an open claim another got %d, want the other 5", len(got))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	var claimed []string
	eventually(t, "the killed claimer's messages", func() bool {
		claimed = append(claimed, list(t, worker, `select id::text from app.outbox_claim(10, $1::text::uuid, null)`, tokenA)...)
		return len(claimed) == 5
	})

	// Its claim has committed now, and it dies: after the lease another takes over.
	if got := list(t, worker, `select id::text from app.outbox_claim(10, $1::text::uuid, null)`, tokenB); len(got) != 0 {
		t.Errorf("claimed %d under a live lease", len(got))
	}
	lease := pgtest.One[float64](t, worker, `select extract(epoch from min(lease_until - claimed_at))::float8 from deed.pending`)
	if lease != 300 {
		t.Errorf("the lease is %v seconds, want 300", lease)
	}
	db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 second' where claimed_by = $1`, tokenA)
	if got := list(t, worker, `select id::text from app.outbox_claim(3, $1::text::uuid, null)`, tokenB); len(got) != 3 {
		t.Errorf("after the lease %d were taken over, want 3", len(got))
	}
	if n := pgtest.One[int](t, worker, `select app.outbox_mark_delivered($1::text::uuid, $2::text[]::uuid[])`, tokenA, claimed); n != 2 {
		t.Errorf("the stale token finished %d, want the 2 that are still its own", n)
	}
	if n := pgtest.One[int](t, worker, `select app.outbox_mark_delivered($1::text::uuid, $2::text[]::uuid[])`, tokenA, claimed); n != 2 {
		t.Errorf("a repeat says %d, want 2", n)
	}
	if n := pgtest.One[int](t, worker, `select sum(lost) from deed.receipts where worker = $1`, tokenA); n != 6 {
		t.Errorf("the stale token's attempts count %d messages, want 3 twice", n)
	}
}

// Claims of nothing, of less than nothing, of more than there is, and finishes
// with what is wrong.
func TestContract_O4_OddClaims(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := faces(t)
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.App, `insert into public.outbox (topic, payload) select 't', '{}' from generate_series(1, 3)`)
	for _, sql := range []string{
		`select id::text from app.outbox_claim(0, '` + tokenA + `', null)`, `select id::text from m10_recovery.claim_outbox_events('w', 0)`,
		`select id::text from app.outbox_claim(5, '` + tokenA + `', '6f1c2d3e-0000-4000-8000-000000000001')`,
	} {
		if got := list(t, worker, sql); len(got) != 0 {
			t.Errorf("%s: %v", sql, got)
		}
	}
	for _, sql := range []string{
		`select app.outbox_claim(-1, '` + tokenA + `', null)`, `select app.outbox_claim(null, '` + tokenA + `', null)`,
		`select app.outbox_claim(1, null, null)`, `select m10_recovery.claim_outbox_events('w', -1)`,
		`select m10_recovery.claim_outbox_events('')`, `select m10_recovery.claim_outbox_events(null)`,
		`select m10_recovery.claim_outbox_events(repeat('w', 201))`, `select m10_recovery.complete_outbox_event(1, 'w', null)`,
	} {
		if _, err := worker.Exec(ctx, sql); sqlState(err) != "DDARG" {
			t.Errorf("%s: %v, want DDARG", sql, err)
		}
	}
	got := list(t, worker, `select id::text from app.outbox_claim(100, '`+tokenA+`', null)`)
	if len(got) != 3 {
		t.Fatalf("of more than there is: %d, want 3", len(got))
	}
	for sql, want := range map[string]int{
		`select app.outbox_mark_delivered('` + tokenB + `', $1::text[]::uuid[])`:                                               0,
		`select app.outbox_mark_delivered(null, $1::text[]::uuid[])`:                                                           0,
		`select app.outbox_mark_delivered('` + tokenA + `', '{}') + coalesce(array_length($1::text[], 1), 0) - 3`:              0,
		`select coalesce(app.outbox_mark_delivered('` + tokenA + `', null), 0) + coalesce(array_length($1::text[], 1), 0) - 3`: 0,
		// The same numbers, but other messages: numbers come again after a failover.
		`select app.outbox_mark_delivered('` + tokenA + `', array(select deed.message_id(now() - interval '1 day', deed.message_seq(i::uuid)) from unnest($1::text[]) i))`: 0,
	} {
		if n := pgtest.One[int](t, worker, sql, got); n != want {
			t.Errorf("%s: %d, want %d", sql, n, want)
		}
	}
	if n := pgtest.One[int](t, worker, `select app.outbox_mark_delivered('`+tokenA+`', $1::text[]::uuid[])`, append(got, got...)); n != 3 {
		t.Errorf("with repeated ids %d, want 3", n)
	}
}

// The faces claim across topics in one order, and leave alone what is no door.
func TestContract_O4_OldestFirstAcrossDoors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := faces(t)
	c := operator(t, db)
	for _, topic := range []string{"a", "b", "handled"} {
		subscribe(t, db, topic, "one")
		subscribe(t, db, topic, "two")
	}
	for _, topic := range []string{"a", "b"} {
		for _, name := range []string{"one", "two"} { // the mark moves
			if err := c.SetDoor(ctx, topic, name, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.SetDoor(ctx, "a", "three", true); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("a subscription that is not there: %v", err)
	}
	db.Exec(t, pgtest.App, `
		insert into public.outbox (topic, payload, created_at)
		select (array['a', 'b', 'undeclared', 'handled'])[1 + n % 4], jsonb_build_object('n', n), now() - n * interval '1 minute'
		from generate_series(0, 39) n`)
	var want []string
	for n := 39; n >= 0; n-- {
		if n%4 != 3 {
			want = append(want, fmt.Sprint(n))
		}
	}
	worker := db.Pool(pgtest.Worker)
	// Another has some of the oldest in hand: they are stepped over.
	held, err := db.Conn(t, pgtest.Worker).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(ctx)
	got := list(t, held, `select payload ->> 'n' from app.outbox_claim(4, '`+tokenB+`', null)`)
	for _, limit := range []int{1, 7, 3, 100} {
		got = append(got, list(t, worker, `select payload ->> 'n' from app.outbox_claim($1, '`+tokenA+`', null)`, limit)...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claimed in another order (-want +got):\n%s", diff)
	}
	if err := held.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if n := pgtest.One[int](t, worker, `select count(*) from deed.pending where claim is null`); n != 40+4 {
		t.Errorf("%d pending rows are unclaimed, want the 40 of no door and the 4 given back", n)
	}
}

// The faces pass over a stream: its messages are read from the log, in order. What they
// have claimed before, of the queue, they finish or fail.
func TestContract_O4_StreamsAreNoDoors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := faces(t)
	subscribe(t, db, "a", "one")
	c := operator(t, db)
	if err := c.SetDoor(ctx, "a", "one", true); err != nil {
		t.Fatal(err)
	}
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.App, `insert into public.outbox (topic, payload) values ('a', '{}'), ('a', '{}')`)
	first := list(t, worker, `select id::text from app.outbox_claim(1, '`+tokenA+`', null)`)
	second := list(t, worker, `select id::text from m10_recovery.claim_outbox_events('w', 1)`)
	db.Exec(t, pgtest.App, `insert into public.outbox (topic, payload) values ('a', '{}'), ('b', '{}')`)
	db.Exec(t, pgtest.Admin, `select deed.set_topic('a', 'stream')`)
	for range 2 { // and again, after a lost answer
		same(t, "finished", pgtest.One[int](t, worker, `select app.outbox_mark_delivered('`+tokenA+`', array[$1::text::uuid])`, first[0]), 1)
	}
	db.Exec(t, pgtest.Worker, `select m10_recovery.complete_outbox_event($1::text::bigint, 'w', false, 'no')`, second[0])
	same(t, "failed", pgtest.One[string](t, worker, `select string_agg(concat_ws(' ', attempts, claimed_by), ', ') from deed.pending where id = $1::text::bigint`, second[0]), "1")
	// What a stream has put aside of a key is not theirs, whoever has it.
	db.Exec(t, pgtest.Owner, `update deed.pending set key_hash = 7, claim = 1, claimed_by = 'w', claimed_at = now(), lease_until = now() where id = $1::text::bigint`, second[0])
	db.Exec(t, pgtest.Worker, `select m10_recovery.complete_outbox_event($1::text::bigint, 'w', success) from unnest('{t,f}'::boolean[]) success`, second[0])
	same(t, "of what is a stream's", pgtest.One[string](t, worker, `select string_agg(concat_ws(' ', attempts, claimed_by), ', ') from deed.pending where id = $1::text::bigint`, second[0]), "1 w")
	db.Exec(t, pgtest.Owner, `update deed.pending set key_hash = null, claim = null, claimed_by = null, claimed_at = null, lease_until = null where id = $1::text::bigint`, second[0])
	db.Exec(t, pgtest.App, `insert into public.outbox (topic, payload) values ('a', '{}'), ('b', '{}')`)
	if got := list(t, worker, `select topic from app.outbox_claim(100, '`+tokenA+`', null)`); !slices.Equal(got, []string{"b", "b"}) {
		t.Errorf("beside a stream %v are claimed", got)
	}
	if got := list(t, worker, `select event_type from m10_recovery.outbox where processed_at is null`); !slices.Equal(got, []string{"b", "b"}) {
		t.Errorf("beside a stream %v are shown", got)
	}
	if err := c.SetDoor(ctx, "a", "one", true); deed.CodeOf(err) != deed.Conflict || !strings.Contains(err.Error(), "stream") {
		t.Errorf("a stream as a door: %v", err)
	}
	if _, err := db.Pool(pgtest.Admin).Exec(ctx, `select deed.set_door('a', 'one')`); sqlState(err) != "DDMOD" {
		t.Errorf("a stream as a door: %v", err)
	}
}

// A message that kills its claimers is claimed alone, and dies, through the
// faces as through the others (O17).
func TestContract_O17_ThroughTheFaces(t *testing.T) {
	t.Parallel()
	db := faces(t)
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.App, `insert into public.outbox (topic, payload) select 't', '{}' from generate_series(1, 4)`)
	expire := func() {
		t.Helper()
		db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 second' where claim is not null`)
	}
	claim := func() int {
		t.Helper()
		return len(list(t, worker, `select id::text from app.outbox_claim(10, '`+tokenA+`', null)`))
	}
	if n := claim(); n != 4 {
		t.Fatalf("claimed %d", n)
	}
	expire()
	if n := claim(); n != 4 {
		t.Errorf("after one lost claim %d are claimed, want 4", n)
	}
	expire()
	if n := claim(); n != 1 {
		t.Errorf("after two lost claims %d are claimed, want 1 alone", n)
	}
	expire()
	db.Exec(t, pgtest.Owner, `update deed.pending set lost_claims = 29 where lost_claims = 2`)
	if n := claim(); n != 1 {
		t.Errorf("beside a dead one %d are claimed, want 1", n)
	}
	if got := pgtest.One[string](t, worker, `select last_error from deed.pending where dead_at is not null`); !strings.Contains(got, "claim lost 30 times") {
		t.Errorf("it died of %q", got)
	}
}

// What is not JSON is shown as a string, and spoils no claim.
func TestContract_O4_OtherContentTypes(t *testing.T) {
	t.Parallel()
	db := faces(t)
	publish(t, db, deed.Message{Topic: "t", Payload: []byte("\xff\x00\x01"), ContentType: "application/octet-stream"})
	publish(t, db, deed.Message{Topic: "t", Payload: []byte(`{"n": 1}`), ContentType: "application/cloudevents+json"})
	const want = `"/wAB" {"n": 1}`
	got := strings.Join(list(t, db.Pool(pgtest.Worker), `select payload::text from app.outbox_claim(10, '`+tokenA+`', null)`), " ")
	if got != want {
		t.Errorf("claimed %s, want %s", got, want)
	}
	if got := strings.Join(list(t, db.Pool(pgtest.Worker), `select payload::text from m10_recovery.outbox order by id`), " "); got != want {
		t.Errorf("shown as %s, want %s", got, want)
	}
}

// deep is JSON of so many arrays in each other, as an expression of SQL.
func deep(levels int) string { return fmt.Sprintf(`repeat('[', %d) || repeat(']', %[1]d)`, levels) }

// vast is JSON of 81 KB whose text as PostgreSQL writes it has over a gigabyte:
// nobody could be sent it.
const vast = `'[' || repeat('1e131071,', 9000) || '1]'`
