package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// deaf is a connection of which the server sees what is written, and whose answer to what has a word
// in it is lost once it is armed: the server has given it by then.
type deaf struct {
	net.Conn
	word  string
	armed *arming
	lost  *atomic.Bool
}

// arming is how many answers are to be lost, and how many were.
type arming struct {
	atomic.Int64
	lost atomic.Int64
}

func (d deaf) Write(b []byte) (int, error) {
	if strings.Contains(string(b), d.word) && d.armed.Add(-1) >= 0 {
		d.lost.Store(true)
	}
	return d.Conn.Write(b)
}

func (d deaf) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if d.lost.Load() {
		d.armed.lost.Add(1)
		_ = d.Conn.Close()
		return 0, errors.New("the answer was lost")
	}
	return n, err
}

func deafPool(t testing.TB, db *pgtest.DB, word string, armed *arming) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return deaf{conn, word, armed, new(atomic.Bool)}, err
	}
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // the text each time
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A commit whose answer never comes: the repeat gets the first one's number.
func TestContract_R3_CommitWhoseAnswerNeverComes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := running(t, db, "a")
	var armed arming
	pool := deafPool(t, db, "commit", &armed)
	for n := range 5 {
		e := run.New{Run: r, Type: run.StepCompleted, Step: fmt.Sprint("s", n), Attempt: 1, Data: begun}
		armed.Store(1)
		if err := appendIn(t.Context(), pool, nil, e); err == nil {
			t.Fatal("the commit's answer came")
		}
		armed.Store(0)
		got := appendAs(t, db, e)[0]
		want(t, "the repeat", fmt.Sprint(got.Seq, got.Repeated), fmt.Sprint(2*n+4, true))
	}
	want(t, "events", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_log`), 12)
	want(t, "messages", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log`), 12)
}

// appendIn appends in a transaction, and gives what it answered to got.
func appendIn(ctx context.Context, pool *pgxpool.Pool, got *[]run.Appended, events ...run.New) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		list, err := run.Append(ctx, tx, "", events...)
		if got != nil {
			*got = list
		}
		return err
	})
}

// observed is an append as its caller saw it.
type observed struct {
	run, what   string // the event, by what it says
	seq         int64
	repeated    bool
	called, got time.Time
}

