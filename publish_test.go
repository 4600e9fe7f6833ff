package deed_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/deedsql"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// A message exists if and only if the business change committed, through every
// way.
func TestContract_O1_PublishIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	ways := map[string]func(t *testing.T, db *pgtest.DB, commit bool){
		"pgx": func(t *testing.T, db *pgtest.DB, commit bool) {
			tx, err := db.Pool(pgtest.App).Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := deed.Publish(ctx, tx, message("orders", 1)); err != nil {
				t.Fatal(err)
			}
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			if err := end(ctx); err != nil {
				t.Fatal(err)
			}
		},
		"database/sql": func(t *testing.T, db *pgtest.DB, commit bool) {
			std := stdlib.OpenDBFromPool(db.Pool(pgtest.App))
			defer std.Close()
			tx, err := std.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := deedsql.Publish(ctx, tx, message("orders", 1)); err != nil {
				t.Fatal(err)
			}
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
		},
		"SQL": func(t *testing.T, db *pgtest.DB, commit bool) {
			end := "rollback"
			if commit {
				end = "commit"
			}
			conn := db.Conn(t, pgtest.App)
			for _, q := range []string{"begin", `select deed.publish('orders', '{"n": 1}')`, end} {
				if _, err := conn.Exec(ctx, q); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
	for way, publishThrough := range ways {
		for _, commit := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/commit=%t", way, commit), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				id := subscribe(t, db, "orders", "s")
				publishThrough(t, db, commit)
				want := 0
				if commit {
					want = 1
				}
				owner := db.Pool(pgtest.Owner)
				if got := pgtest.One[int](t, owner, `select count(*) from deed.log`); got != want {
					t.Errorf("the log has %d messages, want %d", got, want)
				}
				if got := pgtest.One[int](t, owner, `select count(*) from deed.pending where subscription = $1`, id); got != want {
					t.Errorf("%d messages are pending, want %d", got, want)
				}
			})
		}
	}
}

func TestPublish_StoresWhatItWasGiven(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	after := time.Date(2031, 2, 3, 4, 5, 6, 789000, time.UTC)
	msgs := []deed.Message{
		{Topic: "t", Key: "k", Type: "a.b", Payload: []byte(` {"a" : 1,  "b":"\\u0000"} `), Headers: map[string]string{"X-Thing": "v, w"}, ProcessAfter: after},
		{Topic: "t", Payload: []byte{0, 1, 0xff, '"', '\\', '{', '}', ','}, ContentType: "application/octet-stream"},
		{Topic: "t/2", Value: map[string]int{"x": 1}, Key: `{"},\ NULL`, Type: "NULL"},
		{Topic: "t", Payload: []byte{}, ContentType: "text/plain"},
	}
	want := []string{
		`t|k|a.b| {"a" : 1,  "b":"\\u0000"} |application/json|{"x-thing": "v, w"}|2031-02-03 04:05:06.000789`,
		"t|||\x00\x01\xff\"\\{},|application/octet-stream||",
		`t/2|{"},\ NULL|NULL|{"x":1}|application/json||`,
		`t||||text/plain||`,
	}
	ways := map[string]func(db *pgtest.DB) ([]deed.Published, error){
		"pgx": func(db *pgtest.DB) ([]deed.Published, error) { return deed.Publish(ctx, db.Pool(pgtest.App), msgs...) },
		"database/sql": func(db *pgtest.DB) ([]deed.Published, error) {
			std := stdlib.OpenDBFromPool(db.Pool(pgtest.App))
			defer std.Close()
			return deedsql.Publish(ctx, std, msgs...)
		},
	}
	for way, publishThrough := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			published, err := publishThrough(db)
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range published {
				var topic, key, typ, contentType, headers, due, id string
				var payload []byte
				err := db.Pool(pgtest.Owner).QueryRow(ctx, `
					select topic, coalesce(key, ''), coalesce(type, ''), payload, content_type, coalesce(headers::text, ''),
					  coalesce(to_char(process_after at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), ''), deed.message_id(created_at, id)::text
					from deed.log where id = $1`, p.Seq).
					Scan(&topic, &key, &typ, &payload, &contentType, &headers, &due, &id)
				if err != nil {
					t.Fatal(err)
				}
				got := strings.Join([]string{topic, key, typ, string(payload), contentType, headers, due}, "|")
				if diff := cmp.Diff(want[i], got); diff != "" {
					t.Errorf("message %d (-want +got):\n%s", i, diff)
				}
				if p.ID.String() != id || p.ID.Seq() != p.Seq || p.Repeated {
					t.Errorf("message %d: published as %+v, the log says %s", i, p, id)
				}
				if i > 0 && p.Seq <= published[i-1].Seq {
					t.Errorf("message %d has number %d after %d: not in the order given", i, p.Seq, published[i-1].Seq)
				}
			}
		})
	}
}

