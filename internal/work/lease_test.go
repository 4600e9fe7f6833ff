package work_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// leased is a claim of item id; its lease is the source's.
type leased struct{ id, claim int }

// leasing is a source whose leases run out: what is not renewed is claimed
// again, before what is new, as the oldest.
type leasing struct {
	mu       sync.Mutex
	lease    time.Duration
	items    int
	next     int
	claims   int
	held     map[int]leased
	until    map[int]time.Time
	done     map[int]bool
	attempts map[int]int
	away     bool
}

func (f *leasing) Exchange(_ context.Context, done []work.Done[leased], n int) (claimed []leased, _ time.Duration, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil, 0, errAway
	}
	for _, d := range done {
		if f.held[d.Item.id] == d.Item && d.Err == nil && !d.Released {
			f.done[d.Item.id] = true
			delete(f.held, d.Item.id)
		}
	}
	claim := func(id int) {
		f.claims++
		f.held[id] = leased{id, f.claims}
		f.until[id] = time.Now().Add(f.lease)
		claimed = append(claimed, f.held[id])
	}
	for id := 1; id <= f.next && len(claimed) < n; id++ {
		if _, held := f.held[id]; held && time.Now().After(f.until[id]) {
			claim(id)
		}
	}
	for f.next < f.items && len(claimed) < n {
		f.next++
		claim(f.next)
	}
	return claimed, time.Second, nil
}

func (f *leasing) Extend(_ context.Context, held []leased) (lost []leased, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil, errAway
	}
	for _, item := range held {
		if f.held[item.id] == item {
			f.until[item.id] = time.Now().Add(f.lease)
		} else {
			lost = append(lost, item)
		}
	}
	return lost, nil
}

func (f *leasing) Do(_ context.Context, items []leased) []error {
	time.Sleep(20 * time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, item := range items {
		f.attempts[item.id]++
	}
	return nil
}

func (f *leasing) Limit(n int) (int, time.Duration) { return n, 0 }

// A loop alone attempts nothing twice, however long the database was away:
// before it claims it renews what it holds, attempted or not.
func TestRun_ClaimsNothingOfItsOwnAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &leasing{
			lease: 3 * time.Second, items: 100_000,
			held: map[int]leased{}, until: map[int]time.Time{}, done: map[int]bool{}, attempts: map[int]int{},
		}
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error, 1)
		go func() {
			result <- work.Run(ctx, f, work.Options{Batch: 100, Concurrency: 8, Lease: f.lease})
		}()
		for round := range 40 {
			time.Sleep(8 * time.Second)
			f.mu.Lock()
			f.away = true
			f.mu.Unlock()
			time.Sleep(4*time.Second + time.Duration(round)*137*time.Millisecond)
			f.mu.Lock()
			f.away = false
			f.mu.Unlock()
		}
		time.Sleep(10 * time.Minute)
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
		twice := 0
		for _, n := range f.attempts {
			if n > 1 {
				twice++
			}
		}
		if len(f.done) != f.items || twice > 0 {
			t.Errorf("%d of %d done, %d attempted twice", len(f.done), f.items, twice)
		}
	})
}
