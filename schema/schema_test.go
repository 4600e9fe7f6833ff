package schema_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

var update = flag.Bool("update", false, "renew expected.sql")

func TestMain(m *testing.M) { pgtest.Main(m) }

func up(t *testing.T, conn *pgx.Conn) schema.Result {
	t.Helper()
	result, err := schema.Up(context.Background(), conn)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// The finished schema, object by object, is the committed one.
func TestGolden(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	got, err := schema.Describe(ctx, db.Pool(pgtest.Owner))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("expected.sql", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile("expected.sql")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the schema differs from expected.sql; if it is meant to, run go test ./schema -run Golden -update (-want +got):\n%s", diff)
	}
}

func TestUp_IsIdempotentAndValid(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Bare(t)
	conn := db.Conn(t, pgtest.Owner)
	if _, err := schema.Check(ctx, conn); !errors.Is(err, schema.ErrNotInstalled) {
		t.Errorf("Check of an empty database: %v", err)
	}
	states, err := schema.Status(ctx, conn)
	if err != nil || len(states) == 0 || states[0].AppliedAt != "" {
		t.Errorf("Status of an empty database: %+v, %v", states, err)
	}
	if first := up(t, conn); len(first.Applied) != len(states) || !first.Functions {
		t.Errorf("the first Up did %+v", first)
	}
	if second := up(t, conn); len(second.Applied) != 0 || second.Functions {
		t.Errorf("the second Up did %+v", second)
	}
	if newer, err := schema.Check(ctx, conn); newer || err != nil {
		t.Errorf("Check: %t, %v", newer, err)
	}
	if differences, err := schema.Validate(ctx, conn); len(differences) != 0 || err != nil {
		t.Errorf("Validate of a fresh schema: %v, %v", differences, err)
	}
	if _, err := conn.Exec(ctx, `drop index deed.pending_claim_idx; create table deed.mine (id int)`); err != nil {
		t.Fatal(err)
	}
	differences, err := schema.Validate(ctx, conn)
	if err != nil || len(differences) != 3 || !strings.HasPrefix(differences[0], "- CREATE INDEX pending_claim_idx") || !strings.Contains(differences[1], "deed.mine") {
		t.Errorf("Validate of a changed schema: %q, %v", differences, err)
	}
}

// Any number of migrators at once make one schema; also the roles, which are
// the cluster's.
func TestUp_RacingMigrators(t *testing.T) {
	t.Parallel()
	db := pgtest.Bare(t)
	var applied, functions atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		conn := db.Conn(t, pgtest.Owner)
		wg.Go(func() {
			result, err := schema.Up(context.Background(), conn)
			if err != nil {
				t.Error(err)
				return
			}
			applied.Add(int32(len(result.Applied)))
			if result.Functions {
				functions.Add(1)
			}
		})
	}
	wg.Wait()
	migrations, err := schema.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	if int(applied.Load()) != len(migrations) || functions.Load() != 1 {
		t.Errorf("%d migrations and %d times the functions were applied, want %d and 1", applied.Load(), functions.Load(), len(migrations))
	}
}

func TestCheck_OldBinaries(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	// What a program asks of a function, such as a word that it says, older ones need not know.
	db.Exec(t, pgtest.Owner, `update deed.migrations set number = number - 1 where version = 0`)
	if _, err := schema.Check(ctx, db.Pool(pgtest.App)); !errors.Is(err, schema.ErrBehind) {
		t.Errorf("older functions: %v", err)
	}
	db.Exec(t, pgtest.Owner, `update deed.migrations set number = number + 1 where version = 0`)
	db.Exec(t, pgtest.Owner, `insert into deed.migrations (version, name, breaking, hash) values (9001, '9001_later', false, '')`)
	if newer, err := schema.Check(ctx, db.Pool(pgtest.App)); !newer || err != nil {
		t.Errorf("a newer compatible schema: newer %t, %v", newer, err)
	}
	db.Exec(t, pgtest.Owner, `insert into deed.migrations (version, name, breaking, hash) values (9002, '9002_break', true, ''), (9003, '9003_break', true, ''), (9004, '9004_break', true, '')`)
	if _, err := schema.Check(ctx, db.Pool(pgtest.App)); !errors.Is(err, schema.ErrAhead) || !strings.Contains(err.Error(), "9002_break") {
		t.Errorf("a newer breaking schema: %v", err)
	}
	db.Exec(t, pgtest.Owner, `delete from deed.migrations where version = 3`)
	if _, err := schema.Check(ctx, db.Pool(pgtest.App)); !errors.Is(err, schema.ErrBehind) {
		t.Errorf("an older schema: %v", err)
	}
	// A newer program's functions are left alone.
	if result := up(t, pgtest.Bare(t).Conn(t, pgtest.Owner)); !result.Functions {
		t.Error("a fresh database got no functions")
	}
}

// An overload that someone adds is named, by Up.
func TestContract_O2_AnOverloadFailsTheMigration(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Bare(t)
	conn := db.Conn(t, pgtest.Owner)
	up(t, conn)
	if _, err := conn.Exec(ctx, `create function deed.publish(text) returns int language sql as 'select 1'; create function deed.mine() returns int language sql as 'select 1'`); err != nil {
		t.Fatal(err)
	}
	_, err := schema.Up(ctx, conn)
	if err == nil || !strings.Contains(err.Error(), "deed.publish has 2 signatures") || !strings.Contains(err.Error(), "deed.mine is not deed's") {
		t.Errorf("Up with an overload: %v", err)
	}
}

