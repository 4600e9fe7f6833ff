package work_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// fake is a source of the numbers 1, 2, 3, …, with faults.
type fake struct {
	mu        sync.Mutex
	left      int // still to be claimed
	next      int
	inHand    int
	mostHeld  int
	exchanges int
	outcomes  map[int]work.Done[int]
	attempted []int
	away      bool                // the database does not answer
	lost      func(item int) bool // claims that are gone
	told      []int               // those that the loop has told of as lost
	do        func(ctx context.Context, item int) error
}

var errAway = errors.New("the database is away")

func (f *fake) Exchange(_ context.Context, done []work.Done[int], n int) ([]int, time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exchanges++
	if f.away {
		return nil, 0, errAway
	}
	if f.outcomes == nil {
		f.outcomes = map[int]work.Done[int]{}
	}
	for _, d := range done {
		f.outcomes[d.Item] = d
		f.inHand--
	}
	var claimed []int
	for ; n > 0 && f.left > 0; n-- {
		f.next++
		f.left--
		claimed = append(claimed, f.next)
	}
	f.inHand += len(claimed)
	f.mostHeld = max(f.mostHeld, f.inHand)
	return claimed, 0, nil
}

func (f *fake) Extend(_ context.Context, held []int) (lost []int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil, errAway
	}
	for _, item := range held {
		if f.lost != nil && f.lost(item) {
			lost = append(lost, item)
		}
	}
	return lost, nil
}

func (f *fake) Lost(items []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, items...)
}

func (f *fake) Do(ctx context.Context, items []int) []error {
	f.mu.Lock()
	f.attempted = append(f.attempted, items...)
	do := f.do
	f.mu.Unlock()
	if do == nil {
		return nil
	}
	errs := make([]error, len(items))
	for i, item := range items {
		errs[i] = do(ctx, item)
	}
	return errs
}

func (f *fake) Limit(n int) (int, time.Duration) { return n, 0 }

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// start runs a loop in the test's bubble and returns how to stop it.
func start(t *testing.T, src work.Source[int], opts work.Options) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- work.Run(ctx, src, opts) }()
	return func() error {
		cancel()
		return <-result
	}
}

func TestRun_DrainsAndBoundsWhatIsInHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{left: 5000, do: func(context.Context, int) error { time.Sleep(time.Millisecond); return nil }}
		stop := start(t, f, work.Options{Concurrency: 4, Batch: 50})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if len(f.outcomes) != 5000 || len(f.attempted) != 5000 {
			t.Errorf("%d outcomes of %d attempts, want 5000", len(f.outcomes), len(f.attempted))
		}
		if f.mostHeld > 150 { // two batches, and one whose outcomes are on their way
			t.Errorf("%d items were in hand at once", f.mostHeld)
		}
		if f.exchanges > 500 {
			t.Errorf("%d exchanges for 100 batches", f.exchanges)
		}
	})
}

// A log that says that the database does not answer says when it does again.
func TestRun_SaysThatTheDatabaseIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &fake{left: 5, away: true}
		stop := start(t, f, work.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(time.Minute)
		f.set(func() { f.away = false })
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "succeeds again"); n != 1 || !strings.HasSuffix(strings.TrimSpace(log.String()), "failures="+strconv.Itoa(strings.Count(log.String(), "will try again"))) {
			t.Errorf("it says so %d times:\n%s", n, &log)
		}
	})
}

// Slow attempts do not hoard: other workers could do what would only wait here.
func TestRun_SlowAttemptsDoNotHoard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{left: 1000, do: func(context.Context, int) error { time.Sleep(2 * time.Second); return nil }}
		stop := start(t, f, work.Options{Concurrency: 4, Batch: 200})
		time.Sleep(time.Minute)
		f.set(func() {
			if f.mostHeld > 16 {
				t.Errorf("%d items were in hand at 2 a second", f.mostHeld)
			}
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// What was claimed too long ago, as after a freeze or while the database was
// away, is not started before the database has said that it is still ours.
func TestRun_StaleClaimsAreNotStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{left: 2, lost: func(item int) bool { return item > 1 }}
		f.do = func(_ context.Context, item int) error {
			if item == 1 {
				f.set(func() { f.away = true }) // renewals fail from here on
				time.Sleep(time.Minute)
				time.AfterFunc(time.Second, func() { f.set(func() { f.away = false }) })
			}
			return nil
		}
		stop := start(t, f, work.Options{Concurrency: 1, Lease: 30 * time.Second})
		time.Sleep(3 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(f.attempted, []int{1}) {
			t.Errorf("attempted %v; 2 had gone to another worker", f.attempted)
		}
		if d, ok := f.outcomes[1]; !ok || d.Err != nil {
			t.Errorf("the outcome of 1 is %+v", d)
		}
	})
}

