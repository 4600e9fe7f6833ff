package deed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// writesFor are the ways to write something for a tenant, $1 being what differs from call
// to call.
var writesFor = map[string]string{
	"publish":      `select deed.publish('orders', '{}', p_key => $1)`,
	"publish many": `select id from deed.publish_many('{orders,undeclared}', '{"{}","{}"}', p_keys => array[$1, $1], p_idempotency_keys => array[$1, $1])`,
	"reserve":      `select id from deed.reserve('{email}', '{p}', '{x@y.z}', '{"{}"}', array[sha256($1::bytea)])`,
	"suppress":     `select deed.suppress('email', array[$1 || '@y.z'], 'x', 'x')`,
	"upsert":       `select id from deed.upsert_contacts('{1}', '{email}', array[$1 || '@y.z'], '{null}')`,
	"identity":     `select deed.add_identity(gen_random_uuid(), 'email', $1 || '@y.z')`,
}

// beginFor begins a transaction that acts for a tenant.
func beginFor(t *testing.T, pool *pgxpool.Pool, id tenant.ID, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if err := tenant.Set(t.Context(), tx, id); err != nil {
		t.Fatal(err)
	}
	return tx
}

// Who has asked for a tenant's removal has nothing written for it any more: not by
// transactions that began before, whatever their isolation, nor by its name.
func TestContract_D7_NobodyWritesForARemovedTenant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := twoTenants(t, db)
	app := db.NewPool(pgtest.App, 30)
	snapshots := map[string]pgx.Tx{}
	for what := range writesFor {
		for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
			tx := beginFor(t, app, b, level)
			pgtest.One[int](t, tx, `select count(*) from deed.log`) // its snapshot
			snapshots[what+" "+string(level)] = tx
		}
	}
	open := beginFor(t, app, b, pgx.ReadCommitted)
	askRemoval(t, db, b)
	for what, sql := range writesFor {
		err := pgx.BeginFunc(t.Context(), open, func(sub pgx.Tx) error {
			_, err := sub.Exec(t.Context(), sql, what)
			return err
		})
		if sqlState(err) != "DDCON" || !strings.Contains(err.Error(), "was removed") {
			t.Errorf("%s: %v, want DDCON", what, err)
		}
	}
	if err := open.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, tx := range snapshots {
		kind := strings.TrimSuffix(strings.TrimSuffix(what, " repeatable read"), " serializable")
		if _, err := tx.Exec(t.Context(), writesFor[kind], strings.ReplaceAll(what, " ", "-")); sqlState(err) != "40001" {
			t.Errorf("%s: %v, want 40001", what, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	removed(t, db, b)
	same(t, "what is left", len(left(t, db, b)), 1)

	_, err := deed.Publish(t.Context(), db.Pool(pgtest.Admin), deed.Message{Topic: "orders", Tenant: b, Value: 1})
	same(t, "an operator's message", deed.CodeOf(err), deed.Conflict)
	same(t, "one that is wrong and raises nothing", pgtest.One[string](t, db.Pool(pgtest.Admin),
		`select code || ' ' || problem from deed.publish_many('{orders}', '{"{}"}', p_tenants => array[$1::text::uuid], p_raise => false)`, b.String()),
		"DDCON publish: tenant "+b.String()+" was removed")
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), b, "b again"); !errors.Is(err, tenant.ErrTaken) {
		t.Errorf("its id for another: %v", err)
	}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), tenant.ID{0xc}, mark); err != nil {
		t.Errorf("its name for another: %v", err)
	}
	as(t, db, a, message("orders", 1))
	verified(t, db)
}

// Who has been found to be of a tenant, and has written nothing yet, is waited for, too: nothing says
// of a file afterwards that its tenant is gone.
func TestContract_D7_AFileThatWaitedForAnother(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, b := twoTenants(t, db)
	app := db.NewPool(pgtest.App, 3)
	const put = `select deed.put_content('a file')`
	first, second := beginFor(t, app, b, pgx.ReadCommitted), beginFor(t, app, b, pgx.ReadCommitted)
	if _, err := first.Exec(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	stored := make(chan error, 1)
	go func() {
		_, err := second.Exec(t.Context(), put)
		stored <- err
	}()
	eventually(t, "the second to wait for the first", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
	})
	askRemoval(t, db, b)
	worker := db.Pool(pgtest.Worker)
	removalStep(t, worker, b, 5000)
	if err := first.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	// The removal is not over before what has an id below this has ended.
	if id, upto := pgtest.One[int64](t, second, `select pg_current_xact_id_if_assigned()::text::bigint`),
		pgtest.One[int64](t, db.Pool(pgtest.Owner), `select upto::text::bigint from deed.tenant_removals`); id >= upto {
		t.Errorf("the transaction that stores a file has the id %d, and the removal waits for those below %d", id, upto)
	}
	if err := second.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	removed(t, db, b)
	same(t, "what is left", len(left(t, db, b)), 1)
}

