package work_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// groupFake is a source of which one call takes ten items.
type groupFake struct {
	*slowFake
	calls    int
	of       map[int]int // the call that took an item
	recorded [][]int     // by exchange
}

func (f *groupFake) Groups(claimed []int) [][]int {
	list := slices.Collect(slices.Chunk(claimed, 10))
	f.set(func() {
		for _, items := range list {
			f.calls++
			for _, item := range items {
				f.of[item] = f.calls
			}
		}
	})
	return list
}

func (f *groupFake) Exchange(ctx context.Context, done []work.Done[int], n int) ([]int, time.Duration, error) {
	claimed, next, err := f.slowFake.Exchange(ctx, done, n)
	if err == nil && len(done) > 0 {
		var items []int
		for _, d := range done {
			items = append(items, d.Item)
		}
		f.set(func() { f.recorded = append(f.recorded, items) })
	}
	return claimed, next, err
}

// What became of the items of one call is recorded at once, however small the parts are in
// which outcomes are recorded, and while it stops, too.
func TestRun_OutcomesOfOneCallStayTogether(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]int64{"none": 0, "two": 2, "five": 5, "until it stops": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &groupFake{of: map[int]int{}, slowFake: &slowFake{latency: time.Millisecond, fake: &fake{left: 87}}}
				var refusals atomic.Int64
				refusals.Store(refused)
				f.refuse = func(done []work.Done[int], _ int) error {
					if len(done) > 0 && refusals.Add(-1) >= 0 {
						return errAway
					}
					return nil
				}
				ctx, cancel := context.WithCancel(context.Background())
				result := make(chan error, 1)
				go func() { result <- work.Run(ctx, f, work.Options{Concurrency: 4, Batch: 100, Group: 10}) }()
				time.Sleep(time.Minute)
				refusals.Store(min(refusals.Load(), 2))
				cancel()
				if err := <-result; err != nil {
					t.Error(err)
				}
				if n := f.slowFake.recorded(); n != 87 || f.calls < 9 {
					t.Errorf("%d of 87 are recorded, of %d calls", n, f.calls)
				}
				parts := map[int]int{} // by call, in how many exchanges it was recorded
				for _, items := range f.recorded {
					seen := map[int]bool{}
					for _, item := range items {
						if call := f.of[item]; !seen[call] {
							seen[call] = true
							parts[call]++
						}
					}
				}
				for call, n := range parts {
					if n != 1 {
						t.Errorf("call %d is recorded in %d parts: %v", call, n, f.recorded)
					}
				}
			})
		})
	}
}