// An item whose claim is lost while it runs has its context ended, with the
// reason.
func TestRun_LostClaimEndsTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		f := &fake{left: 1, lost: func(int) bool { return true }}
		f.do = func(ctx context.Context, _ int) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}
		stop := start(t, f, work.Options{Lease: 30 * time.Second})
		if cause := <-causes; !errors.Is(cause, work.ErrLeaseLost) {
			t.Errorf("the attempt's context ended with %v", cause)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if len(f.told) != 1 || f.told[0] != 1 {
			t.Errorf("told that %v are lost, want 1, once", f.told)
		}
	})
}

// A row that another statement has locked cannot be renewed just now, and is not lost for that: it is asked for once more.
func TestRun_WhatWasOnlyLockedIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0 // by Extend, which has the fake's lock
		f := &fake{left: 1, lost: func(int) bool { asked++; return asked == 1 }}
		f.do = func(ctx context.Context, _ int) error {
			select {
			case <-ctx.Done():
				t.Errorf("the attempt's context ended: %v", context.Cause(ctx))
			case <-time.After(time.Minute):
			}
			return nil
		}
		stop := start(t, f, work.Options{Lease: 30 * time.Second})
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if asked < 3 || len(f.told) > 0 {
			t.Errorf("asked %d times; told that %v are lost", asked, f.told)
		}
	})
}

// slowAsk answers renewals after a while.
type slowAsk struct {
	*fake
	takes time.Duration
}

func (s *slowAsk) Extend(ctx context.Context, held []int) ([]int, error) {
	time.Sleep(s.takes)
	return s.fake.Extend(ctx, held)
}

// What seems to be lost, and cannot be asked for once more since the time for it is over, or the loop ends, is not told lost, and its attempt goes on;
// what was renewed with it is.
func TestRun_WhatCannotBeAskedAgainIsNotLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts  work.Options
		takes time.Duration
		stop  time.Duration
	}{
		"its deadline":      {opts: work.Options{Lease: 30 * time.Second, Deadline: time.Second}, takes: 980 * time.Millisecond, stop: time.Minute},
		"the loop is ended": {opts: work.Options{Lease: 30 * time.Second, Grace: 2 * time.Second}, stop: 3020 * time.Millisecond}, // after 10.02s, by what does not return
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ended := map[int]error{}
				var asked []int
				s := &slowAsk{takes: c.takes}
				s.fake = &fake{left: 2, lost: func(item int) bool { asked = append(asked, item); return item == 1 }}
				s.do = func(ctx context.Context, item int) error {
					for range 12 { // whether it is cut short or not
						if time.Sleep(time.Second); errors.Is(context.Cause(ctx), work.ErrLeaseLost) {
							s.set(func() { ended[item] = context.Cause(ctx) })
						}
					}
					return nil
				}
				ctx, cancel := context.WithCancel(context.Background())
				result := make(chan error, 1)
				go func() { result <- work.Run(ctx, s, c.opts) }()
				time.Sleep(c.stop)
				cancel()
				if err := <-result; (err != nil) != (c.takes == 0) {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				if len(asked) != 2 || len(s.told) > 0 || len(ended) > 0 {
					t.Errorf("asked for %v; told that %v are lost; attempts that ended: %v", asked, s.told, ended)
				}
			})
		})
	}
}

// Outcomes are kept while the database is away, and brought again.
func TestRun_OutcomesSurviveAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{left: 300}
		f.do = func(_ context.Context, item int) error {
			if item == 100 {
				f.set(func() { f.away = true })
				time.AfterFunc(20*time.Second, func() { f.set(func() { f.away = false }) })
			}
			return nil
		}
		stop := start(t, f, work.Options{Concurrency: 2, Batch: 20})
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if len(f.outcomes) != 300 || len(f.attempted) != 300 {
			t.Errorf("%d outcomes of %d attempts, want 300 of 300", len(f.outcomes), len(f.attempted))
		}
	})
}

func TestRun_PanicsAndMiscountsAreFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{left: 3}
		f.do = func(_ context.Context, item int) error {
			if item == 2 {
				panic("two")
			}
			return nil
		}
		stop := start(t, f, work.Options{})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		p, ok := errors.AsType[*work.Panic](f.outcomes[2].Err)
		if !ok || p.Value != "two" || len(p.Stack) == 0 || f.outcomes[1].Err != nil || f.outcomes[3].Err != nil {
			t.Errorf("outcomes %+v", f.outcomes)
		}
	})
}

// A stop gives back what has not started, lets what runs finish for the grace,
// then cancels it; neither counts as an attempt.
func TestRun_StopInTwoPhases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{left: 10}
		f.do = func(ctx context.Context, item int) error {
			if item == 1 {
				time.Sleep(5 * time.Second)
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		stop := start(t, f, work.Options{Concurrency: 2, Batch: 10, Grace: 10 * time.Second})
		time.Sleep(time.Second)
		started := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(started); took != 10*time.Second {
			t.Errorf("the stop took %s, want the grace", took)
		}
		for item := 1; item <= len(f.outcomes); item++ {
			if d := f.outcomes[item]; d.Released == (item == 1) {
				t.Errorf("item %d: %+v", item, d)
			}
		}
		if f.inHand != 0 {
			t.Errorf("%d items are still in hand", f.inHand)
		}
	})
}

// An attempt that ignores its cancellation is abandoned, and Run says so; it is
// not given back, since it still runs.
func TestRun_StopAbandonsWhatIgnoresIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{left: 1, do: func(context.Context, int) error { <-release; return nil }}
		stop := start(t, f, work.Options{Grace: time.Second})
		time.Sleep(time.Second)
		if err := stop(); err == nil {
			t.Error("Run returned nil with an attempt abandoned")
		}
		if len(f.outcomes) != 0 {
			t.Errorf("outcomes %+v of an attempt that still runs", f.outcomes)
		}
		close(release)
		synctest.Wait()
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for n, step := range map[int]time.Duration{1: 1, 2: 2, 5: 16, 10: 300, 60: 300} {
		step *= time.Second
		for range 100 {
			if d := work.Backoff(n, time.Second, 5*time.Minute); d < step/2 || d > step {
				t.Errorf("Backoff(%d) = %s, want %s to %s", n, d, step/2, step)
			}
		}
	}
}

// How quick attempts were says nothing of those that come a while later: of them only few are claimed that are not begun, or none.
func TestRun_QuickAttemptsOfBeforeDoNotHoard(t *testing.T) {
	t.Parallel()
	for ahead, most := range map[int]int{0: 8, 2: 6, -1: 4} {
		t.Run(strconv.Itoa(ahead), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { quickThenSlow(t, ahead, most) })
		})
	}
}

func quickThenSlow(t *testing.T, ahead, most int) {
	wake := make(chan struct{}, 1)
	f := &fake{left: 2000, do: func(context.Context, int) error { time.Sleep(time.Millisecond); return nil }}
	stop := start(t, f, work.Options{Concurrency: 4, Batch: 200, Ahead: ahead, Wake: wake})
	time.Sleep(30 * time.Second)
	wake <- struct{}{} // for nothing
	time.Sleep(30 * time.Second)
	f.set(func() {
		if len(f.outcomes) != 2000 || f.mostHeld < 200 {
			t.Errorf("of quick ones %d have ended, and %d were in hand", len(f.outcomes), f.mostHeld)
		}
		f.left, f.mostHeld = 1000, 0
		f.do = func(ctx context.Context, _ int) error {
			select {
			case <-time.After(30 * time.Minute):
			case <-ctx.Done():
			}
			return ctx.Err()
		}
	})
	for range 3 {
		wake <- struct{}{}
		time.Sleep(10 * time.Minute)
		f.set(func() {
			if f.mostHeld > most {
				t.Errorf("%d of those that take half an hour were in hand", f.mostHeld)
			}
		})
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
