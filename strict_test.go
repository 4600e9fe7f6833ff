package deed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// strictOrder is the oracle of what a stream promises of its keys (O13): while
// a message of a key has failed, and is neither delivered nor given up, no other
// message of that key is attempted, whatever its number. A key is its
// tenant's own.
type strictOrder struct {
	owing    map[string]int64 // by tenant and key: the message that failed
	settled  map[int64]bool   // delivered, or given up
	problems []string
}

func newStrictOrder() *strictOrder {
	return &strictOrder{owing: map[string]int64{}, settled: map[int64]bool{}}
}

func (o *strictOrder) began(key string, seq int64) {
	if first, ok := o.owing[key]; ok && first != seq {
		o.problems = append(o.problems, fmt.Sprintf("key %s: message %d was attempted while %d had failed and was not settled", key, seq, first))
	}
}

// failed: of a message that is settled it is what a stale owner says.
func (o *strictOrder) failed(key string, seq int64) {
	if !o.settled[seq] {
		o.owing[key] = seq
	}
}

func (o *strictOrder) settle(key string, seq int64) {
	o.settled[seq] = true
	if o.owing[key] == seq {
		delete(o.owing, key)
	}
}

func (o *strictOrder) check(t testing.TB) {
	t.Helper()
	for i, p := range o.problems {
		if i == 10 {
			t.Errorf("and %d more", len(o.problems)-i)
			return
		}
		t.Error(p)
	}
}

// strictSink asks the oracle about each attempt. What decide returns is the
// attempt's outcome; the sink is told of it before deed is.
type strictSink struct {
	mu     sync.Mutex
	order  *strictOrder
	times  map[int64]int // deliveries
	began  int
	decide func(deed.Message) error
}

func newStrictSink(decide func(deed.Message) error) *strictSink {
	return &strictSink{order: newStrictOrder(), times: map[int64]int{}, decide: decide}
}

func keyOf(m deed.Message) string { return m.Tenant.String() + "/" + m.Key }

func (s *strictSink) Deliver(_ context.Context, ms []deed.Message) []error {
	outcomes := make([]error, len(ms))
	for i, m := range ms {
		s.mu.Lock()
		s.began++
		s.order.began(keyOf(m), m.Seq)
		s.mu.Unlock()
		outcomes[i] = s.decide(m)
		s.mu.Lock()
		if outcomes[i] != nil {
			s.order.failed(keyOf(m), m.Seq)
		} else {
			s.order.settle(keyOf(m), m.Seq)
			s.times[m.Seq]++
		}
		s.mu.Unlock()
	}
	return outcomes
}

func (s *strictSink) delivered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times)
}

// givenUp tells the oracle before the operator's act, which others may see as
// soon as it commits.
func (s *strictSink) givenUp(key string, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order.settle(key, seq)
}

func (s *strictSink) check(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order.check(t)
}

