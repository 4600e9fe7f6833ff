package deed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// JSON whose numbers would have very many digits is refused, through every
// function that publishes; ordinary ones with exponents are not.
func TestPublish_VastNumbersAreRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	floats := "[" + strings.Repeat("1.7976931348623157e+308, -4.9e-324,\n", 2000) + `"1e131071, 1e131071"]`
	publish(t, db, deed.Message{Topic: "t", Payload: []byte(floats)}, deed.Message{Topic: "t", Payload: []byte(`[1e131071, 1e-16383]`)})
	for _, number := range []string{"1e131071", "-1E+131071", "1e-16383", "0.1e00131071"} {
		bad := []byte("[" + strings.Repeat(number+",", 9000) + "1]")
		for name, call := range map[string]func() error{
			"Publish, one": func() error {
				_, err := deed.Publish(ctx, db.Pool(pgtest.App), deed.Message{Topic: "t", Payload: bad})
				return err
			},
			"Publish, more": func() error {
				_, err := deed.Publish(ctx, db.Pool(pgtest.App), message("t", 1), deed.Message{Topic: "t", Payload: bad})
				return err
			},
			"publish_one": func() error {
				_, err := db.Pool(pgtest.App).Exec(ctx, `select deed.publish_one('t', $1)`, bad)
				return err
			},
		} {
			if err := call(); err == nil || !strings.Contains(err.Error(), "digits") {
				t.Errorf("%s of many %s: %v", name, number, err)
			}
		}
	}
}

