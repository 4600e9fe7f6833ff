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

	did := map[string]int{}
	points := []string{"claimed", "attempting", "attempted", "settling", "settled"}
	victims := make([]*harness.Victim, 3)
	start := func(i int) {
		point := ""
		if rand.IntN(3) > 0 {
			point = fmt.Sprintf("%s:%d", points[rand.IntN(len(points))], 1+rand.IntN(400))
		}
		victims[i] = s.start(point, fmt.Sprintf("VICTIM_SLOW=%dms", rand.IntN(8)))
	}
	for i := range victims {
		start(i)
	}
	end := time.Now().Add(time.Duration(*minutes * float64(time.Minute)))
	for report := time.Now(); time.Now().Before(end); time.Sleep(rand.N(500 * time.Millisecond)) {
		i := rand.IntN(len(victims))
		switch rand.IntN(12) {
		case 0, 1, 2:
			did["killed a worker"]++
			victims[i].Kill()
		case 3, 4:
			did["froze a worker past its lease"]++
			v := victims[i]
			v.Freeze()
			time.AfterFunc(1500*time.Millisecond+rand.N(time.Second), v.Thaw)
		case 5:
			did["stopped a worker"]++
			victims[i].Stop()
		case 6:
			if rand.IntN(3) == 0 {
				did["killed the server"]++
				cluster.Kill()
				if err := cluster.Restart(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, v := range victims {
			if !v.Running() {
				did["started a worker"]++
				start(i)
			}
		}
		if time.Since(report) > 10*time.Second {
			report = time.Now()
			t.Logf("%s left: %d published, %d arrived", time.Until(end).Round(time.Second), published.Load(), len(s.received()))
		}
	}
	stop.Store(true)
	publishers.Wait()
	for _, v := range victims {
		v.Thaw()
		v.Kill()
	}
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
	for what, n := range did {
		t.Logf("%5d times: %s", n, what)
	}
	t.Logf("%d messages committed, %d transactions rolled back, %d with unknown outcome; %d repeats", len(committed), rolledBack.Load(), unknown.Load(), repeats)
	s.judge(committed, len(committed))
}