func TestPublish_RefusalsLeaveTheTransactionUsable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `update deed.settings set max_payload = 2048`)
	long := strings.Repeat("x", 300)
	tests := map[string]deed.Message{
		"empty topic":           {Payload: []byte(`1`)},
		"over-long topic":       {Topic: long, Payload: []byte(`1`)},
		"topic with a space":    {Topic: "a b", Payload: []byte(`1`)},
		"no payload":            {Topic: "t"},
		"payload over limit":    {Topic: "t", Payload: []byte(`"` + strings.Repeat("x", 3000) + `"`)},
		"invalid JSON":          {Topic: "t", Payload: []byte(`{"a":`)},
		"invalid UTF-8 in JSON": {Topic: "t", Payload: []byte("\"\xff\"")},
		"NUL escape in JSON":    {Topic: "t", Payload: []byte(`"\u0000"`)},
		"lone surrogate":        {Topic: "t", Payload: []byte(`"\ud800"`)},
		"unencodable value":     {Topic: "t", Value: func() {}},
		"over-long key":         {Topic: "t", Payload: []byte(`1`), Key: strings.Repeat("k", 1001)},
		"NUL in key":            {Topic: "t", Payload: []byte(`1`), Key: "a\x00b"},
		"over-long type":        {Topic: "t", Payload: []byte(`1`), Type: long},
		"bad content type":      {Topic: "t", Payload: []byte(`1`), ContentType: "json"},
		"header with a space":   {Topic: "t", Payload: []byte(`1`), Headers: map[string]string{"a b": "c"}},
		"header with a newline": {Topic: "t", Payload: []byte(`1`), Headers: map[string]string{"a": "b\r\nc: d"}},
		"reserved header":       {Topic: "t", Payload: []byte(`1`), Headers: map[string]string{"Webhook-Id": "x"}},
		"header given twice":    {Topic: "t", Payload: []byte(`1`), Headers: map[string]string{"A": "1", "a": "2"}},
		"over-long idempotency": {Topic: "t", Payload: []byte(`1`), IdempotencyKey: long},
	}
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range tests {
		_, err := deed.Publish(ctx, tx, message("t", 1), m)
		if deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%s: error %v has code %q, want %q", name, err, deed.CodeOf(err), deed.Invalid)
		} else if !strings.Contains(err.Error(), "message 2 of 2") {
			t.Errorf("%s: error %q does not say which message", name, err)
		} else if strings.Contains(err.Error(), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx") {
			t.Errorf("%s: the error quotes the whole input", name)
		}
	}
	if _, err := deed.Publish(ctx, tx, message("t", 2)); err != nil {
		t.Fatalf("after the refusals the transaction is not usable: %v", err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if got := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log`); got != 1 {
		t.Errorf("the log has %d messages, want the 1 that was not refused", got)
	}
}

// What SQL callers send is checked by the same rules, with SQLSTATEs of ours.
func TestPublish_SQLRefusals(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tests := map[string]string{
		`select deed.publish('', '1')`:                                                                               "DDARG",
		`select deed.publish(null, '1')`:                                                                             "DDARG",
		`select deed.publish('t', null)`:                                                                             "DDARG",
		`select deed.publish('t', '1', p_headers => '[1]')`:                                                          "DDARG",
		`select deed.publish('t', '1', p_headers => '{"a": 1}')`:                                                     "DDARG",
		`select deed.publish('t', '1', p_headers => '{"A": "1"}')`:                                                   "DDARG",
		`select deed.publish('t', '1', p_headers => '{"deed-x": "1"}')`:                                              "DDARG",
		`select deed.publish('t', '1', p_headers => '{"a": "b\nc"}')`:                                                "DDARG",
		`select deed.publish('t', '1', p_idempotency_key => '')`:                                                     "DDARG",
		`select deed.publish('t', '1', p_tenant => gen_random_uuid())`:                                               "DDTEN",
		`select deed.publish_many('[0:1]={t,t}'::text[], array['1', '2']::bytea[])`:                                  "DDARG",
		`select deed.publish_many(array[['t', 't']], array[['1', '2']]::bytea[])`:                                    "DDARG",
		`select deed.publish_many(array['t'], array['{']::bytea[])`:                                                  "DDARG",
		`select deed.publish_many(array['t'], array['\xff']::bytea[])`:                                               "DDARG",
		`select deed.publish_many(array['t', 't'], array['1']::bytea[])`:                                             "DDARG",
		`select deed.publish('t', '1', p_process_after => 'infinity')`:                                               "DDARG",
		`select deed.publish_many(array['t'], array['1']::bytea[], p_created_at => array['-infinity'::timestamptz])`: "DDARG",
		`select deed.publish_many(array['t'], null)`:                                                                 "DDARG",
		`select deed.publish_many(array['t'], array['\xff']::bytea[], p_content_types => array['image'])`:            "DDARG",
		`select deed.publish_many(array['t'], array['\xff']::bytea[], p_content_types => array['image/png'])`:        "",
		`select deed.publish_many('{}', '{}')`:                                                                       "",
		`select deed.publish('t', '1', p_process_after => '2031-01-01', p_key => 'k', p_headers => '{"a":""}')`:      "",
	}
	for q, want := range tests {
		_, err := db.Pool(pgtest.App).Exec(context.Background(), q)
		if got := sqlState(err); got != want {
			t.Errorf("%s: SQLSTATE %q (%v), want %q", q, got, err, want)
		}
	}
}

func TestPublish_StrictTopics(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "declared", "s")
	db.Exec(t, pgtest.Owner, `update deed.settings set strict_topics = true`)
	err := pgx.BeginFunc(ctx, db.Pool(pgtest.App), func(tx pgx.Tx) error {
		if _, err := deed.Publish(ctx, tx, message("declared", 1), message("other", 2)); deed.CodeOf(err) != deed.NotFound {
			t.Errorf("publishing to an undeclared topic: %v, want code %q", err, deed.NotFound)
		}
		_, err := deed.Publish(ctx, tx, message("declared", 3))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPublish_IdempotencyKeyReturnsTheFirst(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	m := message("orders", 1)
	m.IdempotencyKey = "key-1"
	first := publish(t, db, m)[0]
	other := message("elsewhere", 1)
	other.IdempotencyKey = "key-1"
	again := publish(t, db, message("orders", 2), m, m, other)
	for i, want := range []bool{false, true, true, false} {
		if again[i].Repeated != want {
			t.Errorf("message %d: repeated %t, want %t", i, again[i].Repeated, want)
		}
	}
	if again[1].ID != first.ID || again[2].Seq != first.Seq {
		t.Errorf("the repeat has %+v, the first %+v", again[1], first)
	}
	if got := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log`); got != 3 {
		t.Errorf("the log has %d messages, want 3", got)
	}

	// A key whose transaction was rolled back is free.
	n := message("orders", 3)
	n.IdempotencyKey = "key-2"
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deed.Publish(ctx, tx, n); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if publish(t, db, n)[0].Repeated {
		t.Error("a key from a rolled-back transaction counts as used")
	}

	// After the window a key is forgotten.
	db.Exec(t, pgtest.Owner, `update deed.publish_keys set used_at = used_at - interval '8 days' where key = 'key-1'`)
	if got := pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.purge_keys()`); got != 2 {
		t.Errorf("purged %d keys, want 2", got)
	}
	if publish(t, db, m)[0].Repeated {
		t.Error("a purged key still counts as used")
	}
}

// Bulk publishers of the same keys in different order neither deadlock nor
// store one twice.
func TestPublish_ConcurrentKeys(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const publishers, keys, rounds = 8, 40, 10
	var wg sync.WaitGroup
	for range publishers {
		wg.Go(func() {
			for round := range rounds {
				msgs := make([]deed.Message, keys)
				for i, k := range rand.Perm(keys) {
					msgs[i] = message("orders", k)
					msgs[i].IdempotencyKey = fmt.Sprintf("%d-%d", round, k)
				}
				published, err := deed.Publish(context.Background(), db.Pool(pgtest.App), msgs...)
				if err != nil {
					t.Error(err)
					return
				}
				if len(published) != keys {
					t.Errorf("%d results for %d messages", len(published), keys)
				}
			}
		})
	}
	wg.Wait()
	if got, want := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log`), keys*rounds; got != want {
		t.Errorf("the log has %d messages, want %d", got, want)
	}
}

