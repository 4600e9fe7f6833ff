package work_test

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// slowFake is a fake whose round trips take time and may be refused.
type slowFake struct {
	*fake
	latency time.Duration
	refuse  func(done []work.Done[int], n int) error

	lock    sync.Mutex
	renewed map[int]int
}

func (f *slowFake) Exchange(ctx context.Context, done []work.Done[int], n int) ([]int, time.Duration, error) {
	select {
	case <-time.After(f.latency):
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if f.refuse != nil {
		if err := f.refuse(done, n); err != nil {
			return nil, 0, err
		}
	}
	return f.fake.Exchange(ctx, done, n)
}

func (f *slowFake) Extend(ctx context.Context, held []int) ([]int, error) {
	f.lock.Lock()
	if f.renewed == nil {
		f.renewed = map[int]int{}
	}
	for _, item := range held {
		f.renewed[item]++
	}
	f.lock.Unlock()
	return f.fake.Extend(ctx, held)
}

func (f *slowFake) renewals(item int) int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.renewed[item]
}

func (f *slowFake) recorded() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.outcomes)
}

// A busy driver does not starve the leases of what is slow (O14).
func TestRun_RenewsWhileBusy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		latency, handler   time.Duration
		batch, concurrency int
	}{
		"fast": {5 * time.Millisecond, 100 * time.Microsecond, 200, 16}, "small batches": {5 * time.Millisecond, 2 * time.Millisecond, 20, 16},
		"slow database": {50 * time.Millisecond, 5 * time.Millisecond, 200, 16}, "many runners": {20 * time.Millisecond, 5 * time.Millisecond, 200, 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &slowFake{latency: c.latency, fake: &fake{left: 1 << 30, do: func(_ context.Context, item int) error {
					if item == 1 {
						time.Sleep(40 * time.Second)
					}
					time.Sleep(c.handler)
					return nil
				}}}
				stop := start(t, f, work.Options{Batch: c.batch, Concurrency: c.concurrency, Lease: 6 * time.Second})
				time.Sleep(30 * time.Second)
				if got := f.renewals(1); got < 14 {
					t.Errorf("the slow item was renewed %d times in 30s, with a lease of 6s", got)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What is delivered and cannot be recorded yet keeps its lease.
func TestRun_RenewsWhatIsNotRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slowFake{fake: &fake{left: 1}, refuse: func(done []work.Done[int], _ int) error {
			if len(done) > 0 && time.Since(time.Unix(946684800, 0)) < 30*time.Second {
				return errAway
			}
			return nil
		}}
		stop := start(t, f, work.Options{Lease: 3 * time.Second})
		time.Sleep(29 * time.Second)
		if got := f.renewals(1); got < 25 {
			t.Errorf("renewed %d times", got)
		}
		time.Sleep(10 * time.Second)
		if f.recorded() != 1 {
			t.Error("the outcome was not recorded after all")
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// One outcome that cannot be recorded holds up neither the others nor claims.
func TestRun_AnOutcomeHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slowFake{fake: &fake{left: 1000}, refuse: func(done []work.Done[int], _ int) error {
			if slices.ContainsFunc(done, func(d work.Done[int]) bool { return d.Item == 7 }) {
				return errors.New("refused")
			}
			return nil
		}}
		stop := start(t, f, work.Options{Batch: 50, Concurrency: 4})
		time.Sleep(2 * time.Minute)
		if got := f.recorded(); got != 999 {
			t.Errorf("%d of the 999 others recorded", got)
		}
		if err := stop(); err == nil {
			t.Error("a stop with an outcome that is not recorded says that all is well")
		}
	})
}

// A claim that is too large is made smaller, and holds up no outcome.
func TestRun_AClaimHoldsUpNoOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slowFake{fake: &fake{left: 500}, refuse: func(_ []work.Done[int], n int) error {
			if n > 3 {
				return context.DeadlineExceeded
			}
			return nil
		}}
		stop := start(t, f, work.Options{Batch: 200, Concurrency: 16})
		time.Sleep(5 * time.Minute)
		if got := f.recorded(); got != 500 {
			t.Errorf("%d of 500 recorded", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRun_GoexitIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &slowFake{fake: &fake{left: 100, do: func(_ context.Context, item int) error {
			if item%2 == 0 {
				runtime.Goexit()
			}
			return nil
		}}}
		stop := start(t, f, work.Options{Concurrency: 4})
		time.Sleep(time.Minute)
		failed := 0
		f.set(func() {
			for d := range maps.Values(f.outcomes) {
				if d.Err != nil && !d.Released {
					failed++
				}
			}
		})
		if f.recorded() != 100 || failed != 50 {
			t.Errorf("%d recorded, %d failed", f.recorded(), failed)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A stop records all that ended in time, however slow the database is.
func TestRun_StopRecordsWhatEnded(t *testing.T) {
	t.Parallel()
	for _, latency := range []time.Duration{300 * time.Millisecond, time.Second} {
		t.Run(latency.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &slowFake{latency: latency, fake: &fake{left: 200, do: func(context.Context, int) error { time.Sleep(10 * time.Second); return nil }}}
				stop := start(t, f, work.Options{Batch: 200, Concurrency: 200})
				time.Sleep(5 * time.Second)
				began := time.Now()
				if err := stop(); err != nil {
					t.Error(err)
				}
				if f.recorded() != 200 || time.Since(began) > 12*time.Second {
					t.Errorf("%d recorded in %s", f.recorded(), time.Since(began))
				}
			})
		})
	}
}

// hasty claims although it reports an error, for the outcomes.
type hasty struct {
	*fake
	errors int
}

func (h *hasty) Exchange(ctx context.Context, done []work.Done[int], n int) ([]int, time.Duration, error) {
	if len(done) > 0 && n > 0 && h.errors > 0 {
		h.errors--
		claimed, _, _ := h.fake.Exchange(ctx, nil, n)
		return claimed, 0, errAway
	}
	return h.fake.Exchange(ctx, done, n)
}

// What was claimed by an exchange whose outcomes failed is attempted, once.
func TestRun_TakesWhatAFailedExchangeClaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hasty{fake: &fake{left: 500}, errors: 3}
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error, 1)
		go func() { result <- work.Run(ctx, h, work.Options{Batch: 20, Concurrency: 4}) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
		if len(h.outcomes) != 500 || len(h.attempted) != 500 || h.errors != 0 {
			t.Errorf("%d outcomes, %d attempts of 500, %d errors left", len(h.outcomes), len(h.attempted), h.errors)
		}
	})
}

// keen is hasty once, and knows what it was asked for.
type keen struct {
	*hasty
	asked []int
}

func (k *keen) Exchange(ctx context.Context, done []work.Done[int], n int) ([]int, time.Duration, error) {
	if n > 0 {
		k.asked = append(k.asked, n)
	}
	return k.hasty.Exchange(ctx, done, n)
}

// A claim that has succeeded beside outcomes that failed is not made smaller for them.
func TestRun_FailedOutcomesMakeNoClaimSmaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keen{hasty: &hasty{errors: 1, fake: &fake{left: 1 << 30, do: func(context.Context, int) error { time.Sleep(time.Second); return nil }}}}
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error, 1)
		// Twenty in hand; ten more when there is room for as many.
		go func() { result <- work.Run(ctx, k, work.Options{Batch: 20, Concurrency: 4, Ahead: 16}) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
		if k.errors != 0 || len(k.asked) < 10 || slices.Min(k.asked) < 10 {
			t.Errorf("%d errors are left; claims were for %v", k.errors, k.asked)
		}
	})
}
