package schema_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// While somebody's transaction stays open, a migration that needs its table
// waits, and nobody behind the migration does.
func TestUp_WaitsWithoutHoldingUpOthers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), pgtest.Patience)
	defer cancel()
	db := pgtest.New(t)
	const hold = `lock table deed.channel_outbox in row exclusive mode`
	open, err := db.Pool(pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Rollback(context.WithoutCancel(ctx))
	if _, err := open.Exec(ctx, hold); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `update deed.migrations set hash = 'older' where version = 0`)

	conn := db.Conn(t, pgtest.Owner)
	result := make(chan error, 1)
	go func() {
		done, err := schema.Up(ctx, conn)
		if err == nil && !done.Functions {
			t.Error("the functions were not replaced")
		}
		result <- err
	}()
	// Often enough that one of them stands behind the migration; not for as long as it
	// tries, which is a minute.
	other := db.Conn(t, pgtest.Owner)
	for n, until := 0, time.Now().Add(25*time.Second); n < 10 && time.Now().Before(until); n++ {
		for waits := false; !waits; {
			if len(result) > 0 || ctx.Err() != nil {
				t.Fatalf("the migration does not wait: %v", ctx.Err())
			}
			waits = pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_locks where not granted and relation = 'deed.channel_outbox'::regclass)`)
		}
		tx, err := other.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, hold); err != nil {
			t.Fatalf("behind the migration: %v", err)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := open.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Errorf("the migration, once the table was free: %v", err)
	}
}

// Any login may take the migrators' lock: who waits for it says for whom.
func TestUp_NamesWhoHasTheLock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	other, conn := db.Conn(t, pgtest.App), db.Conn(t, pgtest.Owner)
	if _, err := other.Exec(context.Background(), `select pg_advisory_lock(hashtextextended('deed.migrate', 0))`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := schema.Up(ctx, conn)
	want := fmt.Sprintf("session %d of deed_test_app", other.PgConn().PID())
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the lock of migrations") {
		t.Errorf("Up: %v, want %s", err, want)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it does not say why it ended: %v", err)
	}
}

// Nothing is installed into a schema of somebody else's, who could change it.
func TestUp_SomebodyElsesSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pgtest.New(t) // whose owners there are
	db := pgtest.Bare(t)
	conn := db.Conn(t, pgtest.Owner)
	db.Exec(t, pgtest.Owner, `create schema deed authorization deed_test_app`)
	if _, err := schema.Up(ctx, conn); err == nil || !strings.Contains(err.Error(), "the schema deed belongs to deed_test_app") {
		t.Errorf("Up: %v", err)
	}
	if n := pgtest.One[int](t, conn, `select count(*) from pg_class where relnamespace = 'deed'::regnamespace`); n != 0 {
		t.Errorf("%d relations were made in it", n)
	}
	db.Exec(t, pgtest.Owner, `alter schema deed owner to current_user`)
	if _, err := schema.Up(ctx, conn); err != nil {
		t.Errorf("Up, once it is one's own: %v", err)
	}
}

// A vacuum of the server's own, which takes longer than anybody waits, gives way, and is named.
func TestPatience_AVacuumGivesWay(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true, Settings: map[string]string{"autovacuum_naptime": "1s"}}).DB(t)
	db.Broken() // nobody has published what is vacuumed
	conn := db.Conn(t, pgtest.Owner)
	// A tenth of a second for each of many hundreds of pages.
	for _, sql := range []string{
		`alter table deed.pending set (autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_insert_threshold = 1,
			autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)`,
		`insert into deed.pending (subscription, slot, id, tenant_id, ord_at) select 0, 0, n, '00000000-0000-0000-0000-000000000000', now() from generate_series(1, 30000) n`,
		`delete from deed.pending where id % 2 = 0`,
	} {
		db.Exec(t, pgtest.Owner, sql)
	}
	vacuums := func() bool {
		return pgtest.One[bool](t, conn, `select exists (select from pg_stat_progress_vacuum where relid = 'deed.pending'::regclass)`)
	}
	if !pgtest.Wait(pgtest.Patience, vacuums) {
		t.Fatal("the server does not vacuum")
	}
	if who, _ := schema.InTheWay(ctx, conn); !strings.HasPrefix(who, "the server's vacuum of deed.") {
		t.Errorf("in the way: %q", who)
	}
	if err := schema.Uninstall(ctx, conn); err != nil {
		t.Errorf("Uninstall: %v", err)
	}
}