func TestPublish_RepeatableReadAsksForARetry(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	rr := pgx.TxOptions{IsoLevel: pgx.RepeatableRead}
	m := message("orders", 1)
	m.IdempotencyKey = "k"

	tx, err := db.Pool(pgtest.App).BeginTx(ctx, rr)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	pgtest.One[int](t, tx, `select 1`) // the snapshot is taken
	publish(t, db, m)
	if _, err := deed.Publish(ctx, tx, m); sqlState(err) != "40001" {
		t.Errorf("a key used since the snapshot: %v, want SQLSTATE 40001", err)
	}

	tx, err = db.Pool(pgtest.App).BeginTx(ctx, rr)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	pgtest.One[int](t, tx, `select 1`)
	subscribe(t, db, "orders", "late")
	if _, err := deed.Publish(ctx, tx, message("orders", 2)); sqlState(err) != "40001" {
		t.Errorf("a subscription made since the snapshot: %v, want SQLSTATE 40001", err)
	}
	if err := pgx.BeginTxFunc(ctx, db.Pool(pgtest.App), rr, func(tx pgx.Tx) error {
		_, err := deed.Publish(ctx, tx, message("orders", 3))
		return err
	}); err != nil {
		t.Errorf("run again, the transaction fails: %v", err)
	}
}