// Sixteen writers of three runs, who repeat each other's events and their own, roll back and lose
// answers: numbers have no gap, one event has one number, and what began after an answer
// has a higher one. What they saw is held against the order that the log says.
func TestContract_R2_SixteenWriters(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	runs := []string{running(t, db, "a"), running(t, db, "b"), running(t, db, "c")}
	var armed arming
	deafened := deafPool(t, db, "commit", &armed)
	var lost atomic.Int64
	var mu sync.Mutex
	var seen []observed
	var wg sync.WaitGroup
	pool := db.NewPool(pgtest.Worker, 16)
	for w := range 16 {
		rng := rand.New(rand.NewPCG(uint64(w), 17))
		wg.Go(func() {
			for range 60 {
				var events []run.New
				for range 1 + rng.IntN(4) {
					e := run.New{Run: runs[rng.IntN(3)], Step: fmt.Sprint("s", rng.IntN(150)), Attempt: 1, Type: run.StepStarted, EngineAttempt: 1 + w}
					if rng.IntN(2) == 0 {
						e.Type, e.Data = run.StepCompleted, begun
					}
					events = append(events, e)
				}
				called := time.Now()
				var got []run.Appended
				var err error
				switch rng.IntN(8) {
				case 0:
					armed.Add(1)
					if err = appendIn(t.Context(), deafened, nil, events...); err != nil && sqlState(err) == "" {
						lost.Add(1)
						err = appendIn(t.Context(), pool, &got, events...)
						for _, a := range got {
							if !a.Repeated { // by the time that the answer was lost it was committed
								t.Errorf("number %d is new after an append whose answer was lost", a.Seq)
							}
						}
					}
				case 1:
					err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
						if _, err := run.Append(t.Context(), tx, "", events...); err != nil {
							return err
						}
						return errRolledBack
					})
				default:
					err = appendIn(t.Context(), pool, &got, events...)
				}
				answered := time.Now()
				if err != nil && !errors.Is(err, errRolledBack) {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, a := range got {
					seen = append(seen, observed{events[i].Run, string(events[i].Type) + " " + events[i].Step, a.Seq, a.Repeated, called, answered})
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, r := range runs {
		want(t, "a run without gaps", pgtest.One[bool](t, db.Pool(pgtest.Owner), `
			select count(*) = max(run_seq) and min(run_seq) = 1 from deed.run_log where run_id = $1::text::uuid`, r), true)
		want(t, "in the order of commits", pgtest.One[bool](t, db.Pool(pgtest.Owner), `
			select array_agg(l.run_seq order by l.run_seq) = array_agg(((convert_from(m.payload, 'UTF8')::jsonb) ->> 'runSeq')::bigint order by m.id)
			from deed.run_log l
			join deed.log m on m.key = l.run_id::text and (convert_from(m.payload, 'UTF8')::jsonb ->> 'runSeq')::bigint = l.run_seq
			where l.run_id = $1::text::uuid`, r), true)
	}
	want(t, "each end has its start before it", pgtest.One[int](t, db.Pool(pgtest.Owner), `
		select count(*) from deed.run_log e where e.event_type = 'StepCompleted' and not exists (
			select from deed.run_log s where s.run_id = e.run_id and s.step_id = e.step_id and s.event_type = 'StepStarted' and s.run_seq < e.run_seq)`), 0)
	checkObserved(t, db, seen)
	if lost.Load() == 0 {
		t.Error("no answer was lost")
	}
}

var errRolledBack = errors.New("rolled back")

// checkObserved holds what writers saw against the log: one linear order explains it.
func checkObserved(t *testing.T, db *pgtest.DB, seen []observed) {
	t.Helper()
	numbers := map[string]int64{}
	fresh := map[string]int{}
	for _, o := range seen {
		name := o.run + " " + o.what
		if at, ok := numbers[name]; ok && at != o.seq {
			t.Errorf("%s has the numbers %d and %d", name, at, o.seq)
		}
		numbers[name] = o.seq
		if !o.repeated {
			fresh[name]++
		}
		if fresh[name] > 1 {
			t.Errorf("%s was new twice", name)
		}
		if there := pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', event_type, step_id) from deed.run_log where run_id = $1::text::uuid and run_seq = $2`, o.run, o.seq); there != o.what {
			t.Errorf("number %d is %s, and %s was told", o.seq, there, o.what)
		}
	}
	slices.SortFunc(seen, func(a, b observed) int { return a.got.Compare(b.got) })
	highest := map[string]int64{}
	byCall := slices.Clone(seen)
	slices.SortFunc(byCall, func(a, b observed) int { return a.called.Compare(b.called) })
	n := 0
	for _, o := range byCall {
		for ; n < len(seen) && seen[n].got.Before(o.called); n++ {
			highest[seen[n].run] = max(highest[seen[n].run], seen[n].seq)
		}
		if !o.repeated && o.seq <= highest[o.run] {
			t.Errorf("%s got number %d after somebody had been told %d", o.what, o.seq, highest[o.run])
		}
	}
}

// A transaction that looks at an old snapshot does not take a number twice: it is told to
// begin again.
func TestContract_R2_OldSnapshots(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r, other := running(t, db, "a"), running(t, db, "b")
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		step := run.New{Run: r, Type: run.StepStarted, Step: string(level), Attempt: 1}
		beside := step
		beside.Step += " beside"
		err := pgx.BeginTxFunc(t.Context(), db.Pool(pgtest.Worker), pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			pgtest.One[int](t, tx, `select count(*) from deed.run_log`) // the snapshot
			appendAs(t, db, beside)
			_, err := run.Append(t.Context(), tx, "", step)
			return err
		})
		if sqlState(err) != "40001" {
			t.Errorf("%s: %v, want 40001", level, err)
		}
		err = pgx.BeginTxFunc(t.Context(), db.Pool(pgtest.Worker), pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			_, err := run.Append(t.Context(), tx, "", step, run.New{Run: other, Type: run.StepStarted, Step: string(level), Attempt: 1})
			return err
		})
		if err != nil {
			t.Errorf("%s, alone: %v", level, err)
		}
	}
	want(t, "numbers", pgtest.One[bool](t, db.Pool(pgtest.Owner), `select bool_and(n = m) from (select count(*) as n, max(run_seq) as m from deed.run_log group by run_id) q`), true)
}