// JSON of over 1,000 arrays and objects in each other is refused by everything
// that publishes or reserves, and what is not so deep is taken, claimed inside of
// other functions and shown. Brackets in strings are no arrays.
func TestPublish_DepthIsBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := faces(t)
	db.Providers(t, "test", "p")
	app := db.Conn(t, pgtest.App)
	shapes := map[string]func(levels int) string{
		"arrays":  func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) },
		"objects": func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) },
		"branches": func(n int) string {
			return strings.Repeat(`[[[]],"]]}\\",{"\"[":`, n/2-1) + strings.Repeat("[", n%2+2) + strings.Repeat("]", n%2+2) + strings.Repeat("}]", n/2-1)
		},
	}
	for shape, of := range shapes {
		for name, sql := range map[string]string{
			"publish":      `select deed.publish('t', $1::text::jsonb)`,
			"publish_one":  `select deed.publish_one('t', convert_to($1::text, 'UTF8'))`,
			"publish_many": `select * from deed.publish_many('{t,t}', array['1', convert_to($1::text, 'UTF8')])`,
			"m10":          `select m10_recovery.publish_outbox('a', 'b', 't', $1::text::jsonb)`,
			"m10's table":  `insert into m10_recovery.outbox (event_type, payload) values ('t', $1::text::jsonb)`,
			"app's table":  `insert into public.outbox (topic, payload) values ('t', $1::text::jsonb)`,
			"reserve": `select * from deed.reserve('{email}', '{p}', '{x@example.com}', array[jsonb_build_object('a', ($1::text::jsonb)#>'{}')],
				array[deed.idempotency_key(gen_random_uuid()::text)])`,
		} {
			most := 1000
			if name == "reserve" {
				most-- // its object is a level
			}
			if _, err := app.Exec(ctx, sql, of(most)); err != nil {
				t.Errorf("%s, %s of %d levels: %v", name, shape, most, err)
			}
			for _, levels := range []int{most + 1, 5000} {
				if _, err := app.Exec(ctx, sql, of(levels)); sqlState(err) != "DDARG" || !strings.Contains(err.Error(), "over 1000 arrays and objects") {
					t.Errorf("%s, %s of %d levels: %v, want DDARG", name, shape, levels, err)
				}
			}
		}
	}
	// Deeper than the server reads itself.
	for _, sql := range []string{`select deed.publish_one('t', convert_to(%s, 'UTF8'))`, `select * from deed.publish_many('{t}', array[convert_to(%s, 'UTF8')])`} {
		if _, err := app.Exec(ctx, fmt.Sprintf(sql, deep(100_000))); sqlState(err) != "DDARG" || !strings.Contains(err.Error(), "over 1000 arrays and objects") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	flat := `["` + strings.Repeat(`[{\"\\`, 3000) + `",` + strings.Repeat(`{"a":[]},[[]],`, 3000) + `1]`
	if _, err := app.Exec(ctx, `select deed.publish('t', $1::text::jsonb)`, flat); err != nil {
		t.Errorf("many brackets: %v", err)
	}
	published := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending`)
	worker := db.Conn(t, pgtest.Worker)
	if _, err := worker.Exec(ctx, `
		create function pg_temp.work() returns int language plpgsql as $$
		declare r record; n int := 0;
		begin
			for r in select * from app.outbox_claim(1000, '`+tokenA+`', null) loop
				n := n + app.outbox_mark_delivered('`+tokenA+`', array[r.id]);
			end loop;
			return n;
		end $$`); err != nil {
		t.Fatal(err)
	}
	if got := pgtest.One[int](t, worker, `select pg_temp.work()`); got != published {
		t.Errorf("claimed and finished %d of %d", got, published)
	}
}

// Headers are bounded all together, and so is an aggregate type.
func TestPublish_HeadersAreBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	headers := map[string]string{}
	for i := range 7 {
		headers[fmt.Sprint("h", i)] = strings.Repeat("x", 8000)
	}
	publish(t, db, deed.Message{Topic: "t", Payload: []byte(`1`), Headers: headers})
	for i := range 3 {
		headers[fmt.Sprint("more", i)] = strings.Repeat("x", 8000)
	}
	bad := deed.Message{Topic: "t", Payload: []byte(`1`), Headers: headers}
	for name, ms := range map[string][]deed.Message{"one": {bad}, "more": {message("t", 1), bad}} {
		if _, err := deed.Publish(ctx, db.Pool(pgtest.App), ms...); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "65536") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := db.Pool(pgtest.App).Exec(ctx, `select deed.publish_many('{t}', '{1}', p_aggregate_types => array[repeat('x', 1001)])`)
	if err == nil || !strings.Contains(err.Error(), "1000") {
		t.Errorf("a long aggregate type: %v", err)
	}
}

// What is bounded is what is stored, however the caller has it: in a row that was
// compressed, or lies outside of its table, a value is said to be far smaller.
func TestPublish_CompressedIsMeasuredAsItIs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Providers(t, "test", "p")
	app := db.Conn(t, pgtest.App)
	for _, sql := range []string{
		`set plan_cache_mode = force_generic_plan`, // as a session comes to by itself: a plan for one call has its values whole
		`create temp table large (headers jsonb, data jsonb, payload bytea)`,
		`insert into large select (select jsonb_object_agg('h' || n, repeat('x', 8000)) from generate_series(1, 200) n), jsonb_build_object('a', repeat('x', 20000000)),
		  convert_to(to_jsonb(repeat('x', 20000000))::text, 'UTF8')`,
	} {
		if _, err := app.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	if pgtest.One[bool](t, app, `select pg_column_size(headers) > 65536 or pg_column_size(data) > 1000000 from large`) {
		t.Fatal("nothing was compressed")
	}
	for name, sql := range map[string]string{
		"headers, publish":      `select deed.publish('t', '1', p_headers => l.headers) from large l`,
		"headers, publish_one":  `select deed.publish_one('t', '1', p_headers => l.headers) from large l`,
		"headers, publish_many": `select deed.publish_many('{t,t}', '{1,1}', p_headers => array[l.headers, l.headers]) from large l`,
		"payload, publish_one":  `select deed.publish_one('t', l.payload) from large l`,
		"payload, publish_many": `select deed.publish_many('{t}', array[l.payload]) from large l`,
		"payload, reserve": `select deed.reserve('{email}', '{p}', '{x@example.com}', array[l.data], array[deed.idempotency_key(gen_random_uuid()::text)])
		  from large l`,
		"data, upsert_contacts": `select deed.upsert_contacts('{1}', '{email}', '{x@example.com}', p_data => array[l.data]) from large l`,
		"evidence":              `select deed.set_consents(array[gen_random_uuid()], '{email}', '{news}', '{granted}', '{form}', p_evidence => array[l.data]) from large l`,
	} {
		if _, err := app.Exec(ctx, sql); sqlState(err) != "DDARG" {
			t.Errorf("%s: %v, want DDARG", name, err)
		}
	}
}

// A message that says it was due, or made, long ago does not pass by those that
// wait: it is due now, and at most an hour and a few minutes older than it is.
// Among each other such messages keep the order of the times they were given.
func TestContract_O6_NobodyJumpsTheQueue(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	waits := publish(t, db, message("t", 1))[0].Seq
	db.Exec(t, pgtest.Owner, `update deed.pending set ord_at = ord_at - interval '90 minutes'`)
	for _, call := range []string{
		`select deed.publish('t', '2', p_process_after => '4713-01-01 BC')`,
		`select deed.publish_many('{t}', '{2}', p_process_after => '{4713-01-01 BC}')`,
		`select deed.publish_many('{t,t}', '{4,3}', p_created_at => array[now() - interval '3 hours', '1970-01-02'])`,
	} {
		if _, err := app.Exec(ctx, call); err != nil {
			t.Fatal(err)
		}
	}
	got := pgtest.One[[]string](t, db.Pool(pgtest.Worker), `select array_agg(convert_from(payload, 'UTF8') order by ord, id) from deed.claim(null, 'w', 10)`)
	if strings.Join(got, " ") != `{"n":1} 3 4 2 2` {
		t.Errorf("claimed in the order %v; the one that waits is %d", got, waits)
	}
	for _, call := range []string{
		`select deed.publish('t', '2', p_process_after => '10000-01-01Z')`,
		`select deed.publish_many('{t}', '{2}', p_process_after => '{294276-01-01Z}')`,
		`select deed.publish_many('{t}', '{2}', p_created_at => '{10000-01-01Z}')`,
	} {
		if _, err := app.Exec(ctx, call); err == nil || !strings.Contains(err.Error(), "DDARG") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// Nor does it where it waits for another subscription than it was published to: one
// that is given what is in the log, and a stream that has put it aside.
func TestContract_O6_NobodyJumpsTheQueueOutOfTheLog(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	old := `select deed.publish_many(array_fill($1::text, '{4}'), '{4,3,2,2}', array_fill($2::text, '{4}'), p_created_at => array[now() - interval '3 hours', '1970-01-02', '1970-01-02', null],
		p_process_after => array[null, null, '1970-01-03', now() - interval '3 hours'])`
	t.Run("a backfill", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		subscribe(t, db, "t", "first")
		if _, err := db.Pool(pgtest.App).Exec(ctx, old, "t", nil); err != nil {
			t.Fatal(err)
		}
		id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('t', 's', 'beginning')`)
		publish(t, db, message("t", 1))
		db.Exec(t, pgtest.Owner, `update deed.pending set ord_at = ord_at - interval '90 minutes' where subscription = $1`, id)
		backfill(t, db, id)
		got := pgtest.One[[]string](t, db.Pool(pgtest.Worker), `select array_agg(convert_from(payload, 'UTF8') order by ord, id) from deed.claim('t', 'w', 10, p_subscription => 's')`)
		if len(got) != 5 || got[0] != `{"n":1}` || got[4] != "2" || slices.Index(got, "3") > slices.Index(got, "4") {
			t.Errorf("claimed in the order %v", got)
		}
	})
	t.Run("a stream", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		pgtest.One[bool](t, db.Pool(pgtest.Worker), `select made from deed.declare_topic('orders', 'stream', 1)`)
		subscribe(t, db, "orders", "s")
		if _, err := db.Pool(pgtest.App).Exec(ctx, old, "orders", "k"); err != nil {
			t.Fatal(err)
		}
		runStream(t, db, stream(newStrictSink(func(deed.Message) error { return errors.New("no") })))
		eventually(t, "all to be put aside", func() bool {
			return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending`) == 4
		})
		if ages := pgtest.One[[]float64](t, db.Pool(pgtest.Owner), `select array_agg(extract(epoch from now() - ord_at) / 60) from deed.pending where now() - ord_at > interval '75 minutes'`); len(ages) > 0 {
			t.Errorf("some of what was put aside takes its turn as if it waited for %v minutes", ages)
		}
	})
}

// Whoever fails a message puts it off by a thousand years at most: no time is stored that
// --json, or Go, cannot say.
func TestFail_PutsOffByAThousandYearsAtMost(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "t", "s")
	publish(t, db, message("t", 1))
	worker := db.Pool(pgtest.Worker)
	claimed := claim(t, worker, "t", "w", 1)[0]
	fail := func(after string) error {
		_, err := worker.Exec(t.Context(), `select deed.fail($1, $2, array[$3::bigint], '{x}', array[$4::text::interval])`, sub, claimed.Claim, claimed.ID, after)
		return err
	}
	for _, after := range []string{"8000 years", "200000 years", "-1001 years"} {
		if err := fail(after); sqlState(err) != "DDARG" {
			t.Errorf("put off by %s: %v", after, err)
		}
	}
	if err := fail("1000 years"); err != nil {
		t.Error(err)
	}
	if due := pgtest.One[time.Time](t, worker, `select process_after from deed.pending`); due.Year() < 3000 || due.Year() > 3100 {
		t.Errorf("due at %s", due)
	}
}
