//go:build torture

package deed_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

var minutes = flag.Float64("minutes", 10, "how long to torture")

// TestTorture lets publishers publish and workers drain while workers are
// killed at random points, frozen and thawed, and the server is killed, for
// as long as it is told; then nothing may be lost, nothing may have arrived
// that never committed, and deed.verify must find nothing.
func TestTorture(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cluster := pgtest.Private(t, pgembed.Options{Settings: map[string]string{"synchronous_commit": "off"}})
	db := cluster.DB(t)
	s := newScene(t, db)
	var published, rolledBack, unknown atomic.Int64
	var stop atomic.Bool
	var publishers sync.WaitGroup
	for range 4 {
		publishers.Go(func() {
			for n := 0; !stop.Load(); n++ {
				tx, err := db.Pool(pgtest.App).Begin(ctx)
				if err != nil {
					unknown.Add(1)
					continue
				}
				_, err = deed.Publish(ctx, tx, message(s.topic, n), message(s.topic, n))
				if err != nil || n%5 == 4 {
					_ = tx.Rollback(ctx)
					rolledBack.Add(1)
					continue
				}
				time.Sleep(rand.N(10 * time.Millisecond))
				if tx.Commit(ctx) != nil {
					unknown.Add(1)
					continue
				}
				published.Add(2)
			}
		})
	}

	points := []string{"claimed", "attempting", "attempted", "settling", "settled"}
	m := &mayhem{cluster: cluster, start: func() *harness.Victim {
		point := ""
		if rand.IntN(3) > 0 {
			point = fmt.Sprintf("%s:%d", points[rand.IntN(len(points))], 1+rand.IntN(400))
		}
		return s.start(point, fmt.Sprintf("VICTIM_SLOW=%dms", rand.IntN(8)))
	}}
	m.rage(t, func() string { return fmt.Sprintf("%d published, %d arrived", published.Load(), len(s.received())) })
	stop.Store(true)
	publishers.Wait()
	m.end()
	last := s.start("")
	s.settle()
	last.Stop()
	if err := last.Wait(t, time.Minute); err != nil {
		t.Error(err)
	}

	committed := s.logged()
	times := s.received()
	repeats := 0
	for _, n := range times {
		repeats += n - 1
	}
	t.Logf("%d messages committed, %d transactions rolled back, %d with unknown outcome; %d repeats", len(committed), rolledBack.Load(), unknown.Load(), repeats)
	s.judge(committed, len(committed))
}

// mayhem kills, freezes and stops workers and the server, and starts others.
type mayhem struct {
	cluster *pgtest.Cluster
	start   func() *harness.Victim
	tell    func(what string, pid int) // what happened to whom; nil: nobody asks

	victims []*harness.Victim
	did     map[string]int
}

// rage goes on for as long as the torture lasts.
func (m *mayhem) rage(t *testing.T, report func() string) {
	m.did = map[string]int{}
	if m.tell == nil {
		m.tell = func(string, int) {}
	}
	for range 3 {
		m.victims = append(m.victims, m.start())
	}
	end := time.Now().Add(time.Duration(*minutes * float64(time.Minute)))
	for told := time.Now(); time.Now().Before(end); time.Sleep(rand.N(500 * time.Millisecond)) {
		v := m.victims[rand.IntN(len(m.victims))]
		switch rand.IntN(12) {
		case 0, 1, 2:
			m.did["killed a worker"]++
			v.Kill()
		case 3, 4:
			m.did["froze a worker past its lease"]++
			m.tell("froze", v.PID())
			v.Freeze()
			time.AfterFunc(1500*time.Millisecond+rand.N(time.Second), func() {
				m.tell("thawed", v.PID())
				v.Thaw()
			})
		case 5:
			m.did["stopped a worker"]++
			v.Stop()
		case 6:
			if rand.IntN(3) == 0 {
				m.did["killed the server"]++
				m.tell("server", 0)
				m.cluster.Kill()
				if err := m.cluster.Restart(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, v := range m.victims {
			if !v.Running() {
				m.did["started a worker"]++
				m.tell("killed", v.PID())
				m.victims[i] = m.start()
			}
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			t.Logf("%s left: %s", time.Until(end).Round(time.Second), report())
		}
	}
	for what, n := range m.did {
		t.Logf("%5d times: %s", n, what)
	}
}

// end kills the last workers.
func (m *mayhem) end() {
	for _, v := range m.victims {
		v.Thaw()
		v.Kill()
		m.tell("killed", v.PID())
	}
}
