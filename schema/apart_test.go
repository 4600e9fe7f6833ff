package schema_test

import (
	"context"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// An index is built beside those who write: an open transaction that has written
// to the table makes the migrator wait, and nobody else. What another migrator
// has left half built is built again.
func TestUp_IndexBesideWriters(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `delete from deed.migrations where name = '0014_free_messages'`)
	db.Exec(t, pgtest.Owner, `drop index deed.pending_free_idx`)
	db.Exec(t, pgtest.Owner, `insert into deed.pending (subscription, slot, id, tenant_id, ord_at, key_hash)
		select 0, 0, i, gen_random_uuid(), now(), 1 from generate_series(1, 2) i`)
	// A unique one fails, and stays as an invalid index.
	if _, err := db.Conn(t, pgtest.Owner).Exec(ctx, `create unique index concurrently pending_free_idx on deed.pending (subscription, key_hash)`); err == nil {
		t.Fatal("the index was built")
	}
	tx, err := db.Pool(pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `insert into deed.pending (subscription, slot, id, tenant_id, ord_at) select 0, 0, 10, gen_random_uuid(), now()`); err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 1)
	conn := db.Conn(t, pgtest.Owner)
	go func() {
		_, err := schema.Up(ctx, conn)
		migrated <- err
	}()
	waiting := func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `
			select exists (select from pg_stat_activity where pid = $1 and wait_event_type = 'Lock')`, int32(conn.PgConn().PID()))
	}
	for end := time.Now().Add(30 * time.Second); !waiting(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the migrator does not wait for the open transaction")
		}
	}
	db.Exec(t, pgtest.Owner, `set lock_timeout = '1s'; insert into deed.pending (subscription, slot, id, tenant_id, ord_at) select 0, 0, 11, gen_random_uuid(), now(); reset lock_timeout`)
	if !waiting() {
		t.Error("the migrator has ended before the open transaction")
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	if differences, err := schema.Validate(ctx, db.Conn(t, pgtest.Owner)); len(differences) != 0 || err != nil {
		t.Errorf("the schema differs: %q, %v", differences, err)
	}
	db.Exec(t, pgtest.Owner, `delete from deed.pending`)
}
