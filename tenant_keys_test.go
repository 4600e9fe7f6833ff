package deed_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
	"github.com/deedhq/deed/tenant"
)

// publishAs commits msgs as the n-th tenant's.
func publishAs(t testing.TB, db *pgtest.DB, n byte, msgs ...deed.Message) {
	t.Helper()
	err := pgx.BeginFunc(context.Background(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), `select set_config('app.current_tenant_id', $1, true)`, tenant.ID{15: n}.String()); err != nil {
			return err
		}
		_, err := deed.Publish(context.Background(), tx, msgs...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Two tenants' keys of one name never meet: one that is blocked, or dead, holds
// back nothing of the other, in a stream that they share.
func TestContract_O13_KeysAreATenantsOwn(t *testing.T) {
	t.Parallel()
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch=%t", batch), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			var allowed atomic.Bool
			strict := newStrictSink(func(m deed.Message) error {
				if m.Tenant[15] == 1 && !allowed.Load() {
					return deed.Permanent(errors.New("never"))
				}
				return nil
			})
			var sink deed.Sink = strict
			if batch {
				sink = batchFunc{deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
					if outcomes := strict.Deliver(ctx, []deed.Message{m}); outcomes[0] != nil {
						return outcomes[0]
					}
					return nil
				})}
			}
			c, _ := runStream(t, db, stream(sink))
			for i := range 5 {
				publishAs(t, db, 1, keyed("order-17", i))
				publishAs(t, db, 2, keyed("order-17", i))
			}
			eventually(t, "the other tenant's messages to come", func() bool { return strict.delivered() == 5 })
			drained(t, c)
			keys, err := operator(t, db).BlockedKeys(t.Context(), admin.BlockedFilter{Limit: 10})
			if err != nil || len(keys.Items) != 1 || keys.Items[0].Tenant[15] != 1 || keys.Items[0].Behind != 4 {
				t.Errorf("blocked keys: %+v, %v", keys, err)
			}
			allowed.Store(true)
			db.Exec(t, pgtest.Admin, `select deed.redrive('r', 'orders')`)
			eventually(t, "all to come", func() bool { return strict.delivered() == 10 })
			drained(t, c)
			strict.check(t)
		})
	}
}

// batchFunc is a function that is given several messages a call.
type batchFunc struct{ deed.SinkFunc }

func (batchFunc) BatchSize() int { return 10 }

// The migration gives what is aside the new hashes, frees one message of each
// tenant's key, and takes the lanes from a relay that hashes the old way and
// runs on: it records nothing more, and delivers what it had in hand.
func TestUpgrade_TenantKeysBesideAnOldRelay(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Broken() // what the old hash did is done by hand
	owner := db.Pool(pgtest.Owner)
	var failing atomic.Bool
	failing.Store(true)
	gate := make(chan struct{})
	var held atomic.Int64
	strict := newStrictSink(func(m deed.Message) error {
		switch {
		case m.Key == "held":
			held.Add(1)
			<-gate
		case m.Key == "k" && m.Tenant[15] == 1 && failing.Load():
			return deed.AfterError(time.Minute, errors.New("not yet"))
		}
		return nil
	})
	options := func(name string) deed.Options {
		return stream(strict, func(o *deed.Options) {
			o.Worker, o.Topics[0].Lanes, o.Subscriptions[0].Lease, o.Grace = name, 1, 5*time.Second, time.Second
		})
	}
	_, stopOld := runStream(t, db, options("old"))
	for i := range 3 {
		publishAs(t, db, 1, keyed("k", i))
	}
	eventually(t, "the key to be blocked", func() bool {
		return pgtest.One[int](t, owner, `select count(*) from deed.pending where parked`) == 2
	})
	// What the old hash did: another tenant's messages stand behind them. At once,
	// as the relay may just be looking for keys that stand behind nothing.
	publishAs(t, db, 2, keyed("j", 0), keyed("j", 1))
	eventually(t, "the other tenant's to come", func() bool { return strict.delivered() == 2 })
	sum := sha256.Sum256([]byte("k"))
	db.Exec(t, pgtest.Owner, `
		with behind as (
		  insert into deed.pending (subscription, slot, id, tenant_id, ord_at, parked, key_hash)
		  select (select id from deed.subscriptions where topic = 'orders'), slot, id, tenant_id, created_at, true, $1 from deed.log where key = 'j'
		)
		update deed.pending set key_hash = $1`, int64(binary.BigEndian.Uint64(sum[:8])))
	strict.mu.Lock()
	clear(strict.times)
	strict.order = newStrictOrder()
	strict.mu.Unlock()
	publish(t, db, keyed("held", 0))
	eventually(t, "the old relay to have a page in hand", func() bool { return held.Load() == 1 })

	migrations, err := schema.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	// An old relay asks for lanes by the protocol that it knows. This one has none before the migration, which a call that has
	// begun could outlast, and then take the lanes again.
	db.Exec(t, pgtest.Owner, `alter function deed.take_lanes(uuid, text, int[], boolean, int, interval[]) rename to take_lanes_anew`)
	eventually(t, "calls that have begun to end", func() bool {
		return pgtest.One[bool](t, owner, `select not exists (
			select from pg_stat_activity where datname = current_database() and state = 'active' and query like '%take_lanes%' and pid <> pg_backend_pid())`)
	})
	var free string // as the migration leaves them: once it has committed they are delivered
	err = pgx.BeginFunc(ctx, owner, func(tx pgx.Tx) error {
		for _, m := range migrations {
			if !strings.HasSuffix(m.Name, "_tenant_keys") {
				continue
			}
			if _, err := tx.Exec(ctx, m.SQL); err != nil {
				return err
			}
		}
		free = pgtest.One[string](t, tx, `
			select string_agg(l.key, ' ' order by l.key) from deed.pending p join deed.log l on l.id = p.id where not p.parked`)
		return nil
	})
	if err != nil || free != "j k" {
		t.Errorf("these keys have a free message: %q, %v", free, err)
	}
	before := pgtest.One[int64](t, owner, `select max(n) from deed.progress`)
	close(gate)
	publish(t, db, keyed("new", 0))
	eventually(t, "the old relay's lease to end", func() bool {
		return pgtest.One[bool](t, owner, `select lease_until < clock_timestamp() from deed.lanes`)
	})
	if n := pgtest.One[int64](t, owner, `select max(n) from deed.progress`); n != before {
		t.Errorf("the old relay has recorded %d pages after the migration", n-before)
	}
	failing.Store(false)
	db.Exec(t, pgtest.Owner, `alter function deed.take_lanes_anew(uuid, text, int[], boolean, int, interval[]) rename to take_lanes`)
	_ = stopOld()
	c, _ := runStream(t, db, options("new"))
	db.Exec(t, pgtest.Owner, `update deed.pending set process_after = clock_timestamp() where not parked`)
	eventually(t, "all to come", func() bool { return strict.delivered() == 3+2+2 })
	drained(t, c)
	strict.check(t)
	if _, err := owner.Exec(ctx, `select deed.take_lanes(gen_random_uuid(), 'old', '{}')`); sqlState(err) != "DDCON" {
		t.Errorf("an older program's take of lanes: %v", err)
	}
}