// A key whose window has passed is new, also where the transaction's snapshot still has the old one beside it.
func TestPublish_RepeatableReadBesideAKeyThatIsPurged(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	m := message("orders", 1)
	m.IdempotencyKey = "k"
	publish(t, db, m)
	db.Exec(t, pgtest.Owner, `update deed.publish_keys set used_at = used_at - interval '8 days'`)
	tx, err := db.Pool(pgtest.App).BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	pgtest.One[int](t, tx, `select 1`) // the snapshot is taken
	db.Exec(t, pgtest.Worker, `select deed.purge_keys()`)
	same(t, "keys", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.publish_keys`), 0)
	first, err := deed.Publish(ctx, tx, m, message("orders", 2), message("orders", 3))
	if err != nil {
		t.Fatal(err)
	}
	again, err := deed.Publish(ctx, tx, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	for i, p := range first {
		if p.Repeated {
			t.Errorf("message %d is told to be a repeat", i+1)
		}
	}
	if !again[0].Repeated || again[0].ID != first[0].ID {
		t.Errorf("a repeat in the same transaction: %+v after %+v", again[0], first[0])
	}
	same(t, "messages", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log`), 4)
	same(t, "messages that wait", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending`), 4)
}

func TestPublish_TraceTravelsInTheHeaders(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := deed.WithTrace(context.Background(), deed.Trace{
		Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", State: "a=b", CorrelationID: "c-1",
	})
	own := message("orders", 2)
	own.Headers = map[string]string{"traceparent": "00-1-2-3", "correlation-id": "c-2"}
	if _, err := deed.Publish(ctx, db.Pool(pgtest.App), message("orders", 1), own); err != nil {
		t.Fatal(err)
	}
	got := make(chan deed.Trace, 2)
	run(t, db, deed.Options{Subscriptions: []deed.Subscription{{
		Topic: "orders", Concurrency: 1,
		Sink: deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
			got <- deed.TraceFrom(ctx)
			return nil
		}),
	}}})
	want := deed.TraceFrom(ctx)
	if first := <-got; first != want {
		t.Errorf("the handler's context carries %+v, want %+v", first, want)
	}
	if second := <-got; second != (deed.Trace{Parent: "00-1-2-3", CorrelationID: "c-2"}) {
		t.Errorf("a message's own trace gave way: %+v", second)
	}
}

// A publisher holds to the tenant of its transaction.
func TestContract_D7_PublishersTenant(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	a, b := tenant.ID{1}, tenant.ID{2}
	publishAs := func(role pgtest.Role, set, of tenant.ID) error {
		return pgx.BeginFunc(ctx, db.Pool(role), func(tx pgx.Tx) error {
			if set != tenant.Default {
				if err := tenant.Set(ctx, tx, set); err != nil {
					return err
				}
			}
			m := message("orders", 1)
			m.Tenant = of
			_, err := deed.Publish(ctx, tx, m)
			return err
		})
	}
	check := func(what string, err error, want deed.Code) {
		t.Helper()
		if got := deed.CodeOf(err); got != want {
			t.Errorf("%s: %v has code %q, want %q", what, err, got, want)
		}
	}
	check("single-tenant, none set", publishAs(pgtest.App, tenant.Default, tenant.Default), "")
	check("its own tenant", publishAs(pgtest.App, a, a), "")
	check("the tenant that is set", publishAs(pgtest.App, a, tenant.Default), "")
	check("another tenant", publishAs(pgtest.App, a, b), deed.Forbidden)
	check("a tenant with none set", publishAs(pgtest.App, tenant.Default, b), deed.Forbidden)
	if err := tenant.Add(ctx, db.Pool(pgtest.Admin), a, "a"); err != nil {
		t.Fatal(err)
	}
	check("several tenants, none set", publishAs(pgtest.App, tenant.Default, tenant.Default), deed.Forbidden)
	check("an operator, any tenant", publishAs(pgtest.Admin, tenant.Default, b), "")
	check("a worker, any tenant", publishAs(pgtest.Worker, tenant.Default, b), "")
	owners := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(distinct substr(tenant_id::text, 1, 2), ',' order by substr(tenant_id::text, 1, 2)) from deed.log`)
	if owners != "00,01,02" {
		t.Errorf("the log has messages of tenants %s", owners)
	}
}

