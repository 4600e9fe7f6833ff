package schema_test

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
)

// The layout carries both published faces: seed 004's smoke tests 1 to 3, as
// printed but for psql's way of speaking, on a spike of views and functions.
func TestSpike_FacesOverTheLayout(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	spike, err := os.ReadFile("testdata/faces_spike.sql")
	if err != nil {
		t.Fatal(err)
	}
	conn := db.Conn(t, pgtest.Owner)
	if _, err := conn.Exec(ctx, string(spike)+"; set search_path = public"); err != nil {
		t.Fatal(err)
	}
	list := func(q string) []string {
		t.Helper()
		rows, err := conn.Query(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		out, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return out
	}

	// 1. Oldest first, by the inserter's created_at.
	if _, err := conn.Exec(ctx, `
		INSERT INTO outbox (topic, payload, created_at)
		VALUES
		  ('test', '{"seq": 3}'::jsonb, now() - interval '1 hour'),
		  ('test', '{"seq": 1}'::jsonb, now() - interval '3 hours'),
		  ('test', '{"seq": 2}'::jsonb, now() - interval '2 hours')`); err != nil {
		t.Fatal(err)
	}
	got := list(`select (o).payload ->> 'seq' from (SELECT app.outbox_claim(10, gen_random_uuid(), null) as o) x`)
	if !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("claimed %v, want 1, 2, 3", got)
	}

	// 2. Claims do not overlap.
	for range 10 {
		pgtest.One[int64](t, conn, `select m10_recovery.publish_outbox('order', '42', 'order.placed', '{"n": 1}')`)
	}
	first := list(`SELECT id::text FROM app.outbox_claim(5, '11111111-1111-1111-1111-111111111111', null)`)
	second := list(`SELECT id::text FROM app.outbox_claim(5, '22222222-2222-2222-2222-222222222222', null)`)
	if len(first) != 5 || len(second) != 5 || slices.ContainsFunc(first, func(id string) bool { return slices.Contains(second, id) }) {
		t.Errorf("claims %v and %v", first, second)
	}

	// 3. Finishing needs the token.
	finish := func(token string) int {
		t.Helper()
		return pgtest.One[int](t, conn, `
			SELECT app.outbox_mark_delivered('`+token+`',
			  ARRAY(SELECT id FROM outbox WHERE processing_token = '11111111-1111-1111-1111-111111111111'))`)
	}
	if n := finish("bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"); n != 0 {
		t.Errorf("a wrong token finished %d", n)
	}
	if n := finish("11111111-1111-1111-1111-111111111111"); n != 5 {
		t.Errorf("the token finished %d, want 5", n)
	}
	if n := pgtest.One[int](t, conn, `select count(*) from outbox where delivered_at is not null and attempts = 1`); n != 5 {
		t.Errorf("%d rows read as delivered", n)
	}
	if n := pgtest.One[int](t, conn, `select count(*) from m10_recovery.outbox where processed_at is not null and aggregate_type = 'order' and aggregate_id = '42' and claimed_by is not null`); n != 5 {
		t.Errorf("the other face reads %d rows as processed", n)
	}
}