// A snapshot that is being stored while its run is removed goes with it.
func TestContract_D7_ASnapshotBesideARemoval(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, b := twoTenants(t, db)
	runs := pgtest.One[string](t, db.Pool(pgtest.Owner), `select min(run_id::text) from deed.run_snapshots where tenant_id = $1::text::uuid`, b.String())
	db.Exec(t, pgtest.Owner, `delete from deed.run_stale`) // of which a row would be locked
	askRemoval(t, db, b)
	worker := db.Pool(pgtest.Worker)
	removalStep(t, worker, b, 1)
	projector := db.Conn(t, pgtest.Worker)
	tx, err := projector.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select deed.store_snapshots(array[$1::text::uuid], '{1000}', array[jsonb_build_object('lastEventSeq', 1000)], p_redacted => '{false}')`, runs); err != nil {
		t.Fatal(err)
	}
	for steps := 0; steps < 300; steps++ {
		if removalStep(t, worker, b, 5000) != "going" {
			break
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	removed(t, db, b)
	same(t, "snapshots that are left", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_snapshots where tenant_id = $1::text::uuid`, b.String()), 0)
}

// What a transaction wrote that was open when the removal was asked for is taken away
// when it has committed, and not before is the removal over.
func TestContract_D7_LateCommitsOfARemovedTenant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, b := twoTenants(t, db)
	late := beginFor(t, db.Pool(pgtest.App), b, pgx.ReadCommitted)
	for what, sql := range writesFor {
		if _, err := late.Exec(t.Context(), sql, "late-"+what); err != nil {
			t.Fatal(what, err)
		}
	}
	askRemoval(t, db, b)
	worker := db.Pool(pgtest.Worker)
	for state := "going"; state != "waits"; {
		if state = removalStep(t, worker, b, 5000); state == "done" {
			t.Fatal("it is over, and a transaction that was open has not ended")
		}
	}
	if rows := left(t, db, b); rows["channel_outbox"] > 0 || rows["contacts"] > 0 || rows["publish_keys"] > 0 || rows["log"] == 0 {
		t.Errorf("while it waits, %v are left", rows)
	}
	same(t, "it waits", removalStep(t, worker, b, 5000), "waits")
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := left(t, db, b); rows["channel_outbox"] != 1 || rows["pending"] != 3 {
		t.Fatalf("what was late is not there: %v", rows)
	}
	verified(t, db)
	removed(t, db, b)
	same(t, "what is left", len(left(t, db, b)), 1)
	verified(t, db)
}

// Beside publishers and everybody else, of two tenants, at every isolation: one is
// removed, and has nothing; the other goes on, and loses nothing.
func TestContract_D7_RemovedBesideWriters(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := twoTenants(t, db)
	app := db.NewPool(pgtest.App, 12)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var n, refused, published atomic.Int64
	for i := range 12 {
		id := []tenant.ID{a, b}[i%2]
		level := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}[i%3]
		writers.Go(func() {
			for ctx.Err() == nil {
				var err error
				for what, sql := range writesFor {
					err = pgx.BeginTxFunc(context.WithoutCancel(ctx), app, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
						if err := tenant.Set(t.Context(), tx, id); err != nil {
							return err
						}
						_, err := tx.Exec(t.Context(), sql, fmt.Sprint(what, n.Add(1)))
						return err
					})
					switch state := sqlState(err); {
					case err == nil && id == a && what == "publish":
						published.Add(1)
					case err == nil, state == "40001", state == "40P01":
					case id == b && (state == "DDCON" || state == "23503"):
						refused.Add(1)
					default:
						t.Errorf("%s of %s: %v", what, id, err)
						return
					}
				}
			}
		})
	}
	eventually(t, "some to be written", func() bool { return n.Load() > 200 })
	askRemoval(t, db, b)
	eventually(t, "others to be refused", func() bool { return refused.Load() > 20 })
	removed(t, db, b)
	before := refused.Load()
	eventually(t, "others to be refused afterwards", func() bool { return refused.Load() > before+20 })
	stop()
	writers.Wait()
	same(t, "what is left", len(left(t, db, b)), 1)
	same(t, "the other's messages", pgtest.One[int64](t, db.Pool(pgtest.Worker), `
		select count(*) from deed.log where tenant_id = $1::text::uuid and key like 'publish%' and key not like 'publish many%'`, a.String()), published.Load())
	verified(t, db)
}