// The same key in two tenants is two messages: one tenant cannot block another.
func TestContract_D7_IdempotencyKeysArePerTenant(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	for _, id := range []tenant.ID{{1}, {2}} {
		m := message("orders", 1)
		m.IdempotencyKey = "same"
		err := pgx.BeginFunc(ctx, db.Pool(pgtest.App), func(tx pgx.Tx) error {
			if err := tenant.Set(ctx, tx, id); err != nil {
				return err
			}
			published, err := deed.Publish(ctx, tx, m)
			if err == nil && published[0].Repeated {
				t.Errorf("tenant %s: its first use of the key counts as a repeat", id)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestID(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, seq := range []int64{1, 2, 1<<36 + 5, 1<<62 - 1, 1 << 62, 1<<63 - 1} {
		at := time.Date(2026, 11, 21, 4, 45, 12, 345_678_000, time.UTC)
		id := deed.NewID(at, seq)
		if id.Seq() != seq || !id.Time().Equal(at.Truncate(time.Millisecond)) {
			t.Errorf("%s: seq %d and time %s, want %d and %s", id, id.Seq(), id.Time(), seq, at)
		}
		if id[6]>>4 != 7 || id[8]>>6 != 2 {
			t.Errorf("%s is not shaped as a UUIDv7", id)
		}
		var inSQL string
		var back int64
		err := db.Pool(pgtest.Owner).QueryRow(context.Background(),
			`select deed.message_id($1, $2)::text, deed.message_seq(deed.message_id($1, $2))`, at, seq).Scan(&inSQL, &back)
		if err != nil || inSQL != id.String() || back != seq {
			t.Errorf("SQL makes %s and %d of it (%v), Go %s", inSQL, back, err, id)
		}
		if parsed, err := deed.ParseID(strings.ToUpper(id.String())); err != nil || parsed != id {
			t.Errorf("ParseID(%s): %s, %v", id, parsed, err)
		}
	}
	if deed.NewID(time.UnixMilli(1), 7) == deed.NewID(time.UnixMilli(2), 7) {
		t.Error("a number used twice gives the same id")
	}
	for _, bad := range []string{"", "x", "6f1c2d3e-0000-4000-8000-000000000001", "01a1fc88-7193-7000-8000-00000000000g"} {
		if _, err := deed.ParseID(bad); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("ParseID(%q): %v", bad, err)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("01a1fc88-7193-7000-8000-000000000002")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := deed.ParseID(s); err == nil {
			if again, err := deed.ParseID(id.String()); err != nil || again != id || id.Seq() < 0 {
				t.Errorf("%q: %s, %s, %v", s, id, again, err)
			}
		}
	})
}

// Whatever the text, the array literal that other drivers send is read back as
// it was.
func FuzzTextArgs(f *testing.F) {
	db := pgtest.New(f)
	for _, s := range []string{"", "NULL", `a"b\c{},`, "é\n\t"} {
		f.Add(s, []byte(s))
	}
	f.Fuzz(func(t *testing.T, key string, payload []byte) {
		m := deed.Message{Topic: "t", Key: key, Payload: payload, ContentType: "application/octet-stream"}
		if payload == nil {
			m.Payload = []byte{}
		}
		for query, msgs := range map[string][]deed.Message{
			`select $1::text, $2::text::bytea`:                     {m},
			`select ($1::text::text[])[2], ($2::text::bytea[])[2]`: {m, m},
		} {
			st, err := deed.NewStatement(context.Background(), msgs...)
			if err != nil {
				if !errors.As(err, new(*deed.Error)) {
					t.Fatal(err)
				}
				return
			}
			args := st.TextArgs()
			var gotKey sql.NullString
			var gotPayload []byte
			err = db.Pool(pgtest.Owner).QueryRow(context.Background(), query, args[2], args[1]).Scan(&gotKey, &gotPayload)
			if err != nil || gotKey.String != key || string(gotPayload) != string(m.Payload) {
				t.Errorf("%q %q came back as %q %q (%v)", key, m.Payload, gotKey.String, gotPayload, err)
			}
		}
	})
}
