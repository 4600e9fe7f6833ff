package deed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
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

const victimPackage = "github.com/deedhq/deed/internal/crash/victim"

// scene is a topic, a victim program and the file that says what arrived.
type scene struct {
	t     testing.TB
	db    *pgtest.DB
	prog  harness.Program
	file  string
	topic string
}

func newScene(t testing.TB, db *pgtest.DB, flags ...string) *scene {
	s := &scene{t: t, db: db, topic: "crash", file: filepath.Join(t.TempDir(), "received")}
	s.prog = harness.Build(t, victimPackage, flags...)
	// A short lease, so that what a crash leaves comes back soon.
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('crash', 's', p_lease => '1 second')`)
	scan(t, db, id)
	return s
}

func (s *scene) start(point string, env ...string) *harness.Victim {
	return s.prog.Start(s.t, point, append([]string{
		"VICTIM_DATABASE_URL=" + s.db.URL(pgtest.Worker), "VICTIM_TOPIC=" + s.topic, "VICTIM_FILE=" + s.file,
	}, env...)...)
}

// patient has a victim wait for the server as a worker of the field does: its own
// deadline is short, for tests in which the server goes silent.
const patient = "VICTIM_DEADLINE=20s"

// lease changes how long claims last: to where nothing has to come back by itself, or
// no living worker loses what it has in hand because the machine is busy.
func (s *scene) lease(d string) {
	s.t.Helper()
	s.db.Exec(s.t, pgtest.Admin, `select deed.set_subscription($1, 's', p_lease => $2::text::interval)`, s.topic, d)
}

// expire has the leases of what is claimed run out, but for what somebody still works on.
func (s *scene) expire() {
	s.t.Helper()
	s.db.Exec(s.t, pgtest.Owner, `
		update deed.pending p set lease_until = clock_timestamp()
		from (select subscription, id from deed.pending where claim is not null for update skip locked) q
		where p.subscription = q.subscription and p.id = q.id`)
}

// publish commits n messages in transactions of three and rolls every fourth
// transaction back; it returns the numbers that committed.
func (s *scene) publish(n int) map[string]bool {
	s.t.Helper()
	ctx := context.Background()
	committed := map[string]bool{}
	for i := 0; len(committed) < n; i++ {
		tx, err := s.db.Pool(pgtest.App).Begin(ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		published, err := deed.Publish(ctx, tx, message(s.topic, i), message(s.topic, i), message(s.topic, i))
		if err != nil {
			s.t.Fatal(err)
		}
		if i%4 == 3 {
			err = tx.Rollback(ctx)
		} else {
			for _, p := range published {
				committed[p.ID.String()] = true
			}
			err = tx.Commit(ctx)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return committed
}

// delivers reports whether the oracle has a message from v.
func (s *scene) delivers(v *harness.Victim) bool {
	text, err := os.ReadFile(s.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return bytes.Contains(text, fmt.Appendf(nil, " %d\n", v.PID()))
}

// received reads the oracle: how often each message arrived.
func (s *scene) received() map[string]int {
	text, err := os.ReadFile(s.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written just now
		}
		var seq, pid int
		var id string
		if _, err := fmt.Sscan(line, &seq, &id, &pid); err != nil {
			s.t.Fatalf("the oracle has the line %q: %v", line, err)
		}
		times[id]++
	}
	return times
}

// logged returns what the log has, which is what was committed for good.
func (s *scene) logged() map[string]bool {
	s.t.Helper()
	rows, err := s.db.NewPool(pgtest.Owner, 2).Query(context.Background(), `select deed.message_id(created_at, id)::text from deed.log`)
	if err != nil {
		s.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.t.Fatal(err)
	}
	committed := make(map[string]bool, len(ids))
	for _, id := range ids {
		committed[id] = true
	}
	return committed
}

// settle waits until everything is finished.
func (s *scene) settle() {
	s.t.Helper()
	eventually(s.t, "everything to be finished", func() bool {
		var left int
		err := s.db.Pool(pgtest.Owner).QueryRow(context.Background(), `select count(*) from deed.pending`).Scan(&left)
		return err == nil && left == 0
	})
}

// judge compares the oracle with what was committed.
func (s *scene) judge(committed map[string]bool, mostRepeats int) {
	s.t.Helper()
	times := s.received()
	lost, ghosts, repeats := 0, 0, 0
	for id := range committed {
		if times[id] == 0 {
			lost++
		}
	}
	for id, n := range times {
		if !committed[id] {
			ghosts++
		}
		repeats += n - 1
	}
	if lost > 0 || ghosts > 0 || repeats > mostRepeats {
		s.t.Errorf("of %d committed messages %d were lost; %d arrived that never committed; %d repeats, at most %d are explained",
			len(committed), lost, ghosts, repeats, mostRepeats)
	}
}

// SIGKILL at every named point between claim, delivery and finish loses
// nothing, invents nothing, and repeats at most what was in hand.
func TestCrash_KilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	// What may have been delivered and not recorded: two batches of 20, as other
	// deliveries go on while one dies; nothing yet where the first claim dies.
	points := map[string]int{
		"claimed:1": 0, "claimed:3": 40,
		"attempting:1": 40, "attempting:30": 40,
		"attempted:1": 40, "attempted:30": 40,
		"settling:1": 0, "settling:3": 40,
		"settled:1": 40, "settled:3": 40,
	}
	for point, mostRepeats := range points {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, pgtest.New(t))
			s.lease("30 seconds") // what of the crash comes late comes back by it
			committed := s.publish(150)
			s.start(point, patient).Crashed(t, point, pgtest.Patience)
			if strings.HasPrefix(point, "claimed:1") && len(s.received()) > 0 {
				t.Error("something was delivered before its claim was recorded")
			}
			s.expire()
			rest := s.start("", patient)
			s.settle()
			rest.Stop()
			if err := rest.Wait(t, pgtest.Patience); err != nil {
				t.Errorf("the second worker ended with %v", err)
			}
			s.judge(committed, mostRepeats)
		})
	}
}

// A worker that is frozen past its lease and comes back finishes nothing that
// another has taken over, and does not start what it had queued.
func TestCrash_FrozenWorkerComesBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.New(t))
	s.lease("10 seconds")
	committed := s.publish(300) // more than it delivers before it is seen to; while they come one by one it could keep pace
	frozen := s.start("", patient, "VICTIM_SLOW=150ms")
	eventually(t, "the first deliveries", func() bool { return len(s.received()) >= 4 })
	frozen.Freeze()
	// Those whose outcome was on its way, and the four that it was delivering.
	mostRepeats := len(s.received()) + 4
	mostRepeats -= len(committed) - pgtest.One[int](t, s.db.Pool(pgtest.Owner), `select count(*) from deed.pending`)
	other := s.start("", patient)
	s.settle()
	before := len(s.received())
	if before != len(committed) {
		t.Errorf("the other worker delivered %d of %d", before, len(committed))
	}
	frozen.Thaw()
	frozen.Stop()
	if err := frozen.Wait(t, pgtest.Patience); err != nil {
		t.Errorf("the frozen worker ended with %v", err)
	}
	other.Stop()
	if err := other.Wait(t, pgtest.Patience); err != nil {
		t.Errorf("the other worker ended with %v", err)
	}
	s.judge(committed, mostRepeats)
	stale := pgtest.One[int](t, s.db.Pool(pgtest.Owner), `select coalesce(sum(lost), 0) from deed.receipts`)
	if stale == 0 && !strings.Contains(frozen.Output(), "claims lost") {
		t.Errorf("the comeback was not noticed:\n%s", frozen.Output())
	}
}

// Workers whose clocks are ten minutes off, one each way, share a topic: no
// lease is taken over early, nothing due waits, nothing scheduled comes early.
func TestCrash_TwoClocksTenMinutesApart(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newScene(t, db, harness.Skewed(t))
	s.lease("1 minute") // which either clock alone has over at once, and no busy machine
	scheduled := message(s.topic, -1)
	scheduled.ProcessAfter = pgtest.One[time.Time](t, db.Pool(pgtest.Owner), `select now() + interval '5 minutes'`)
	publish(t, db, scheduled)
	began := time.Now()
	fast := s.start("", patient, "DEED_CLOCK_SKEW=10m", "VICTIM_SLOW=20ms")
	slow := s.start("", patient, "DEED_CLOCK_SKEW=-10m", "VICTIM_SLOW=20ms")
	committed := s.publish(200)
	eventually(t, "both to deliver", func() bool {
		maps.Copy(committed, s.publish(20))
		return s.delivers(fast) && s.delivers(slow)
	})
	eventually(t, "everything due to be finished", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending`) == 1
	})
	for _, v := range []*harness.Victim{fast, slow} {
		v.Stop()
		if err := v.Wait(t, pgtest.Patience); err != nil {
			t.Error(err)
		}
		if strings.Contains(v.Output(), "took over") {
			t.Errorf("a claim was taken over early:\n%s", v.Output())
		}
	}
	// The clocks were off indeed: what each said when it began, to the second, was that much off a moment of the test.
	for v, skew := range map[*harness.Victim]time.Duration{fast: 10 * time.Minute, slow: -10 * time.Minute} {
		var stamp time.Time
		if _, after, ok := strings.Cut(v.Output(), "clock "); ok {
			line, _, _ := strings.Cut(after, "\n")
			stamp, _ = time.Parse(time.RFC3339, line)
		}
		if at := stamp.Add(-skew); at.Before(began.Add(-2*time.Second)) || at.After(time.Now().Add(2*time.Second)) {
			t.Errorf("the worker's clock was at %s, want %s off", stamp, skew)
		}
	}
	s.judge(committed, 0)
}

