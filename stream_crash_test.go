package deed_test

import (
	"context"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// newStreamScene is a scene whose topic is a stream of two lanes.
func newStreamScene(t testing.TB, db *pgtest.DB) *scene {
	s := &scene{t: t, db: db, topic: "crash", file: filepath.Join(t.TempDir(), "received")}
	s.prog = harness.Build(t, victimPackage)
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('crash', 'stream', 2)`)
	// Not so short that a worker that has to wait for a processor loses its lanes, and
	// delivers again what no crash explains.
	pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('crash', 's', p_lease => '10 seconds')`)
	return s
}

// unhurriedVictim is the environment of one that has to end well: statements that a busy
// machine answers late are waited for.
var unhurriedVictim = []string{"VICTIM_DEADLINE=10s", "VICTIM_GRACE=30s"}

// endLeases is when the leases of a worker that is dead are over.
func (s *scene) endLeases() {
	s.t.Helper()
	s.db.Exec(s.t, pgtest.Owner, `update deed.lanes set lease_until = clock_timestamp() where worker is not null`)
	s.db.Exec(s.t, pgtest.Owner, `update deed.relays set seen_until = clock_timestamp()`)
	s.db.Exec(s.t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() where lease_until is not null`)
}

// settleStream waits until everything is read and finished.
func (s *scene) settleStream() {
	s.t.Helper()
	eventually(s.t, "everything to be read", func() bool {
		var done bool
		err := s.db.Pool(pgtest.Owner).QueryRow(context.Background(), `
			select not exists (select from deed.pending)
			  and not exists (select from deed.lag(array(select id from deed.subscriptions where topic = 'crash')) where behind > 0)`).Scan(&done)
		return err == nil && done
	})
}

// SIGKILL at every step of a page loses nothing, invents nothing, and repeats
// at most the pages whose record was on its way.
func TestCrash_StreamKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, point := range []string{
		"claimed:1", "claimed:4", "attempting:1", "attempting:50", "attempted:1", "attempted:50", "settling:1", "settling:3", "settled:1", "settled:3",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newStreamScene(t, pgtest.New(t))
			committed := s.publish(150)
			v := s.start(point)
			for end := time.Now().Add(pgtest.Patience); v.Running() && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				// Of the first 150 one record may be enough for each lane.
				maps.Copy(committed, s.publish(6))
			}
			v.Crashed(t, point, time.Minute)
			s.endLeases()
			if strings.HasPrefix(point, "claimed:1") && len(s.received()) > 0 {
				t.Error("something was delivered before its page was read")
			}
			rest := s.start("", unhurriedVictim...)
			s.settleStream()
			rest.Stop()
			if err := rest.Wait(t, time.Minute); err != nil {
				t.Errorf("the second worker ended with %v", err)
			}
			s.judge(committed, 2*(recordsAhead+2)*20)
		})
	}
}

// recordsAhead is how many pages may be delivered and not recorded; one is
// being delivered besides, and one recorded.
const recordsAhead = 4

// A worker that is frozen past its lease and comes back records nothing of
// lanes that another has taken over.
func TestCrash_StreamOwnerIsFrozen(t *testing.T) {
	t.Parallel()
	s := newStreamScene(t, pgtest.New(t))
	frozen := s.start("", append([]string{"VICTIM_SLOW=100ms"}, unhurriedVictim...)...)
	committed := s.publish(60)
	eventually(t, "the first deliveries", func() bool { return len(s.received()) >= 4 })
	frozen.Freeze()
	had := len(s.received())
	other := s.start("", unhurriedVictim...)
	s.settleStream()
	if before := len(s.received()); before != len(committed) {
		t.Errorf("the other worker delivered %d of %d", before, len(committed))
	}
	frozen.Thaw()
	frozen.Stop()
	if err := frozen.Wait(t, time.Minute); err != nil {
		t.Errorf("the frozen worker ended with %v\n%s", err, frozen.Output())
	}
	other.Stop()
	if err := other.Wait(t, time.Minute); err != nil {
		t.Errorf("the other worker ended with %v", err)
	}
	// What it had delivered of the pages in hand, and with four hands for each of
	// two lanes was just delivering; once awake it hands over nothing more.
	s.judge(committed, had+2*4)
}

// PostgreSQL is killed and recovers in the middle of a drain, twice, under
// publishers that commit asynchronously: nothing committed is missed, and what
// was delivered still exists.
func TestCrash_StreamUnderPostgresKilled(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"on", "off"} {
		t.Run("synchronous_commit="+mode, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			cluster := pgtest.Private(t, pgembed.Options{Settings: map[string]string{"synchronous_commit": mode, "wal_writer_delay": "1s"}})
			db := cluster.DB(t)
			s := newStreamScene(t, db)
			v := s.start("", append([]string{"VICTIM_DATABASE_URL=" + db.URL(pgtest.Worker)}, unhurriedVictim...)...)
			var stop atomic.Bool
			var publisher sync.WaitGroup
			publisher.Go(func() {
				for n := 0; !stop.Load(); n++ {
					_, _ = deed.Publish(ctx, db.Pool(pgtest.App), message(s.topic, n), message(s.topic, n))
				}
			})
			for round := range 3 {
				want := len(s.received()) + 200
				eventually(t, "deliveries", func() bool { return len(s.received()) >= want })
				cluster.Kill()
				if err := cluster.Restart(ctx); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			want := len(s.received()) + 100
			eventually(t, "deliveries after the last crash", func() bool { return len(s.received()) >= want })
			stop.Store(true)
			publisher.Wait()
			s.settleStream()
			v.Stop()
			if err := v.Wait(t, time.Minute); err != nil {
				t.Error(err)
			}
			s.judge(s.logged(), 3*2*(recordsAhead+2)*20)
		})
	}
}