// Who had something of the tenant in hand calls nobody for it, is refused whatever it
// reports, and writes nothing.
func TestContract_D7_FrozenWorkersOfARemovedTenant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	for id, name := range map[tenant.ID]string{a: "a", b: "b"} {
		if err := tenant.Add(ctx, db.Pool(pgtest.Admin), id, name); err != nil {
			t.Fatal(err)
		}
	}
	worker := db.Pool(pgtest.Worker)
	db.Providers(t, "fake", "p")
	jobs := subscribe(t, db, "jobs", "s")
	reserve := func(id tenant.ID, keys ...string) {
		asIt := beginFor(t, db.Pool(pgtest.App), id, pgx.ReadCommitted)
		for _, key := range keys {
			if _, err := asIt.Exec(ctx, writesFor["reserve"], key); err != nil {
				t.Fatal(err)
			}
		}
		if err := asIt.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	as(t, db, b, message("jobs", 1), message("jobs", 2), message("undeclared", 3))
	reserve(b, "1", "2", "3")
	got := claim(t, worker, "jobs", "w", 1)
	type held struct {
		ID    string
		Claim int64
	}
	const take = `select id::text, claim from deed.claim_deliveries('p', 'w', 2, '1 minute') where id is not null`
	rows, err := worker.Query(ctx, take)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := pgx.CollectRows(rows, pgx.RowToStructByPos[held])
	if err != nil || len(taken) != 2 {
		t.Fatalf("%d deliveries, %v", len(taken), err)
	}
	const attempt = `select coalesce(string_agg(status || coalesce(why, ''), ','), '') from deed.attempt(array[$1::text::uuid], array[$2::bigint], '{x}', null, '1 minute', 'w')`
	same(t, "an attempt", pgtest.One[string](t, worker, attempt, taken[0].ID, taken[0].Claim), "sending")

	askRemoval(t, db, b)
	as(t, db, a, message("jobs", 4))
	reserve(a, "4")
	same(t, "an attempt afterwards", pgtest.One[string](t, worker, attempt, taken[1].ID, taken[1].Claim), "queuedpaused")
	same(t, "claimed afterwards", pgtest.One[string](t, worker, `select string_agg(tenant_id::text, ',') from deed.claim('jobs', 'w', 10, 's')`), a.String())
	same(t, "deliveries of another", pgtest.One[string](t, worker, `select string_agg(distinct tenant_id::text, ',') from deed.claim_deliveries('p', 'w', 10, '1 minute') where id is not null`), a.String())
	same(t, "through the door", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.claim_doors($1, 10, null)`, tokenA), 0)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = now() - interval '1 second' where status = 'sending'`)
	same(t, "in doubt", pgtest.One[int](t, worker, `select count(*) from deed.claim_doubts('p', 'w', 10, '1 minute', true, true) where action <> 'told'`), 0)
	same(t, "a pause of its own", pgtest.One[int](t, worker,
		`select count(*) from deed.pause('p', array[$1::text::uuid], array[$2::bigint], '{y.z}', '{x}', '{null}', '{true}')`, taken[0].ID, taken[0].Claim), 0)
	late := pgtest.One[int](t, worker, `select subscription from deed.subscribe('jobs', 'late', 'beginning')`)
	scan(t, db, late)
	same(t, "brought to a subscription that is made then", pgtest.One[string](t, worker,
		`select string_agg(distinct tenant_id::text, ',') from deed.pending where subscription = $1`, late), a.String())
	removed(t, db, b)

	same(t, "finished", finish(t, worker, jobs, got[0].Claim, got[0].ID), 0)
	same(t, "renewed", pgtest.One[int](t, worker, `select cardinality(deed.extend($1, $2, array[$3::bigint]))`, jobs, got[0].Claim, got[0].ID), 0)
	same(t, "failed", pgtest.One[int](t, worker, `select count(*) from deed.fail($1, $2, array[$3::bigint], '{x}')`, jobs, got[0].Claim, got[0].ID), 0)
	for what, sql := range map[string]string{
		"settled": `deed.settle(array[$1::text::uuid], array[$2::bigint], '{accepted}', '{m}', '{null}', '{null}', 'w')`,
		"noted":   `deed.note_attempts(array[$1::text::uuid], array[$2::bigint], '{1}', '{unknown}', '{m}', '{c}', '{x}', '{k}', '{false}', '{1}', 'w')`,
		"renewed": `(select unnest(deed.extend_deliveries(array[$1::text::uuid], array[$2::bigint], '1 minute'))) e`,
		"paused":  `deed.pause('p', array[$1::text::uuid], array[$2::bigint], '{y.z}', '{x}', '{null}', '{true}')`,
	} {
		same(t, what, pgtest.One[int](t, worker, `select count(*) from `+sql, taken[0].ID, taken[0].Claim), 0)
	}
	if rows := left(t, db, b); len(rows) != 1 || rows["audit_log"] == 0 {
		t.Errorf("what is left: %v", rows)
	}
	verified(t, db)
}

