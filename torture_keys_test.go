//go:build torture

package deed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// TestTorture_KeysInStrictOrder is TestTorture with a stream: publishers who do not
// wait for each other commit late or not at all, a quarter of the attempts
// fails, messages die, are put back and are given up. judge says what must hold.
func TestTorture_KeysInStrictOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cluster := pgtest.Private(t, pgembed.Options{Settings: map[string]string{"synchronous_commit": "off"}})
	db := cluster.DB(t)
	const lanes, hands = 3, 4 // hands: the victim's
	s := &scene{t: t, db: db, topic: "keys", file: filepath.Join(t.TempDir(), "told"), prog: harness.Build(t, victimPackage)}
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('keys', 'stream', $1)`, lanes)
	db.Exec(t, pgtest.Worker, `select deed.subscribe('keys', 's', p_lease => '1 second', p_max_attempts => 3)`)
	file, err := os.OpenFile(s.file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	tell := func(what string, pid int, seq int64, id, key string) {
		if _, err := fmt.Fprintf(file, "%s %d %d 0 %s %s\n", what, pid, seq, id, key); err != nil {
			t.Error(err)
		}
	}

	var stop atomic.Bool
	var published, late, operated atomic.Int64
	var others sync.WaitGroup
	for i := range 7 {
		others.Go(func() {
			for !stop.Load() {
				n, isLate := publishKeys(ctx, db, i < 2)
				published.Add(int64(n))
				if isLate {
					late.Add(1)
				}
			}
		})
	}
	others.Go(func() {
		for !stop.Load() {
			time.Sleep(rand.N(2 * time.Second))
			operate(ctx, db, rand.IntN(4) == 0, tell)
			operated.Add(1)
		}
	})

	points := []string{"claimed", "attempting", "attempted", "settling", "settled"}
	m := &mayhem{
		cluster: cluster,
		tell:    func(what string, pid int) { tell(what, pid, 0, "-", "-") },
		start: func() *harness.Victim {
			point := ""
			if rand.IntN(3) > 0 {
				point = fmt.Sprintf("%s:%d", points[rand.IntN(len(points))], 1+rand.IntN(200))
			}
			return s.start(point, fmt.Sprintf("VICTIM_SLOW=%dms", 1+rand.IntN(16)), "VICTIM_FAILS=25")
		},
	}
	m.rage(t, func() string {
		return fmt.Sprintf("%d published, %d transactions late, %d acts of an operator", published.Load(), late.Load(), operated.Load())
	})
	stop.Store(true)
	others.Wait()
	m.end()
	last := s.start("", "VICTIM_FAILS=0")
	eventuallyWithin(t, 5*time.Minute, "everything to be read and settled", func() bool {
		operate(ctx, db, false, tell)
		time.Sleep(100 * time.Millisecond)
		var done bool
		err := db.Pool(pgtest.Owner).QueryRow(ctx, `
			select not exists (select from deed.pending)
			  and not exists (select from deed.lag(array(select id from deed.subscriptions where topic = 'keys')) where behind > 0)`).Scan(&done)
		return err == nil && done
	})
	last.Stop()
	if err := last.Wait(t, time.Minute); err != nil {
		t.Error(err)
	}

	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := parseLines(string(text))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := db.Pool(pgtest.Owner).Query(ctx, `
		select id, deed.message_id(created_at, id)::text, case when key like 's%' then key else concat(xid, ' ', key) end from deed.log`)
	if err != nil {
		t.Fatal(err)
	}
	committed, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o owed, err error) {
		return o, row.Scan(&o.seq, &o.id, &o.group)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d messages committed; %d transactions were late", len(committed), late.Load())
	judge(lines, committed, (lanes+1)*hands).check(t)
	if t.Failed() {
		keep := filepath.Join(os.TempDir(), fmt.Sprintf("deed-torture-%d.txt", os.Getpid()))
		if err := os.WriteFile(keep, text, 0o600); err == nil {
			t.Logf("what the workers told is in %s", keep)
		}
	}
}

// publishKeys publishes one to four messages in a transaction, of which one in
// five is rolled back. Those of the keys s0 to s4 have one publisher at a time, who
// waits for the one before; the others overlap, a tenth of them by seconds. An error is the server's being away.
func publishKeys(ctx context.Context, db *pgtest.DB, waits bool) (n int, late bool) {
	hold := rand.N(20 * time.Millisecond)
	if rand.IntN(10) == 0 && !waits {
		hold, late = 300*time.Millisecond+rand.N(2*time.Second), true
	}
	_ = pgx.BeginFunc(ctx, db.Pool(pgtest.App), func(tx pgx.Tx) error {
		key := func() string { return fmt.Sprint("k", rand.IntN(30)) }
		if waits {
			own := fmt.Sprint("s", rand.IntN(5))
			key = func() string { return own }
			if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtext($1))`, own); err != nil {
				return err
			}
		}
		var msgs []deed.Message
		for range 1 + rand.IntN(4) {
			m := message("keys", n)
			m.Key = key()
			msgs = append(msgs, m)
		}
		if _, err := deed.Publish(ctx, tx, msgs...); err != nil {
			return err
		}
		time.Sleep(hold)
		if rand.IntN(5) == 0 {
			return pgx.ErrTxClosed // any error rolls it back
		}
		n = len(msgs)
		return nil
	})
	time.Sleep(rand.N(200 * time.Millisecond))
	return n, late
}

// operate gives up one dead message, which the oracle hears first, or puts all
// of them back.
func operate(ctx context.Context, db *pgtest.DB, discard bool, tell func(what string, pid int, seq int64, id, key string)) {
	if !discard {
		_, _ = db.Pool(pgtest.Admin).Exec(ctx, `select deed.redrive(gen_random_uuid()::text, 'keys')`)
		return
	}
	var seq int64
	var id, key string
	err := db.Pool(pgtest.Owner).QueryRow(ctx, `
		select l.id, deed.message_id(l.created_at, l.id)::text, l.key
		from deed.pending p join deed.log l on l.slot = p.slot and l.id = p.id
		where p.dead_at is not null order by random() limit 1`).Scan(&seq, &id, &key)
	if err == nil {
		tell("given-up", 0, seq, id, key)
		_, _ = db.Pool(pgtest.Admin).Exec(ctx, `select deed.discard($1, 'it is not worth it')`, seq)
	}
}

func (j *judgment) check(t testing.TB) {
	t.Helper()
	t.Logf("%d attempts, %d failed, of which %d were not recorded; %d times a key was held; %d repeats; %d calls of workers that had been frozen",
		j.attempts, j.failures, j.unrecorded, j.held, j.repeats, j.strays)
	for i, p := range j.problems {
		if i == 10 {
			t.Errorf("and %d more", len(j.problems)-i)
			return
		}
		t.Error(p)
	}
}
