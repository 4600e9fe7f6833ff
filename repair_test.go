package deed_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// After a change of the schema's owner, publishing is refused rather than
// silently empty, until migrate has been run (O1).
func TestContract_O1_NewOwnerOfTheSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	publish(t, db, message("orders", 1))
	heir := bequeath(t, db)
	_, err := deed.Publish(ctx, db.Pool(pgtest.App), message("orders", 2))
	if err == nil || !strings.Contains(err.Error(), "owner has changed") {
		t.Fatalf("publishing under another owner: %v", err)
	}
	conn := db.Conn(t, pgtest.Owner)
	if _, err := conn.Exec(ctx, `set role `+heir); err != nil {
		t.Fatal(err)
	}
	if _, err := schema.Up(ctx, conn); err != nil {
		t.Fatal(err)
	}
	publish(t, db, message("orders", 3))
	if got := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.log`); got != 2 {
		t.Errorf("%d messages stored, want 2", got)
	}
}

// bequeath gives the schema to a login that is no superuser.
func bequeath(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	ctx := context.Background()
	heir := "heir_" + db.Name()
	db.Exec(t, pgtest.Owner, `create role `+heir+` login createrole`)
	t.Cleanup(func() { // what the database has of it goes with the database
		conn := db.Conn(t, pgtest.Owner)
		for _, q := range []string{`reassign owned by ` + heir + ` to current_user`, `drop owned by ` + heir, `drop role ` + heir} {
			if _, err := conn.Exec(ctx, q); err != nil {
				t.Error(err)
			}
		}
	})
	db.Exec(t, pgtest.Owner, `grant create on database `+db.Name()+` to `+heir)
	db.Exec(t, pgtest.Owner, `
		do $$
		declare v record;
		begin
		  execute 'alter schema deed owner to `+heir+`';
		  for v in select c.relname, c.relkind from pg_class c where c.relnamespace = 'deed'::regnamespace and c.relkind in ('r', 'p') loop
		    execute format('alter table deed.%I owner to `+heir+`', v.relname);
		  end loop;
		  for v in select c.relname from pg_class c where c.relnamespace = 'deed'::regnamespace and c.relkind = 'S'
		    and not exists (select from pg_depend d where d.objid = c.oid and d.deptype in ('a', 'i')) loop
		    execute format('alter sequence deed.%I owner to `+heir+`', v.relname);
		  end loop;
		  for v in select p.oid::regprocedure::text as f from pg_proc p where p.pronamespace = 'deed'::regnamespace loop
		    execute format('alter function %s owner to `+heir+`', v.f);
		  end loop;
		end $$`)
	return heir
}

// Retries are waited for, however far off; what is scheduled is not.
func TestDrained_WaitsForRetries(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var n int
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Concurrency: 1, Sink: deed.SinkFunc(func(context.Context, deed.Message) error {
		if n++; n == 1 {
			return deed.After(time.Hour)
		}
		return nil
	})}}})
	later := message("orders", 1)
	later.ProcessAfter = time.Now().Add(time.Hour)
	publish(t, db, later)
	drained(t, c)
	publish(t, db, message("orders", 2))
	eventually(t, "the failure", func() bool { return c.Stats()[0].Failed == 1 })
	if ok, err := c.Drained(t.Context()); ok || err != nil {
		t.Errorf("drained with a retry to come: %v, %v", ok, err)
	}
	db.Exec(t, pgtest.Owner, `update deed.pending set process_after = null where attempts > 0`)
	drained(t, c)
}

// A message that was committed late is not given yet, and not forgotten.
func TestDrained_SeesLateCommits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	late, err := db.Conn(t, pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deed.Publish(ctx, late, message("orders", 1)); err != nil {
		t.Fatal(err)
	}
	id := subscribe(t, db, "orders", "s")
	unfinished := func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Worker), `select deed.unfinished(array[$1::int], '1 minute')`, id)
	}
	// All others that were open then, as other tests' transactions, are looked at as they end.
	eventually(t, "nothing to be owed but what nobody sees", func() bool {
		scan(t, db, id)
		return !unfinished()
	})
	if err := late.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if !unfinished() {
		t.Error("a late commit that has not been given yet is not unfinished")
	}
}

// Rows that came from another cluster have transaction ids that say nothing
// here; a new subscription is given them all the same (O18).
func TestContract_O18_AfterARestore(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	subscribe(t, db, "elsewhere", "s") // a window of the old cluster
	publish(t, db, message("orders", 1), message("orders", 2))
	db.Exec(t, pgtest.Owner, `update deed.windows set system_identifier = system_identifier + 1`)
	db.Exec(t, pgtest.Owner, `update deed.log set xid = '4000000000'`)
	id := subscribe(t, db, "orders", "s")
	fresh := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 'later', 'now')`)
	publish(t, db, message("orders", 3))
	scan(t, db, fresh)
	for sub, want := range map[int]int{id: 3, fresh: 1} {
		if got := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending where subscription = $1`, sub); got != want {
			t.Errorf("subscription %d has %d messages, want %d", sub, got, want)
		}
	}
}