// late is a message that is published now, in a transaction that is committed
// when the caller says so.
func late(t testing.TB, db *pgtest.DB, m deed.Message) (commit func()) {
	t.Helper()
	tx, err := db.Pool(pgtest.App).Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := deed.Publish(context.Background(), tx, m); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// A message that commits late, with a lower number, joins its key behind the
// one that fails, also when that one fails again, dies, and is redriven.
func TestContract_O13_LateCommitJoinsAFailingKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var allowed atomic.Bool
	var tries atomic.Int64
	sink := newStrictSink(func(m deed.Message) error {
		if string(m.Payload) != `{"n":1}` || allowed.Load() {
			return nil
		}
		tries.Add(1)
		return deed.AfterError(50*time.Millisecond, errors.New("not yet"))
	})
	c, _ := runStream(t, db, stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 1; o.Subscriptions[0].MaxAttempts = 10 }))
	commit := late(t, db, keyed("k", 0))
	publish(t, db, keyed("k", 1), keyed("k", 2))
	eventually(t, "the first of the key to fail", func() bool { return tries.Load() > 0 })
	commit()
	pending := func(where string) int {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending where `+where)
	}
	eventually(t, "the late one to stand behind it", func() bool { return pending("parked") == 2 })
	eventually(t, "the first one to be dead", func() bool { return pending("dead_at is not null") == 1 })
	if n := sink.delivered(); n > 0 {
		t.Errorf("%d messages of the key were delivered past a dead one", n)
	}
	allowed.Store(true)
	db.Exec(t, pgtest.Admin, `select deed.redrive('r', 'orders')`)
	eventually(t, "all to come", func() bool { return sink.delivered() == 3 })
	drained(t, c)
	sink.check(t)
}

// So does one that commits while others of its key are being delivered one
// after the other, and one of those fails then.
func TestContract_O13_LateCommitDuringARun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	second, release := make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(second) })
	var allowed atomic.Bool
	var tries, fails atomic.Int64
	sink := newStrictSink(func(m deed.Message) error {
		switch n := string(m.Payload); {
		case n == `{"n":0}` && tries.Add(1) == 1:
			return deed.AfterError(0, errors.New("not yet"))
		case n == `{"n":0}`:
			begun()
			<-release
		case n == `{"n":2}` && !allowed.Load():
			fails.Add(1)
			return deed.AfterError(50*time.Millisecond, errors.New("not yet"))
		}
		return nil
	})
	c, _ := runStream(t, db, stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 1; o.Subscriptions[0].MaxAttempts = 1000 }))
	var commit func()
	func() { // the first and the third are one page, the second comes late
		tx, err := db.Pool(pgtest.App).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := deed.Publish(t.Context(), tx, keyed("k", 0)); err != nil {
			t.Fatal(err)
		}
		commit = late(t, db, keyed("k", 1))
		if _, err := deed.Publish(t.Context(), tx, keyed("k", 2)); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}()
	<-second
	commit()
	eventually(t, "the late one to stand behind them", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending where parked`) == 2
	})
	close(release)
	eventually(t, "the third to fail", func() bool { return fails.Load() > 3 })
	allowed.Store(true)
	eventually(t, "all to come", func() bool { return sink.delivered() == 3 })
	drained(t, c)
	sink.check(t)
}

