package deed_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
)

// One message meets the same fate through deed.publish_one as through
// deed.publish_many: what is stored, what is refused, and what is said.
func TestPublishOne_IsPublishManyOfOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "s")
	pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 'second')`)
	const tenant = "6f1c2d3e-0000-4000-8000-000000000001"
	db.Exec(t, pgtest.Owner, `select deed.add_tenant('`+tenant+`', 'one')`)
	db.Exec(t, pgtest.Owner, `update deed.settings set single_tenant = true`)
	columns := []string{"topic", "payload", "key", "type", "content_type", "headers", "tenant", "idempotency_key", "process_after"}
	plain := map[string]any{"topic": "orders", "payload": []byte(`{"n":1}`)}
	changes := []map[string]any{
		{},
		{"key": "k"},
		{"payload": append(append([]byte(`"`), long(2000)...), `"`...)},
		{"type": "t"},
		{"key": "", "type": ""},
		{"topic": "undeclared"},
		{"process_after": "2100-01-01Z"},
		{"process_after": "0044-03-15 BC"},
		{"headers": `{"a": "b"}`},
		{"headers": `{}`},
		{"content_type": "text/plain", "payload": []byte("\x00\xff")},
		{"content_type": "application/vnd.a+json"},
		{"idempotency_key": "i"},
		{"tenant": "00000000-0000-0000-0000-000000000000"},
		{"topic": nil},
		{"topic": ""},
		{"topic": "a b"},
		{"payload": nil},
		{"payload": make([]byte, 2<<20)},
		{"payload": []byte(`{`)},
		{"payload": []byte(`"\u0000"`)},
		{"payload": []byte("\"\xff\"")},
		{"payload": []byte("1e999999")},
		{"payload": []byte("")},
		{"content_type": "application/vnd.a+json", "payload": []byte(`{`)},
		{"content_type": "nonsense"},
		{"content_type": ""},
		{"key": long(1001)},
		{"type": long(201)},
		{"idempotency_key": ""},
		{"idempotency_key": long(201)},
		{"headers": `[]`},
		{"headers": `{"A": "b"}`},
		{"headers": `{"deed-x": "b"}`},
		{"headers": `{"a": 1}`},
		{"headers": `{"a": "\n"}`},
		{"headers": `{"a": "b", "": "c"}`},
		{"tenant": tenant},
		{"process_after": "infinity"},
		{"topic": "é"},
		{"topic": long(201)},
	}
	type fate struct {
		Repeated      *bool
		Code, Problem *string
		Stored        []string
	}
	settings := map[string]string{
		"plain":          `select`,
		"several":        `update deed.settings set single_tenant = false`,
		"strict":         `update deed.settings set strict_topics = true`,
		"small":          `update deed.settings set max_payload = (select 1024)`,
		"tenant set":     `select set_config('app.current_tenant_id', '` + tenant + `', true)`,
		"no settings":    `delete from deed.settings`,
		"repeatable":     `set transaction isolation level repeatable read`,
		"outdated":       `set transaction isolation level repeatable read; select from deed.topics; select nextval('deed.list_seq')`,
		"no subscribers": `update deed.topics set subscriptions = '{}'`,
	}
	try := func(setting, call string, args []any) (f fate, refused string) {
		tx, err := db.Pool(pgtest.Owner).Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Exec(ctx, setting, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		// The worker's role is not in the way: row-level security is passed by the function.
		if err := tx.QueryRow(ctx, call, args...).Scan(&f.Repeated, &f.Code, &f.Problem); err != nil {
			return f, sqlState(err) + " " + err.Error()
		}
		rows, _ := tx.Query(ctx, `
			select (to_jsonb(l) - '{id,xid,slot,created_at}'::text[])::text || coalesce((
			  select jsonb_agg(to_jsonb(p) - '{id,slot,ord,ord_at}'::text[] order by p.subscription)::text from deed.pending p where p.id = l.id and p.slot = l.slot), '')
			  || (l.slot - deed.slot(0, l.key, l.id))::text
			from deed.log l where l.xid = pg_current_xact_id()`)
		f.Stored, err = pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return f, ""
	}
	const one = `select repeated, code, problem from deed.publish_one($1, $2, $3, $4, $5, $6::text::jsonb, $7::text::uuid, $8, $9::text::timestamptz, p_raise => `
	const many = `select repeated, code, problem from deed.publish_many(array[$1]::text[], array[$2]::bytea[], array[$3]::text[], array[$4]::text[],
		array[$5]::text[], array[$6::text]::jsonb[], array[$7::text]::uuid[], case when $8::text is not null then array[$8]::text[] end, array[$9::text]::timestamptz[], p_raise => `
	stored := 0
	for name, setting := range settings {
		for _, change := range changes {
			args := make([]any, len(columns))
			for i, c := range columns {
				v, changed := change[c]
				if !changed {
					v = plain[c]
				}
				args[i] = v
			}
			for _, raise := range []string{"true)", "false) limit 1"} {
				gotOne, errOne := try(setting, one+raise, args)
				gotMany, errMany := try(setting, many+raise, args)
				if diff := cmp.Diff(gotMany, gotOne); diff != "" || errOne != errMany {
					t.Errorf("%s, %.200v, raise %s\nmany and one differ:\n%s\nmany: %s\none:  %s", name, change, raise, diff, errMany, errOne)
				}
				stored += len(gotOne.Stored)
			}
		}
	}
	if stored < 100 {
		t.Errorf("only %d messages were stored", stored)
	}
}

// Few and plain headers are let through by an expression: none that is refused, of
// any character in names and values.
func TestPublishOne_HeadersOfAnyCharacter(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "s")
	wrong := texts(t, db, `
		select h.headers::text
		from generate_series(1, 700) c
		cross join lateral (values
			(jsonb_build_object(chr(c) || 'x', 'v')), (jsonb_build_object('x' || chr(c), 'v', 'a', 'b')), (jsonb_build_object(chr(c), '')),
			(jsonb_build_object('x', 'v' || chr(c))), (jsonb_build_object('x', chr(c), 'deed' || chr(c) || 'x', 'b')), (jsonb_build_object('x', '"webhook' || chr(c)))
		) h(headers)
		cross join lateral deed.publish_one('orders', '{}', p_headers => h.headers, p_raise => false) p
		where (p.id is not null) = exists (select from jsonb_each(h.headers) e where deed.is_bad_header(e.key, e.value))`)
	if len(wrong) > 0 {
		t.Errorf("these headers are let through, or refused, and should not be: %q", wrong)
	}
}

func long(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return string(b)
}
