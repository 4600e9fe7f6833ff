package deed_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// keyModel drives the functions by which a stream's owner parks, attends and
// lets go of keys, as a lane and its attention do, and asks the oracle about
// each attempt.
type keyModel struct {
	t      *testing.T
	db     *pgtest.DB
	topic  string
	sub    int
	order  *strictOrder
	read   map[int64]bool
	open   []pgx.Tx
	runs   []*modelRun
	fence  int64
	worker int
}

// modelRun is what one attend has claimed, and what its attempts came to; they
// are recorded later, perhaps by an owner that has lost the claim.
type modelRun struct {
	claim     int64
	ids       []int64
	key       string
	hash      int64
	delivered int
	failed    string // the outcome of the one after those
}

func (m *keyModel) one(sql string, args ...any) int64 {
	return pgtest.One[int64](m.t, m.db.Pool(pgtest.Owner), sql, args...)
}

func (m *keyModel) rows(sql string, args ...any) [][]any {
	m.t.Helper()
	rows, err := m.db.Pool(pgtest.Owner).Query(context.Background(), sql, args...)
	if err != nil {
		m.t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	if err != nil {
		m.t.Fatal(err)
	}
	return list
}

func (m *keyModel) name(id int64) string {
	return pgtest.One[string](m.t, m.db.Pool(pgtest.Owner), `select tenant_id || '/' || key from deed.log where id = $1`, id)
}

// take is another owner of the lane.
func (m *keyModel) take() {
	m.t.Helper()
	m.worker++
	ctx := context.Background()
	// In one transaction, in which nobody who still runs renews what is taken.
	err := pgx.BeginFunc(ctx, m.db.Pool(pgtest.Owner), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `lock table deed.lanes, deed.relays in share row exclusive mode`)
		if err == nil {
			_, err = tx.Exec(ctx, `update deed.lanes set lease_until = clock_timestamp() - interval '1 second' where subscription = $1 and worker is not null`, m.sub)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `delete from deed.relays where subscription = $1`, m.sub)
		}
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, `select fence from deed.take_lanes($1::text::uuid, 'w', array[$2::int], p_protocol => 2) where lane is not null`,
			fmt.Sprintf("00000000-0000-0000-0000-%012d", m.worker), m.sub).Scan(&m.fence)
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// page reads what is committed and was not read, in order of number, delivers
// what it may, and records it.
func (m *keyModel) page(rt *rapid.T) {
	ids, hashes := []int64{}, []int64{}
	slots := []int32{}
	kinds, errs := []string{}, []string{}
	blocked := map[int64]bool{}
	for _, r := range m.rows(`select distinct key_hash from deed.pending where subscription = $1 and key_hash is not null`, m.sub) {
		blocked[r[0].(int64)] = true
	}
	count := 0
	for _, r := range m.rows(`select id, slot, key, tenant_id::text from deed.log where topic = $1 order by id`, m.topic) {
		id, key := r[0].(int64), r[3].(string)+"/"+r[2].(string)
		if m.read[id] {
			continue
		}
		m.read[id] = true
		count++
		hash := modelHash(key)
		kind := "park"
		if !blocked[hash] {
			m.order.began(key, id)
			kind = rapid.SampledFrom([]string{"", "", "retry", "discard"}).Draw(rt, "outcome")
		}
		if kind == "" {
			m.order.settle(key, id)
			continue
		}
		if kind != "park" {
			m.order.failed(key, id)
		}
		blocked[hash] = true
		ids, slots, hashes = append(ids, id), append(slots, r[1].(int32)), append(hashes, hash)
		kinds, errs = append(kinds, kind), append(errs, "e")
	}
	at := m.rows(`
		select g.n, concat_ws('/', g.from_window, coalesce(g.to_window, 0), g.slot, g.id), g.from_window, w.h::text
		from deed.progress g join deed.windows w on w.n = g.from_window
		where g.subscription = $1 order by g.n desc limit 1`, m.sub)[0]
	if m.one(`
		select coalesce(n, 0) from deed.finish_page($1, (select lane from deed.lanes where subscription = $1), $2, $3, $4, $5, $6::text::xid8, null, null,
		  -2, 0, $7, $8, $8, 'w', $9, $10, $11, $12, array_fill('1 hour'::interval, array[cardinality($9::bigint[])]), $13)`,
		m.sub, m.fence, at[0], at[1], at[2], at[3], count, 1, ids, slots, hashes, errs, kinds) == 0 {
		rt.Fatal("the page was not recorded")
	}
}

// modelHash stands for the client's hash of a key.
func modelHash(key string) int64 {
	h := int64(7)
	for _, c := range []byte(key) {
		h = h*31 + int64(c)
	}
	return h
}

func (m *keyModel) attend(rt *rapid.T) {
	m.db.Exec(m.t, pgtest.Owner, `update deed.pending set process_after = now() - interval '1 s' where subscription = $1 and process_after > now()`, m.sub)
	limit := rapid.IntRange(1, 3).Draw(rt, "limit")
	var list []*modelRun
	head := int64(0)
	for _, r := range m.rows(`
		select head, key_hash, id, claim from deed.attend($1, 'w', $2, array[0], array[1 << 30], '1 minute', $3)`,
		m.sub, limit, rapid.IntRange(1, 4).Draw(rt, "run")) {
		if head != r[0].(int64) {
			head = r[0].(int64)
			list = append(list, &modelRun{claim: r[3].(int64), hash: r[1].(int64), key: m.name(head)})
		}
		last := list[len(list)-1]
		last.ids = append(last.ids, r[2].(int64))
	}
	for _, r := range list {
		for _, id := range r.ids {
			if !m.order.settled[id] { // else it comes again
				m.order.began(r.key, id)
			}
			r.failed = rapid.SampledFrom([]string{"", "", "retry", "retry", "discard", "outage", "release"}).Draw(rt, "outcome")
			if r.failed != "" {
				break
			}
			m.order.settle(r.key, id)
			r.delivered++
		}
		m.runs = append(m.runs, r)
	}
}