// Two batches of the same runs in other orders wait for each other, and do not deadlock.
func TestContract_R2_BatchesInAnyOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var runs []string
	for n := range 10 {
		runs = append(runs, running(t, db, fmt.Sprint(n)))
	}
	var wg sync.WaitGroup
	pool := db.NewPool(pgtest.Worker, 8)
	for w := range 8 {
		rng := rand.New(rand.NewPCG(uint64(w), 1))
		wg.Go(func() {
			for n := range 15 {
				var events []run.New
				for _, i := range rng.Perm(len(runs)) {
					events = append(events, run.New{Run: runs[i], Type: run.StepCompleted, Step: fmt.Sprint(w, "/", n), Attempt: 1, Data: begun})
				}
				if _, err := run.Append(t.Context(), pool, "", events...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	want(t, "numbers", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat(count(*), ' ', bool_and(n = m)) from (select count(*) as n, max(run_seq) as m from deed.run_log group by run_id) q`), "10 t")
}

// steps is n events of different steps.
func steps(r func(n int) string, n int, prefix string) (list []run.New) {
	for i := range n {
		list = append(list, run.New{Run: r(i), Type: run.StepStarted, Step: fmt.Sprint(prefix, i), Attempt: 1, Data: json.RawMessage(`{}`)})
	}
	return list
}

// A call costs by its events, and not by more: a thousand at most twelve times a hundred.
func TestAppend_CostsByTheEvent(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var runs []string
	for n := range 1000 {
		runs = append(runs, make1(t, db, fmt.Sprint(n)))
	}
	var all []run.New
	for _, typ := range []run.Type{run.RunApproved, run.RunStarted} {
		for _, r := range runs {
			all = append(all, run.New{Run: r, Type: typ})
		}
	}
	if _, err := write(t.Context(), db.Pool(pgtest.Owner), all...); err != nil {
		t.Fatal(err)
	}
	conn := db.Conn(t, pgtest.Worker)
	// How long a thousand events take, so many in a call: the fastest of a few, of which each is as long as those that it is compared with. Of two that differ
	// in length what runs beside them would disturb the longer one alone.
	fastest := func(n int, of func(n int) string, prefix string) time.Duration {
		best := time.Hour
		for round := range 5 {
			var took time.Duration
			for part := range 1000 / n {
				events := steps(of, n, fmt.Sprint(prefix, n, "/", round, "/", part, "/"))
				began := time.Now()
				if _, err := run.Append(t.Context(), conn, "", events...); err != nil {
					t.Fatal(err)
				}
				took += time.Since(began)
			}
			best = min(best, took)
		}
		return best
	}
	for what, of := range map[string]func(int) string{
		"one run": func(int) string { return runs[0] }, "as many runs": func(n int) string { return runs[n] },
	} {
		var hundreds, thousand time.Duration
		if !pgtest.Wait(pgtest.Patience, func() bool { // what runs beside it disturbs it
			hundreds, thousand = fastest(100, of, what+fmt.Sprint(time.Now().UnixNano())), fastest(1000, of, what+fmt.Sprint(time.Now().UnixNano()))
			return 10*thousand <= 12*hundreds
		}) {
			t.Errorf("%s: ten times 100 events take %s, and 1,000 at once take %s", what, hundreds, thousand)
		}
	}
}

// The ten-thousandth event of a run costs what the first did, beside a snapshot that is held
// all the while; and an event takes 1,450 bytes of WAL, its message's included, and 400 of
// table and indexes.
func TestAppend_StaysFlatUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	// What others change has a session read the catalogue again, and that is counted; and so does what autovacuum analyses.
	db := pgtest.Private(t, pgembed.Options{Unsafe: true, Settings: map[string]string{"autovacuum": "off"}}).DB(t)
	db.Exec(t, pgtest.Owner, `vacuum analyze deed.run_log`) // of when it was empty: no plan may rely on it
	conn := db.Conn(t, pgtest.Worker)
	fill := func(r, name string) (wal int) {
		for n := range 5 { // a start and an end each
			wal += pgtest.Measure(t, conn, pgtest.Any, `
				select * from deed.append_events(array_fill($1::text::uuid, array[1000]), array_fill('StepCompleted'::text, array[1000]),
				  array(select 'step-' || $2 || '-' || g from generate_series(1, 1000) g), array_fill(1, array[1000]),
				  p_data => array_fill('{"started_at": "2026-01-02T03:04:05Z"}'::jsonb, array[1000]))`, r, name+fmt.Sprint(n)).WAL
		}
		return wal
	}
	each := fill(running(t, db, "another"), "x") / 10_000 // and indexes are as high as they will be
	r := running(t, db, "a")
	holder, err := db.Pool(pgtest.Owner).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(t.Context())
	pgtest.One[int](t, holder, `select count(*) from deed.runs`)
	twenty := func(name string) (pages int) {
		for n := range 20 {
			pages += pgtest.Measure(t, conn, pgtest.Any, `select * from deed.append_events(array[$1::text::uuid], '{StepStarted}', array[$2], '{1}')`, r, fmt.Sprint(name, n)).Buffers
		}
		return pages
	}
	twenty("warm")
	first := twenty("first")
	fill(r, "y")
	last := twenty("last")
	size := pgtest.One[int](t, db.Pool(pgtest.Owner), `select sum(pg_total_relation_size(inhrelid))::int / (select count(*)::int from deed.run_log) from pg_inherits where inhparent = 'deed.run_log'::regclass`)
	t.Logf("an event reads %d pages, and the 10,000th of its run %d; it and its message write %d bytes of WAL, and it takes %d of table and indexes", first/20, last/20, each, size)
	if 10*last > 12*first || each > 1450 || size > 400 {
		t.Error("that is more than it should be")
	}
}
