package delivery

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The turn is waited for, but not for ever: who has it may wait for somebody's lock.
func TestTurn_Taken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turn := newTurn()
		if began := time.Now(); !turn.take(time.Second) || time.Since(began) != 0 {
			t.Error("a turn that nobody has is not taken at once")
		}
		if began := time.Now(); turn.take(time.Second) || time.Since(began) != time.Second {
			t.Errorf("somebody else's turn is taken, or given up after %s", time.Since(began))
		}
		go func() {
			time.Sleep(time.Second / 2)
			<-turn.held
		}()
		if began := time.Now(); !turn.take(time.Second) || time.Since(began) != time.Second/2 {
			t.Errorf("a turn that is over is not taken, or after %s", time.Since(began))
		}
	})
}

// Beside a statement that hangs, as on somebody's lock, few attempts wait so long as longWritten, and then go together with those that have come
// meanwhile: not those that came first alone, and the others after one more such wait. What is many waits for nobody.
func TestSource_WhatHasComeBesideAStatementThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var statements []string
		s := &source{opts: ProviderOptions{Concurrency: 100}, writing: make(chan *writing)}
		s.writes = func(_ context.Context, list []*writing) (map[string]verdict, error) {
			n, takes := 0, time.Millisecond
			for _, w := range list {
				if n += len(w.items); w.batch == "hangs" {
					takes = time.Minute
				}
			}
			mu.Lock()
			statements = append(statements, fmt.Sprintf("%d after %s", n, time.Since(began)))
			mu.Unlock()
			time.Sleep(takes)
			return nil, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		turn := newTurn()
		var writers, callers sync.WaitGroup
		for range 2 {
			writers.Go(func() { s.write(ctx, turn) })
		}
		bring := func(batch string, rows int) {
			callers.Go(func() {
				if _, err := s.writeAttempt(ctx, batch, make([]*item, rows)...); err != nil {
					t.Error(err)
				}
			})
		}
		bring("hangs", 1)
		time.Sleep(time.Second)
		bring("a", 1)
		time.Sleep(5 * time.Millisecond)
		bring("b", 2)
		bring("c", 3)
		time.Sleep(time.Second)
		bring("many", fewWritten)
		callers.Wait()
		cancel()
		writers.Wait()
		if got, want := strings.Join(statements, ", "), fmt.Sprintf("1 after 0s, 6 after %s, %d after 2.005s", time.Second+longWritten, fewWritten); got != want {
			t.Errorf("statements of %s attempts, want %s", got, want)
		}
	})
}

// Beside others, few attempts wait for as many as went together of late, for half of what those took; who is alone waits for nobody.
func TestSource_AttemptsWaitSoLongForCompany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var statements []string
		s := &source{opts: ProviderOptions{Concurrency: 100}, writing: make(chan *writing)}
		s.writes = func(_ context.Context, list []*writing) (map[string]verdict, error) {
			statements = append(statements, fmt.Sprintf("%d after %s", len(list), time.Since(began)))
			time.Sleep(8 * time.Millisecond)
			return nil, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		turn := newTurn()
		var writers, callers sync.WaitGroup
		for range 2 {
			writers.Go(func() { s.write(ctx, turn) })
		}
		bring := func(n int, apart time.Duration) {
			for range n {
				callers.Go(func() {
					if _, err := s.writeAttempt(ctx, "", &item{}); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(apart)
			}
		}
		at := func(when time.Duration) { time.Sleep(when - time.Since(began)) }
		bring(1, time.Millisecond) // alone
		bring(8, 0)                // while it is under way
		at(100 * time.Millisecond)
		bring(6, 1100*time.Microsecond) // in four milliseconds come four of the eight; the others while these are under way, and in vain they wait for more
		at(200 * time.Millisecond)
		bring(6, 100*time.Microsecond) // so many are enough by now
		callers.Wait()
		cancel()
		writers.Wait()
		if got, want := strings.Join(statements, ", "), "1 after 0s, 8 after 8ms, 4 after 104ms, 2 after 115.5ms, 6 after 200.5ms"; got != want {
			t.Errorf("statements of %s attempts, want %s", got, want)
		}
	})
}