// A stream hands out nothing of a tenant once its removal has been asked for, also where
// its place is behind; others' messages of the same lanes come, and it puts nothing aside
// that it had read before, be the removal over by then or not.
func TestContract_D7_StreamsPassARemovedTenantBy(t *testing.T) {
	t.Parallel()
	for _, over := range []bool{false, true} {
		t.Run(fmt.Sprint("over ", over), func(t *testing.T) {
			t.Parallel()
			// Of its own: while another test's transaction is open no pass is the last.
			db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
			a, b := tenant.ID{0xa}, tenant.ID{0xb}
			for id, name := range map[tenant.ID]string{a: "a", b: "b"} {
				if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), id, name); err != nil {
					t.Fatal(err)
				}
			}
			reading, goOn := make(chan struct{}, 10), make(chan struct{})
			var ofA, ofB atomic.Int64
			opts := stream(&recorder{fail: func(m deed.Message) error {
				map[tenant.ID]*atomic.Int64{a: &ofA, b: &ofB}[m.Tenant].Add(1)
				if m.Key == "first" {
					reading <- struct{}{}
					<-goOn
					return deed.AfterError(time.Hour, errors.New("not yet"))
				}
				return nil
			}}, func(o *deed.Options) { o.Topics[0].Lanes, o.Subscriptions[0].BatchSize = 1, 20 })
			c, stop := runStream(t, db, opts)
			as(t, db, b, keyed("first", 0))
			<-reading // and it is to be put aside when the tenant is removed
			for i := range 100 {
				as(t, db, a, keyed(fmt.Sprint(i), i))
				as(t, db, b, keyed(fmt.Sprint(i), i))
			}
			// Held up behind what is pending, in the pass that is the last, or not at all.
			db.Exec(t, pgtest.Admin, `select deed.suppress('email', '{x@y.z}', 'x', 'x', $1::text::uuid)`, b.String())
			lock, until := beginFor(t, db.Pool(pgtest.Owner), b, pgx.ReadCommitted), `finished_at is not null`
			if !over {
				until = `is_final and stage = 6`
				if _, err := lock.Exec(t.Context(), `lock table deed.suppressions in share mode`); err != nil { // it takes no transaction id
					t.Fatal(err)
				}
			}
			askRemoval(t, db, b)
			eventuallyWithin(t, 3*time.Minute, "the relay to come that far", func() bool {
				if !over { // a pass that began beside a statement of the relay's own, as its tally, is not the last
					db.Exec(t, pgtest.Owner, `update deed.tenant_removals set stage = 0, waits = true where stage = 6 and not is_final`)
				}
				return pgtest.One[bool](t, db.Pool(pgtest.Worker), `select `+until+` from deed.tenant_removals`)
			})
			close(goOn)
			eventually(t, "the other's messages", func() bool { return ofA.Load() == 100 })
			drained(t, c)
			same(t, "deliveries of the removed one", ofB.Load(), 1)
			same(t, "what is put aside of it", left(t, db, b)["pending"], 0)
			verified(t, db)
			if err := lock.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventuallyWithin(t, 3*time.Minute, "the relay to remove it", func() bool {
				return pgtest.One[bool](t, db.Pool(pgtest.Worker), `select finished_at is not null from deed.tenant_removals`)
			})
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			same(t, "what is left", left(t, db, b)["log"]+left(t, db, b)["pending"], 0)
			verified(t, db)
		})
	}
}