// The script that `deed migrate sql` prints makes the same schema.
func TestSQL_MakesTheSameSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Bare(t)
	conn := db.Conn(t, pgtest.Owner)
	script, err := schema.SQL()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "begin;\n"+script+"commit;"); err != nil {
		t.Fatal(err)
	}
	if differences, err := schema.Validate(ctx, conn); len(differences) != 0 || err != nil {
		t.Errorf("Validate: %v, %v", differences, err)
	}
	if result := up(t, conn); len(result.Applied) != 0 || result.Functions {
		t.Errorf("Up after the script did %+v", result)
	}
}

// An owner that is no superuser, on a cluster where the roles exist: what a
// managed PostgreSQL gives.
func TestUp_AsAnOrdinaryOwner(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Bare(t)
	up(t, pgtest.Bare(t).Conn(t, pgtest.Owner)) // makes the roles
	super := db.Conn(t, pgtest.Owner)
	name := pgtest.One[string](t, super, `select current_database()`)
	owner := "owner_" + name
	if _, err := super.Exec(ctx, `create role `+owner+` login; grant create on database `+name+` to `+owner); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := super.Exec(ctx, `drop schema if exists deed cascade; drop owned by `+owner+`; drop role `+owner); err != nil {
			t.Error(err)
		}
	})
	cfg := super.Config().Copy()
	cfg.User = owner
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	up(t, conn)
	if differences, err := schema.Validate(ctx, conn); len(differences) != 0 || err != nil {
		t.Errorf("Validate: %v, %v", differences, err)
	}
	app := db.Conn(t, pgtest.App)
	pgtest.One[int64](t, app, `select deed.publish('orders', '{}', p_idempotency_key => 'k')`)
	worker := db.Conn(t, pgtest.Worker)
	sub := pgtest.One[int](t, worker, `select subscription from deed.subscribe('orders', 's')`)
	for range 5 {
		pgtest.One[int](t, worker, `select added from deed.backfill($1)`, sub)
	}
	claimed := pgtest.One[int64](t, worker, `select claim from deed.claim('orders', 'w', 1, 's')`)
	pgtest.One[int](t, worker, `select deed.keep_partitions(5)`)
	if n := pgtest.One[int](t, worker, `select deed.finish($1, $2, array(select id from deed.log))`, sub, claimed); n != 1 {
		t.Errorf("finished %d", n)
	}
	if n := pgtest.One[int](t, worker, `select count(*) from deed.verify()`); n != 0 {
		t.Errorf("deed.verify finds %d violations", n)
	}
}

// A kind of plan that is switched off counts as very costly where there is no
// other, and the server compiles costly queries, for half a second each.
func TestFunctions_WithFixedPlansAreNotCompiled(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	got := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(p.proname, ', '), '') from pg_proc p
		where p.pronamespace = 'deed'::regnamespace and p.proconfig::text like '%enable_%' and not 'jit=off' = any (p.proconfig)`)
	if got != "" {
		t.Errorf("without set jit = off: %s", got)
	}
}

// A login that may not make the roles is told what to run.
func TestUp_WithoutPermission(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Bare(t)
	_, err := schema.Up(ctx, db.Conn(t, pgtest.App))
	if err == nil || !strings.Contains(err.Error(), "create role deed_app nologin") {
		t.Errorf("Up without permission: %v", err)
	}
}

func TestUninstall(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Bare(t)
	conn := db.Conn(t, pgtest.Owner)
	up(t, conn)
	for range 2 {
		if err := schema.Uninstall(ctx, conn); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := schema.Check(ctx, conn); !errors.Is(err, schema.ErrNotInstalled) {
		t.Errorf("Check after Uninstall: %v", err)
	}
	up(t, conn)
}

// Partitions are made ahead and opened day by day, and publishers with open
// transactions neither make that wait nor wait for it.
func TestPartitions_AheadOfNeed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `select deed.keep_partitions()`) // the template may be of the week before
	idle, err := db.Conn(t, pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Rollback(ctx)
	pgtest.One[int64](t, idle, `select deed.publish('orders', '{}')`)
	owner, worker := db.Pool(pgtest.Owner), db.Conn(t, pgtest.Worker)
	before := pgtest.One[int](t, owner, `select count(*) from deed.partitions`)

	// A day later, and again: the log moves to the next partition.
	for range 2 {
		db.Exec(t, pgtest.App, `select deed.publish('orders', '{}'), deed.publish('orders', '{}')`)
		db.Exec(t, pgtest.Owner, `update deed.partitions set opened_at = opened_at - interval '25 hours'`)
		if made := pgtest.One[int](t, worker, `select deed.keep_partitions()`); made != 1 {
			t.Errorf("made %d partitions, want 1", made)
		}
		if made := pgtest.One[int](t, worker, `select deed.keep_partitions()`); made != 0 {
			t.Errorf("made %d partitions at once again", made)
		}
	}
	db.Exec(t, pgtest.App, `select deed.publish('orders', '{}')`)
	if got := pgtest.One[int](t, owner, `select count(distinct tableoid) from deed.log`); got != 3 {
		t.Errorf("the messages are in %d partitions, want 3", got)
	}
	if got := pgtest.One[int](t, owner, `select count(*) from deed.partitions`); got != before+2 {
		t.Errorf("there are %d partitions, want %d", got, before+2)
	}
	if err := idle.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if differences, err := schema.Validate(ctx, owner); len(differences) != 0 || err != nil {
		t.Errorf("Validate with partitions: %v, %v", differences, err)
	}
}