// PostgreSQL is killed and recovers in the middle of a drain, twice, under
// publishers that commit asynchronously: what was delivered still exists.
func TestCrash_PostgresKilledInMidDrain(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"on", "off"} {
		t.Run("synchronous_commit="+mode, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			cluster := pgtest.Private(t, pgembed.Options{Settings: map[string]string{"synchronous_commit": mode, "wal_writer_delay": "1s"}})
			db := cluster.DB(t)
			s := newScene(t, db)
			s.lease("10 seconds")
			v := s.start("", patient)
			var acknowledged sync.Map
			var stop atomic.Bool
			var publisher sync.WaitGroup
			defer publisher.Wait()
			defer stop.Store(true)
			publisher.Go(func() {
				for n := 0; !stop.Load(); n++ {
					published, err := deed.Publish(ctx, db.Pool(pgtest.App), message(s.topic, n), message(s.topic, n))
					if err != nil { // the server is away; whether it committed is unknown
						time.Sleep(10 * time.Millisecond) // it is to come back
						continue
					}
					for _, p := range published {
						acknowledged.Store(p.ID.String(), true)
					}
				}
			})
			for round := range 2 {
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
			s.settle()
			v.Stop()
			if err := v.Wait(t, pgtest.Patience); err != nil {
				t.Error(err)
			}

			committed := s.logged()
			// A crash may repeat what was in hand: two batches of 20, each time.
			s.judge(committed, 80)
			if mode == "on" {
				acknowledged.Range(func(id, _ any) bool {
					if !committed[id.(string)] {
						t.Errorf("message %s was acknowledged and is gone", id)
					}
					return true
				})
			}
		})
	}
}