// record is what the attention does with a run that has ended, in its
// transaction.
func (m *keyModel) record(rt *rapid.T) {
	if len(m.runs) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.runs)-1).Draw(rt, "which")
	r := m.runs[i]
	m.runs = slices.Delete(m.runs, i, i+1)
	err := pgx.BeginFunc(context.Background(), m.db.Pool(pgtest.Worker), func(tx pgx.Tx) error {
		ctx := context.Background()
		if _, err := tx.Exec(ctx, `select deed.finish($1, $2, $3)`, m.sub, r.claim, r.ids[:r.delivered]); err != nil {
			return err
		}
		if rest := r.ids[r.delivered:]; len(rest) > 0 {
			kinds, errs := make([]string, len(rest)), make([]string, len(rest))
			for i := range rest {
				kinds[i] = "release"
			}
			kinds[0] = r.failed
			var known bool
			err := tx.QueryRow(ctx, `
				select coalesce(bool_or(id = $4[1]), false)
				from deed.fail($1, $2, $4, $5, array_fill('1 hour'::interval, array[cardinality($4::bigint[])]), $3)`,
				m.sub, r.claim, kinds, rest, errs).Scan(&known)
			if err != nil {
				return err
			}
			if known && r.failed != "release" {
				m.order.failed(r.key, rest[0])
			}
		}
		_, err := tx.Exec(ctx, `select deed.release_keys($1, array[$2::bigint])`, m.sub, r.hash)
		return err
	})
	if err != nil {
		rt.Fatal(err)
	}
}

// While a message of a key has failed, no other of that key is attempted: any
// order of late commits, failures, deaths, redrives, discards, lost claims,
// records of stale owners, and take-overs of the lane.
func TestModel_KeysInStrictOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Broken() // windows are made up: what is read is the model's business
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		m := &keyModel{t: t, db: db, topic: fmt.Sprint("keys", n), order: newStrictOrder(), read: map[int64]bool{}}
		db.Exec(t, pgtest.Worker, `select deed.declare_topic($1, 'stream', 1)`, m.topic)
		m.sub = pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe($1, 's', p_max_attempts => 3)`, m.topic)
		m.take()
		publish := func(rt *rapid.T) pgx.Tx {
			tx, err := db.Pool(pgtest.App).Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			msg := message(m.topic, 0)
			msg.Key = rapid.SampledFrom([]string{"a", "a", "b"}).Draw(rt, "key")
			if _, err := deed.Publish(ctx, tx, msg); err != nil {
				t.Fatal(err)
			}
			return tx
		}
		commit := func(tx pgx.Tx) {
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"publish": func(rt *rapid.T) {
				if rapid.Bool().Draw(rt, "late") && len(m.open) < 3 {
					m.open = append(m.open, publish(rt))
				}
				commit(publish(rt))
			},
			"page": func(rt *rapid.T) {
				for len(m.open) > 0 && rapid.Bool().Draw(rt, "it commits") {
					i := rapid.IntRange(0, len(m.open)-1).Draw(rt, "which")
					commit(m.open[i])
					m.open = slices.Delete(m.open, i, i+1)
				}
				m.page(rt)
			},
			"page meanwhile": func(rt *rapid.T) {
				m.attend(rt)
				for len(m.open) > 0 {
					commit(m.open[0])
					m.open = m.open[1:]
				}
				m.page(rt)
				m.record(rt)
			},
			"work": func(rt *rapid.T) {
				m.attend(rt)
				m.record(rt)
			},
			"attend": m.attend,
			"record": m.record,
			"leases run out": func(*rapid.T) {
				db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = now() - interval '1 ms' where subscription = $1 and claim is not null`, m.sub)
			},
			"take over": func(*rapid.T) { m.take() },
			"redrive": func(*rapid.T) {
				db.Exec(t, pgtest.Admin, `select deed.redrive(gen_random_uuid()::text, $1)`, m.topic)
			},
			"discard": func(rt *rapid.T) {
				for _, r := range m.rows(`select id from deed.pending where subscription = $1 and dead_at is not null order by id limit 1`, m.sub) {
					m.order.settle(m.name(r[0].(int64)), r[0].(int64))
					db.Exec(t, pgtest.Admin, `select deed.discard($1, 'it is not worth it')`, r[0])
				}
			},
			"": func(rt *rapid.T) {
				if len(m.order.problems) > 0 {
					rt.Fatal(m.order.problems[0])
				}
				for _, v := range m.rows(`
					select key_hash, count(*), count(*) filter (where not parked) from deed.pending
					where subscription = $1 and key_hash is not null group by 1`, m.sub) {
					if v[2].(int64) != 1 {
						rt.Fatalf("%d of the %d messages of a key stand free", v[2], v[1])
					}
				}
			},
		})
		for _, tx := range m.open {
			_ = tx.Rollback(ctx)
		}
		m.open = nil
		if n := m.one(`select count(*) from deed.verify() where invariant like 'two messages%'`); n != 0 {
			rt.Fatalf("deed.verify finds %d violations", n)
		}
	})
}
