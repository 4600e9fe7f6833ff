package work_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// lockedFake is a source of which some outcomes are not recorded until somebody's lock has ended; each takes
// a millisecond to find that out.
type lockedFake struct {
	*slowFake
	locked  func(item int) bool
	brought map[int]int // how often each was brought
	mixed   int         // exchanges that brought what was left before, and others
}

func (f *lockedFake) Exchange(ctx context.Context, done []work.Done[int], n int) ([]int, time.Duration, error) {
	var kept []int
	var free []work.Done[int]
	again := 0
	f.set(func() {
		for _, d := range done {
			if f.brought[d.Item]++; f.brought[d.Item] > 1 {
				again++
			}
			if f.locked(d.Item) {
				kept = append(kept, d.Item)
			} else {
				free = append(free, d)
			}
		}
		if again > 0 && (again < len(done) || n > 0) {
			f.mixed++
		}
	})
	time.Sleep(time.Duration(len(kept)) * time.Millisecond)
	claimed, next, err := f.slowFake.Exchange(ctx, free, n)
	if err == nil && len(kept) > 0 {
		err = &work.Unrecorded[int]{Items: kept}
	}
	return claimed, next, err
}

// Outcomes that somebody's lock keeps from being recorded hold up no others, which go on for as long as that lasts; they are
// renewed, brought by themselves, seldom, and recorded once it has ended, by a stop, too.
func TestRun_WhatSomebodyLocksHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	for name, stops := range map[string]bool{"it ends": false, "it ends while the loop stops": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				until := 60 * time.Second
				var log bytes.Buffer
				f := &lockedFake{brought: map[int]int{}, slowFake: &slowFake{latency: time.Millisecond, fake: &fake{left: 20000, do: func(context.Context, int) error {
					time.Sleep(5 * time.Millisecond)
					return nil
				}}}}
				f.locked = func(item int) bool { return item <= 500 && time.Since(begun) < until }
				stop := start(t, f, work.Options{Concurrency: 16, Batch: 100, Lease: 6 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				time.Sleep(50 * time.Second)
				if n := f.recorded(); n != 19500 {
					t.Errorf("%d of 19500 others are recorded beside it", n)
				}
				if got := f.renewals(1); got < 20 {
					t.Errorf("what waits was renewed %d times in 50s, with a lease of 6s", got)
				}
				f.set(func() {
					if n := f.brought[1]; n < 2 || n > 60 {
						t.Errorf("it was brought %d times in 50s", n)
					}
					if f.mixed > 0 {
						t.Errorf("%d times with others", f.mixed)
					}
				})
				if !stops {
					time.Sleep(50 * time.Second)
					if n := f.recorded(); n != 20000 {
						t.Errorf("%d of 20000 are recorded once it has ended", n)
					}
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := f.recorded(); n != 20000 {
					t.Errorf("%d of 20000 are recorded", n)
				}
				if text := log.String(); strings.Contains(text, "failed") || strings.Count(text, "not recorded yet") != 1 || strings.Count(text, "all outcomes are recorded again") != 1 {
					t.Errorf("it says %.2000s", text)
				}
			})
		})
	}
}

// failingFake is a source that, beside one outcome, records none.
type failingFake struct {
	*lockedFake
	fails func(item int) bool
}

func (f *failingFake) Exchange(ctx context.Context, done []work.Done[int], n int) ([]int, time.Duration, error) {
	for _, d := range done {
		if f.fails(d.Item) {
			return nil, 0, errors.New("its row is locked")
		}
	}
	return f.lockedFake.Exchange(ctx, done, n)
}

// One of those that were set aside, which fails for another reason, holds up none of the others, and is recorded once that has ended.
func TestRun_OneThatFailsHoldsUpNoneThatWereSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		f := &failingFake{lockedFake: &lockedFake{brought: map[int]int{}, slowFake: &slowFake{latency: time.Millisecond, fake: &fake{left: 200, do: func(context.Context, int) error { return nil }}}}}
		f.locked = func(item int) bool { return item <= 50 && time.Since(begun) < 5*time.Second }
		f.fails = func(item int) bool {
			return item == 7 && time.Since(begun) > 4*time.Second && time.Since(begun) < 2*time.Minute
		}
		stop := start(t, f, work.Options{Concurrency: 16, Batch: 100, Lease: 6 * time.Second})
		time.Sleep(90 * time.Second)
		if n := f.recorded(); n != 199 {
			t.Errorf("%d of the 199 others are recorded beside it", n)
		}
		time.Sleep(time.Minute)
		if n := f.recorded(); n != 200 {
			t.Errorf("%d of 200 are recorded once it has ended", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
