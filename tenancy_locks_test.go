package deed_test

import (
	"context"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// insertable are the relations that the application may INSERT into, and so lock
// as who inserts does, which holds up no INSERT, no SELECT and no claim. Of
// anything else it may lock nothing but as a reader.
var insertable = map[string]bool{"public.outbox": true, "m10_recovery.outbox": true, "public.contact_identities": true}

var lockModes = []string{
	"access share", "row share", "row exclusive", "share update exclusive", "share", "share row exclusive", "exclusive", "access exclusive",
}

// The application may lock no relation in a mode that holds up another's INSERT,
// SELECT or claim. Nor may it wait for such a lock, which would hold up who
// comes after it: all are locked by somebody else here, and it is refused before
// it has to wait.
func TestContract_D7_NoLockHoldsUpAnother(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := faces(t)
	relations := list(t, db.Pool(pgtest.Owner), `
		select format('%I.%I', n.nspname, c.relname) from pg_class c
		join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S') and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')
		order by 1`)
	var lockable []string
	for _, r := range relations {
		if !strings.HasSuffix(r, "_seq") {
			lockable = append(lockable, r)
		}
	}
	holder, err := db.Conn(t, pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(ctx, `lock table `+strings.Join(lockable, ", ")); err != nil {
		t.Fatal(err)
	}
	app := db.Conn(t, pgtest.App)
	for _, relation := range relations {
		for i, mode := range lockModes {
			_, err := app.Exec(ctx, `do $$ begin lock table `+relation+` in `+mode+` mode nowait; end $$`)
			if state := sqlState(err); state == "42501" || strings.HasSuffix(relation, "_seq") && state == "42809" {
				continue
			}
			if i == 0 || i <= 2 && insertable[relation] {
				continue
			}
			t.Errorf("the application may lock %s in %s mode: %v", relation, mode, err)
		}
	}
	if err := holder.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	// Those of PostgreSQL itself cannot be held here.
	if got := list(t, app, `
		select c.oid::regclass::text from pg_class c
		where c.relkind in ('r', 'p', 'v', 'm', 'f') and has_table_privilege(c.oid, 'update, delete, truncate')
		  and c.oid <> 'pg_settings'::regclass -- sets what the session has anyway, and is locked by no one
	`); len(got) != 0 {
		t.Errorf("the application may lock %v in any mode", got)
	}
}

// What deed alone writes is refused with the reason nevertheless.
func TestContract_O4_AnUpdateIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := faces(t)
	for relation, columns := range map[string][]string{
		"public.outbox":       {"id", "tenant_id", "topic", "payload", "created_at", "delivered_at", "processing_token", "attempts"},
		"m10_recovery.outbox": {"id", "aggregate_type", "aggregate_id", "event_type", "payload", "created_at", "processed_at", "retry_count", "claimed_at", "claimed_by"},
	} {
		db.Exec(t, pgtest.App, `insert into `+relation+` (`+map[bool]string{true: "topic", false: "event_type"}[relation == "public.outbox"]+`, payload) values ('t', '{}')`)
		for _, column := range columns {
			if _, err := db.Pool(pgtest.App).Exec(ctx, `update `+relation+` set `+column+` = null`); sqlState(err) != "DDARG" {
				t.Errorf("%s.%s is written: %v, want DDARG", relation, column, err)
			}
		}
	}
}
