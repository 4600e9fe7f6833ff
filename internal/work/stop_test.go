package work_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// gated answers no claim but its first before gate is closed.
type gated struct {
	*fake
	gate   chan struct{}
	claims int
	asked  []int // items wanted, by claim
}

func (g *gated) Exchange(ctx context.Context, done []work.Done[int], n int) ([]int, time.Duration, error) {
	if n > 0 {
		g.asked = append(g.asked, n)
		if g.claims++; g.claims > 1 {
			<-g.gate
		}
	}
	return g.fake.Exchange(ctx, done, n)
}

// What is not begun when a stop comes is given back, also while the loop waits for the database, and what that has claimed meanwhile: nothing of it is
// begun, nothing lost. What was begun is waited for.
func TestRun_NothingIsBegunAfterAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gated{gate: make(chan struct{}), fake: &fake{left: 100, do: func(_ context.Context, item int) error {
			if item > 6 {
				time.Sleep(time.Second)
			}
			return nil
		}}}
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error, 1)
		go func() { result <- work.Run(ctx, g, work.Options{Concurrency: 2, Batch: 10, Ahead: 8}) }()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if g.claims != 2 || g.next != 10 {
			t.Fatalf("%d claims, of %v, are made; the second is to be under way", g.claims, g.asked)
		}
		cancel()
		time.Sleep(5 * time.Second)
		close(g.gate)
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		slices.Sort(g.attempted)
		if !slices.Equal(g.attempted, []int{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("attempted: %v; 7 and 8 were under way when the stop came", g.attempted)
		}
		if g.claims != 2 || g.next <= 10 || g.inHand != 0 || len(g.outcomes) != g.next {
			t.Errorf("%d outcomes of %d that were claimed in %d claims, %d are in hand", len(g.outcomes), g.next, g.claims, g.inHand)
		}
		for item, d := range g.outcomes {
			if d.Err != nil || d.Released != (item > 8) {
				t.Errorf("item %d: %+v", item, d)
			}
		}
	})
}

// stepping takes two steps for what it is given, the second only of what it holds.
type stepping struct {
	*fake
	held [][]bool
}

func (s *stepping) Do(ctx context.Context, items []int) []error {
	for range 2 {
		s.held = append(s.held, work.Held(ctx, items))
		time.Sleep(time.Second)
	}
	return nil
}

// Who does several things for its items begins no other after a stop.
func TestHeld_NothingAfterAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stepping{fake: &fake{left: 2}}
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error, 1)
		go func() { result <- work.Run(ctx, s, work.Options{Concurrency: 1, Group: 2}) }()
		time.Sleep(500 * time.Millisecond)
		cancel()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if len(s.held) != 2 || slices.Contains(s.held[0], false) || slices.Contains(s.held[1], true) {
			t.Errorf("held before the stop and after it: %v", s.held)
		}
	})
}

// away is a database that does not renew until it is asked for what has become stale; then the stop comes.
type away struct {
	*fake
	back     time.Time
	stop     func()
	claimed  int // claims after the stop
	stopping bool
}

func (a *away) Extend(context.Context, []int) ([]int, error) {
	if time.Now().Before(a.back) {
		return nil, errAway
	}
	a.stop()
	a.set(func() { a.stopping = true })
	return nil, nil
}

func (a *away) Exchange(ctx context.Context, done []work.Done[int], n int) ([]int, time.Duration, error) {
	a.set(func() {
		if n > 0 && a.stopping {
			a.claimed++
		}
	})
	return a.fake.Exchange(ctx, done, n)
}

// A stop that comes while leases are renewed for a claim lets that claim be.
func TestRun_NoClaimAfterAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		wake := make(chan struct{}, 1)
		a := &away{back: time.Now().Add(25 * time.Second), stop: cancel, fake: &fake{left: 1, do: func(context.Context, int) error { time.Sleep(28 * time.Second); return nil }}}
		result := make(chan error, 1)
		go func() { result <- work.Run(ctx, a, work.Options{Lease: 30 * time.Second, Wake: wake}) }()
		time.Sleep(26 * time.Second)
		wake <- struct{}{}
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if !a.stopping || a.claimed != 0 || len(a.outcomes) != 1 {
			t.Errorf("stopped while it renewed: %t; %d claims after that; outcomes %+v", a.stopping, a.claimed, a.outcomes)
		}
	})
}
