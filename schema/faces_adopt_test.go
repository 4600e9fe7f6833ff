package schema_test

import (
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// What is committed while the adoption waits for the table is checked as well: renamed with a row that
// cannot be published, the rows behind that one would never be moved.
func TestContracts_AdoptingChecksWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.New(t)
	conn, other := db.Conn(t, pgtest.Owner), db.Conn(t, pgtest.Owner)
	if _, err := conn.Exec(ctx, outbox004); err != nil {
		t.Fatal(err)
	}
	open, err := db.Conn(t, pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Rollback(ctx)
	if _, err := open.Exec(ctx, `insert into public.outbox (topic, payload) values ('no topic', '{}')`); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	var told []string
	go func() {
		_, err := schema.InstallFaces(ctx, conn, []string{"app"}, &schema.Takeover{Unfit: func(r schema.UnfitRow) { told = append(told, r.Table+" "+r.Topic) }})
		result <- err
	}()
	for waiting, end := false, time.Now().Add(pgtest.Patience); !waiting; { // at once again: it waits for moments
		if len(result) > 0 || time.Now().After(end) {
			t.Fatal("the adoption does not wait for the open transaction")
		}
		waiting = pgtest.One[bool](t, other, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%rename to%')`)
	}
	if err := open.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err == nil || !strings.Contains(err.Error(), "1 undelivered rows of public.outbox") || len(told) != 1 || told[0] != "public.outbox no topic" {
		t.Errorf("told of %q: %v", told, err)
	}
	if got := pgtest.One[string](t, other, `select relkind::text from pg_class where oid = 'public.outbox'::regclass`); got != "r" {
		t.Errorf("public.outbox is a %q now", got)
	}
}

// Columns may have other types than the seeds': a tenant that is no UUID and a number of
// attempts that is none are told before anything is changed.
func TestContracts_AdoptingTellsOfOtherTypes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.New(t)
	conn := db.Conn(t, pgtest.Owner)
	if _, err := conn.Exec(ctx, `
		create table public.outbox (id int primary key, tenant_id text, topic text, payload jsonb, created_at timestamptz default now(), delivered_at timestamptz, processing_token uuid, attempts numeric);
		insert into public.outbox (id, tenant_id, attempts, topic, payload)
		select r.*, 'orders', '{}' from (values (1, 'acme', 0), (2, null, 3000000000), (3, null, 1.5), (4, null, 'NaN'::numeric), (5, '11111111-1111-1111-1111-11111111111', null),
		  (6, '11111111-1111-1111-1111-111111111111', 2), (7, '1111111111111111111111111111111A', null), (8, '', -1), (0, '{11111111-1111-1111-1111-111111111111}', 1)) r`); err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	_, err := schema.InstallFaces(ctx, conn, []string{"app"}, &schema.Takeover{Unfit: func(r schema.UnfitRow) { told[r.ID] = r.Problem }})
	if err == nil || !strings.Contains(err.Error(), "6 undelivered rows of public.outbox") || len(told) != 6 {
		t.Errorf("%q were told, want 6: %v", told, err)
	}
	for id, want := range map[string]string{
		"1": `tenant_id "acme" is no UUID`, "2": "attempts 3000000000 is no number of attempts", "3": "attempts 1.5 is", "4": "attempts NaN is", "5": "tenant_id ", "0": "tenant_id ",
	} {
		if !strings.HasPrefix(told[id], want) {
			t.Errorf("row %s: %q, want %q", id, told[id], want)
		}
	}
	if _, err := conn.Exec(ctx, `delete from public.outbox where id <= 5`); err != nil {
		t.Fatal(err)
	}
	installFaces(t, db, true, "app")
	if list, err := schema.Adopt(ctx, conn, nil); err != nil || len(list) != 1 || list[0].Moved != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	if got := pgtest.One[string](t, conn, `select string_agg(concat_ws(' ', l.headers ->> 'outbox-id', l.tenant_id, p.attempts), ', ' order by l.id) from deed.log l join deed.pending p on p.id = l.id`); got !=
		"6 11111111-1111-1111-1111-111111111111 2, 7 11111111-1111-1111-1111-11111111111a 0, 8 00000000-0000-0000-0000-000000000000 0" {
		t.Errorf("adopted: %s", got)
	}
}