// What others have locked is waited for, table by table, and nothing is left out.
func TestContract_D7_LockedRowsOfARemovedTenant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, b := ofTwo(t, db)
	askRemoval(t, db, b)
	worker, owner := db.Pool(pgtest.Worker), db.NewPool(pgtest.Owner, 20)
	var last string
	for _, table := range []string{"pending", "channel_outbox", "suppressions", "contacts", "log", "kept", "tenants"} {
		tx, err := owner.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `select from deed.`+table+` where tenant_id = $1::text::uuid limit 1 for update`, b.String()); err != nil {
			t.Fatal(err)
		}
		eventuallyWithin(t, 3*time.Minute, "the steps to come to "+table, func() bool {
			state := "going"
			for state == "going" {
				state = removalStep(t, worker, b, 5000)
			}
			if state == "done" {
				t.Fatalf("it is done, and a row of %s was locked", table)
			}
			rows := left(t, db, b)
			return rows[table] > 0 && (table == "pending" || rows[last] == 0)
		})
		verified(t, db)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		last = table
	}
	removed(t, db, b)
	same(t, "what is left", len(left(t, db, b)), 1)
}

// Who may ask, and who may take steps; what is no tenant that can be removed.
func TestRemoveTenant_BadInput(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := twoTenants(t, db)
	operators := db.Pool(pgtest.Admin)
	act := audit.Act{By: "ann", Reason: "x"}
	for what, c := range map[string]struct {
		id   tenant.ID
		act  audit.Act
		want string
	}{
		"the default one": {tenant.Default, act, "everything that names no tenant belongs to the default one"},
		"no reason":       {b, audit.Act{By: "ann", Reason: " "}, "a reason of 1 to 2000 characters is needed"},
		"a long reason":   {b, audit.Act{By: "ann", Reason: strings.Repeat("x", 2001)}, "a reason of 1 to 2000 characters is needed"},
		"a long name":     {b, audit.Act{By: strings.Repeat("x", 201), Reason: "x"}, "who asks is a name of up to 200"},
	} {
		if _, err := tenant.Remove(t.Context(), operators, c.id, c.act); !errors.Is(err, tenant.ErrCannotRemove) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := tenant.CountRows(t.Context(), operators, tenant.Default); !errors.Is(err, tenant.ErrCannotRemove) {
		t.Errorf("counting the default one: %v", err)
	}
	if _, err := tenant.CountRows(t.Context(), operators, tenant.ID{0xc}); !errors.Is(err, tenant.ErrNotFound) {
		t.Errorf("counting one that is not there: %v", err)
	}
	if _, err := tenant.Remove(t.Context(), operators, tenant.ID{0xc}, act); !errors.Is(err, tenant.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	if _, err := tenant.Removals(t.Context(), operators, "x", 10); err == nil {
		t.Error("a cursor that is none is taken")
	}
	// A session that is held to another tenant.
	if _, err := tenant.Remove(t.Context(), beginFor(t, operators, a, pgx.ReadCommitted), b, act); !errors.Is(err, tenant.ErrCannotRemove) || !strings.Contains(err.Error(), "not the one that the transaction has set") {
		t.Errorf("from another tenant's session: %v", err)
	}
	for _, table := range []string{"tenant_logins", "shut_logins"} {
		db.Exec(t, pgtest.Owner, map[string]string{
			"tenant_logins": `insert into deed.tenant_logins (login, tenant_id) select $1, $2::text::uuid`, "shut_logins": `insert into deed.shut_logins (login) select $1 where $2 <> ''`,
		}[table], pgtest.One[string](t, operators, `select session_user::text`), b.String())
		if _, err := tenant.Remove(t.Context(), operators, b, act); !errors.Is(err, tenant.ErrCannotRemove) || !strings.Contains(err.Error(), "is bound") {
			t.Errorf("a login in %s: %v", table, err)
		}
		db.Exec(t, pgtest.Owner, `delete from deed.`+table)
	}
	for _, role := range []pgtest.Role{pgtest.App, pgtest.Worker} {
		for _, sql := range []string{`select deed.remove_tenant($1::text::uuid, 'x')`, `select deed.count_tenant($1::text::uuid)`} {
			if _, err := db.Pool(role).Exec(t.Context(), sql, b.String()); sqlState(err) != "42501" {
				t.Errorf("%v may call %s: %v", role, sql, err)
			}
		}
	}
	for _, role := range []pgtest.Role{pgtest.App, pgtest.Admin} {
		if _, err := db.Pool(role).Exec(t.Context(), `select deed.remove_tenant_step($1::text::uuid)`, b.String()); sqlState(err) != "42501" {
			t.Errorf("%v may take a step: %v", role, err)
		}
	}
	worker := db.Pool(pgtest.Worker)
	for sql, want := range map[string]string{
		`select deed.remove_tenant_step($1::text::uuid)`: "DDNFD", `select deed.remove_tenant_step($1::text::uuid, 0)`: "DDARG",
		`select deed.remove_tenant_step($1::text::uuid, null)`: "DDARG",
	} {
		if _, err := worker.Exec(t.Context(), sql, b.String()); sqlState(err) != want {
			t.Errorf("%s: %v, want %s", sql, err, want)
		}
	}
	askRemoval(t, db, b)
	if first, err := tenant.Remove(t.Context(), operators, b, act); first || err != nil {
		t.Errorf("asked for again: %t, %v", first, err)
	}
	removed(t, db, b)
	if first, err := tenant.Remove(t.Context(), operators, b, act); first || err != nil {
		t.Errorf("asked for when it is over: %t, %v", first, err)
	}
	same(t, "a step when it is over", removalStep(t, worker, b, 1), "done")
	if _, err := tenant.Bind(t.Context(), operators, "x", []tenant.ID{b}, act); !errors.Is(err, tenant.ErrCannotBind) {
		t.Errorf("a login is bound to it: %v", err)
	}
}

// A login that was bound to the removed tenant alone sees nobody's rows, whatever it
// sets: it is not let go.
func TestContract_D7_ALoginOfARemovedTenantSeesNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := twoTenants(t, db)
	operators := db.Pool(pgtest.Admin)
	login := pgtest.One[string](t, db.Pool(pgtest.App), `select session_user::text`)
	act := audit.Act{By: "x", Reason: "x"}
	if _, err := tenant.Bind(t.Context(), operators, login, []tenant.ID{b}, act); err != nil {
		t.Fatal(err)
	}
	askRemoval(t, db, b)
	for what, id := range map[string]*tenant.ID{"a": &a, "b": &b, "nobody": nil} {
		asTenant(t, db, id, func(tx pgx.Tx) {
			same(t, "deliveries seen as "+what, pgtest.One[int](t, tx, `select count(*) from deed.channel_outbox`), 0)
			if _, err := tx.Exec(t.Context(), writesFor["publish"], "x"); sqlState(err) != "DDTEN" {
				t.Errorf("publishing as %s: %v", what, err)
			}
		})
	}
	list, err := tenant.Bindings(t.Context(), operators)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the logins that are bound", fmt.Sprint(list), fmt.Sprintf("[{%s []}]", login))
	removed(t, db, b)
	if changed, err := tenant.Bind(t.Context(), operators, login, nil, act); !changed || err != nil {
		t.Fatalf("letting it go: %t, %v", changed, err)
	}
	asTenant(t, db, &a, func(tx pgx.Tx) {
		same(t, "deliveries seen then", pgtest.One[int](t, tx, `select count(*) from deed.channel_outbox`), 1)
	})
	if changed, err := tenant.Bind(t.Context(), operators, login, nil, act); changed || err != nil {
		t.Fatalf("letting it go again: %t, %v", changed, err)
	}
}

// What is read of a stream once a tenant's removal has been asked for has nothing of it.
func TestPage_LeavesARemovedTenantOut(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := twoTenants(t, db)
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('events', 'stream')`)
	sub := pgtest.One[int](t, worker, `select subscription from deed.subscribe('events', 's')`)
	from := pgtest.One[int64](t, worker, `select deed.open_window()`)
	for _, id := range []tenant.ID{a, b} {
		as(t, db, id, deed.Message{Topic: "events", Key: "x", Value: 1})
	}
	to := pgtest.One[int64](t, worker, `select deed.open_window()`)
	read := func() string {
		return pgtest.One[string](t, worker, `
			select string_agg(distinct substr(p.tenant_id::text, 1, 2), ',')
			from deed.windows f, deed.windows u, deed.topics t, deed.page($1, t.slot_base, t.slot_base + 63, f.n, f.h, u.n, u.h, -2, 0, 100) p
			where f.n = $2 and u.n = $3 and t.topic = 'events'`, sub, from, to)
	}
	same(t, "before", read(), "0a,0b")
	askRemoval(t, db, b)
	same(t, "afterwards", read(), "0a")
}
