package work_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// Who is woken as what was claimed is still being done claims with its outcomes, if they come within a part of what an exchange takes: not in a round
// trip before theirs. What takes longer holds up no claim.
func TestRun_WokenGoesWithOutcomes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler time.Duration
		begun   time.Duration // after the end of the exchange that has claimed the first
		ends    int           // that the exchange brings
	}{"short": {time.Millisecond, time.Millisecond, 10}, "long": {time.Second, 2 * time.Millisecond, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				wake := make(chan struct{}, 1)
				var began []time.Duration
				var ends []int
				at := time.Now()
				f := &slowFake{latency: 8 * time.Millisecond, fake: &fake{left: 10, do: func(context.Context, int) error {
					time.Sleep(c.handler)
					return nil
				}}}
				f.refuse = func(done []work.Done[int], n int) error { // it refuses nothing
					began, ends = append(began, time.Since(at)-f.latency), append(ends, len(done))
					if len(began) == 1 {
						wake <- struct{}{}
					}
					return nil
				}
				stop := start(t, f, work.Options{Concurrency: 16, Wake: wake})
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				if len(began) < 2 || began[1] != f.latency+c.begun || ends[1] != c.ends {
					t.Errorf("exchanges began after %v, with so many outcomes: %v; want the second at %v with %d", began, ends, f.latency+c.begun, c.ends)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
