package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// timed is a database that takes its time, by a clock of the test's own, and notes how many records each statement had.
type timed struct {
	takes func(list []*record) time.Duration

	mu    sync.Mutex
	sizes []int           // guarded by mu
	ends  []time.Duration // guarded by mu
	since time.Time
}

var errTogether = &pgconn.PgError{Code: "DDARG", Message: "together they are refused"}

func (s *timed) do(_ context.Context, list []*record) ([]said, error) {
	s.mu.Lock()
	s.sizes = append(s.sizes, len(list))
	s.mu.Unlock()
	time.Sleep(s.takes(list))
	s.mu.Lock()
	s.ends = append(s.ends, time.Since(s.since))
	s.mu.Unlock()
	answers := make([]said, len(list))
	for k, r := range list {
		if answers[k].result = r.name; r.name == "bad" && len(list) > 1 {
			return nil, errTogether
		}
	}
	return answers, nil
}

// gathering has the recorders run, in a bubble with a clock of its own, while test brings records.
func gathering(t *testing.T, takes func(list []*record) time.Duration, test func(s *timed, bring func(name string) (answered func() time.Duration))) {
	synctest.Test(t, func(t *testing.T) {
		s := &timed{takes: takes, since: time.Now()}
		g := newGatherer(s.do)
		var running, callers sync.WaitGroup
		for range recorders {
			running.Go(func() { g.run(t.Context()) })
		}
		test(s, func(name string) func() time.Duration {
			brought := time.Now()
			answered := make(chan time.Duration, 1)
			callers.Go(func() {
				r := &record{it: &item{}, name: name, answer: make(chan answer, 1)}
				if a, err := g.write(r); err != nil || a.result != name {
					t.Errorf("record %s: %+v, %v", name, a, err)
				}
				answered <- time.Since(brought)
			})
			return func() time.Duration { return <-answered }
		})
		callers.Wait()
		close(g.silent)
		running.Wait()
		if _, err := g.write(&record{}); !errors.Is(err, errSilent) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// Beside a statement that hangs each record is stored within its patience and what a statement takes, however many come after one another.
func TestGatherer_NobodyWaitsForAStatementThatHangs(t *testing.T) {
	t.Parallel()
	takes := func(list []*record) time.Duration {
		if list[0].name == "hangs" {
			return time.Minute
		}
		return time.Millisecond
	}
	gathering(t, takes, func(_ *timed, bring func(string) func() time.Duration) {
		hung := bring("hangs")
		synctest.Wait()
		for n := range 100 {
			if took := bring(fmt.Sprint(n))(); took > patience+time.Millisecond {
				t.Fatalf("record %d has waited %s", n, took)
			}
		}
		if took := hung(); took != time.Minute {
			t.Errorf("the one that hangs: %s", took)
		}
	})
}

// What comes while a statement is under way goes in the next one, once that has ended; or, beside one that hangs, when patience is over.
func TestGatherer_WhatGathersGoesInOneStatement(t *testing.T) {
	t.Parallel()
	for _, first := range []time.Duration{15 * time.Millisecond, time.Minute} {
		takes := func(list []*record) time.Duration {
			if list[0].name == "first" {
				return first
			}
			return time.Millisecond
		}
		gathering(t, takes, func(s *timed, bring func(string) func() time.Duration) {
			_ = bring("first")
			synctest.Wait()
			var all []func() time.Duration
			for n := range 12 {
				all = append(all, bring(fmt.Sprint(n)))
				synctest.Wait()
				time.Sleep(time.Millisecond)
			}
			for _, answered := range all {
				answered()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			// Who has just recorded may have taken one of them, for the statement after it.
			if got := fmt.Sprint(s.sizes); got != "[1 12]" && (got != "[1 11 1]" || first > patience) {
				t.Errorf("statements beside one of %s have %s records", first, got)
			}
			if end := min(first, patience) + time.Millisecond; !slices.Contains(s.ends, end) {
				t.Errorf("they ended after %s, and none after %s", s.ends, end)
			}
		})
	}
}

// No more go in one than may, none is forgotten, and of those that are refused together each is tried alone.
func TestGatherer_NotAllAtOnce(t *testing.T) {
	t.Parallel()
	takes := func(list []*record) time.Duration {
		if list[0].name == "hangs" { // so that one recorder has all the others
			return time.Minute
		}
		return time.Millisecond
	}
	gathering(t, takes, func(s *timed, bring func(string) func() time.Duration) {
		_ = bring("hangs")
		synctest.Wait()
		var all []func() time.Duration
		for n := range mostRecords + 3 {
			name := fmt.Sprint(n)
			if n == mostRecords+1 {
				name = "bad"
			}
			all = append(all, bring(name))
			synctest.Wait()
		}
		for _, answered := range all {
			answered()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := fmt.Sprint(s.sizes); got != fmt.Sprintf("[1 %d 3 1 1 1]", mostRecords) {
			t.Errorf("statements of %s records", got)
		}
	})
}

// A run that somebody keeps locked is waited for once, however many of its inner steps are among those of others, which are recorded.
func TestGatherer_ALockedRunIsAskedForOnce(t *testing.T) {
	t.Parallel()
	refused := &pgconn.PgError{Code: "55P03"}
	asked := 0
	g := newGatherer(func(_ context.Context, list []*record) ([]said, error) {
		if slices.ContainsFunc(list, func(r *record) bool { return r.it.run == "locked" }) {
			asked++
			return nil, refused
		}
		return make([]said, len(list)), nil
	})
	var list []*record
	for n := range 200 {
		list = append(list, &record{it: &item{run: []string{"locked", "free"}[n%2]}, answer: make(chan answer, 1)})
	}
	g.recordAll(t.Context(), list)
	for n, r := range list {
		if a := <-r.answer; errors.Is(a.err, refused) != (r.it.run == "locked") {
			t.Errorf("record %d, of the run that is %s: %v", n, r.it.run, a.err)
		}
	}
	if asked != 2 { // with the others, and alone
		t.Errorf("the locked run was asked for %d times, want twice", asked)
	}
}

// A database that does not answer is not waited for once for each of those that have gathered: they are told, and come again. What one of them is
// refused for is its own as before.
func TestGatherer_NoAnswerIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refused         bool // together, by a database that falls silent at the third that is tried alone
		asked, recorded int
	}{"together": {false, 1, 0}, "alone": {true, 4, 2}} {
		asked := 0
		g := newGatherer(func(_ context.Context, list []*record) ([]said, error) {
			asked++
			switch {
			case c.refused && len(list) > 1:
				return nil, errTogether
			case !c.refused || asked == 4:
				return nil, context.DeadlineExceeded
			}
			return make([]said, len(list)), nil
		})
		var list []*record
		for n := range 200 {
			list = append(list, &record{it: &item{run: fmt.Sprint(n)}, answer: make(chan answer, 1)})
		}
		g.recordAll(t.Context(), list)
		recorded := 0
		for n, r := range list {
			switch a := <-r.answer; {
			case a.err == nil:
				recorded++
			case !errors.Is(a.err, context.DeadlineExceeded):
				t.Errorf("%s: record %d: %v", name, n, a.err)
			}
		}
		if asked != c.asked || recorded != c.recorded {
			t.Errorf("%s: asked %d times, %d recorded; want %d and %d", name, asked, recorded, c.asked, c.recorded)
		}
	}
}