// A relay that was frozen while it delivered a run comes back after its lease, when an
// operator has discarded the run's first message, and the one that came late has been
// let go: with what the run came to, one message of the key stands free. It is the one that
// failed, unless the other has been claimed.
func TestContract_O13_AFrozenRunFreesNoSecondMessage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	for name, c := range map[string]struct {
		outcome string
		claimed bool // the one that came late is in another's hand
		free    int  // its place
	}{
		"failed":                 {"retry", false, 2},
		"refused":                {"discard", false, 2},
		"failed beside another":  {"retry", true, 1},
		"refused beside another": {"discard", true, 1},
		"not begun":              {"release", false, 1},
	} {
		topic := strings.ReplaceAll(name, " ", "-")
		db.Exec(t, pgtest.Worker, `select deed.declare_topic($1, 'stream')`, topic)
		sub := pgtest.One[int](t, worker, `select subscription from deed.subscribe($1, 's')`, topic)
		ids := make([]int64, 3)
		for n := range ids {
			ids[n] = publish(t, db, deed.Message{Topic: topic, Key: "k", Value: n})[0].Seq
		}
		aside := func(id int64, parked bool) {
			db.Exec(t, pgtest.Owner, `
				insert into deed.pending (subscription, slot, id, tenant_id, ord_at, key_hash, parked)
				select $1, l.slot, l.id, l.tenant_id, l.created_at, deed.key_hash(l.tenant_id, l.key), $3 from deed.log l where l.id = $2`, sub, id, parked)
		}
		attend := func(run int) int64 {
			return pgtest.One[int64](t, worker, `select max(claim) from deed.attend($1, 'w', 10, '{0}', '{1073741824}', '1 hour', $2)`, sub, run)
		}
		aside(ids[0], false)
		aside(ids[2], true)
		frozen := attend(100)
		aside(ids[1], true) // it has committed late
		db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 ms' where subscription = $1 and claim is not null`, sub)
		db.Exec(t, pgtest.Admin, `select deed.discard($1, 'it is not worth it')`, ids[0])
		if c.claimed {
			attend(0)
		}
		err := pgx.BeginFunc(t.Context(), worker, func(tx pgx.Tx) error {
			hash := pgtest.One[int64](t, tx, `select distinct key_hash from deed.pending where subscription = $1`, sub)
			for _, q := range []struct {
				sql  string
				args []any
			}{
				{`select deed.lock_keys($1, array[$2::bigint])`, []any{sub, hash}},
				{`select deed.finish($1, $2, array[$3::bigint])`, []any{sub, frozen, ids[0]}},
				{`select deed.fail($1, $2, array[$3::bigint], '{no}', '{1 hour}', array[$4::text])`, []any{sub, frozen, ids[2], c.outcome}},
				{`select deed.release_keys($1, array[$2::bigint])`, []any{sub, hash}},
			} {
				if _, err := tx.Exec(t.Context(), q.sql, q.args...); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		same(t, name+": those that stand free", pgtest.One[[]int64](t, worker, `select array_agg(id order by id) from deed.pending where subscription = $1 and not parked`, sub), []int64{ids[c.free]})
		same(t, name+": those that the relay has", pgtest.One[int](t, worker, `select count(*) from deed.pending where subscription = $1 and claim = $2`, sub, frozen), 0)
	}
}

// No message of a key is attempted while another has failed, though nothing
// serialises the publishers: late commits, failures, deaths, redrives and
// discards in any order.
func TestContract_O13_UnserialisedPublishers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := newStrictSink(func(deed.Message) error {
		switch n := rand.IntN(100); {
		case n < 22:
			return deed.AfterError(time.Duration(rand.IntN(20))*time.Millisecond, errors.New("not yet"))
		case n < 25:
			return deed.Permanent(errors.New("never"))
		}
		return nil
	})
	opts := stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 2 })
	c, _ := runStream(t, db, opts)
	run(t, db, opts)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var total atomic.Int64
	for range 6 {
		running.Go(func() {
			for n := 0; ctx.Err() == nil && total.Load() < 3000; n++ {
				err := pgx.BeginFunc(context.Background(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
					_, err := deed.Publish(context.Background(), tx, keyed(fmt.Sprint(rand.IntN(40)), n))
					if rand.IntN(4) == 0 {
						time.Sleep(rand.N(30 * time.Millisecond)) // it commits late
					}
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
				total.Add(1)
			}
		})
	}
	discarded := 0
	operate := func() {
		for _, d := range deadOf(t, db) {
			if rand.IntN(3) > 0 {
				continue
			}
			if rand.IntN(2) == 0 {
				db.Exec(t, pgtest.Admin, `select deed.redrive(gen_random_uuid()::text, p_ids => array[$1::bigint])`, d.Seq)
				continue
			}
			sink.givenUp(d.Key, d.Seq)
			db.Exec(t, pgtest.Admin, `select deed.discard($1, 'it is not worth it')`, d.Seq)
			discarded++
		}
	}
	eventuallyWithin(t, 6*time.Minute, "the publishers to end", func() bool {
		operate()
		return total.Load() >= 3000
	})
	cancel()
	running.Wait()
	eventuallyWithin(t, 6*time.Minute, "all to be delivered or given up", func() bool {
		operate()
		return sink.delivered()+discarded >= int(total.Load())
	})
	drained(t, c)
	sink.check(t)
	t.Logf("%d messages, %d attempts, %d given up", total.Load(), sink.began, discarded)
}

type deadMessage struct {
	Seq int64
	Key string // and tenant, as the oracle names it
}

func deadOf(t testing.TB, db *pgtest.DB) []deadMessage {
	t.Helper()
	rows, err := db.Pool(pgtest.Admin).Query(context.Background(), `
		select p.id, l.tenant_id || '/' || coalesce(l.key, '')
		from deed.pending p
		join (select slot, id, tenant_id, key from deed.log union all select slot, id, tenant_id, key from deed.kept) l on l.slot = p.slot and l.id = p.id
		where p.dead_at is not null`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[deadMessage])
	if err != nil {
		t.Fatal(err)
	}
	return list
}
