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
func TestTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{}, 1)
		if began := time.Now(); !taken(turn, time.Second) || time.Since(began) != 0 {
			t.Error("a turn that nobody has is not taken at once")
		}
		if began := time.Now(); taken(turn, time.Second) || time.Since(began) != time.Second {
			t.Errorf("somebody else's turn is taken, or given up after %s", time.Since(began))
		}
		go func() {
			time.Sleep(time.Second / 2)
			<-turn
		}()
		if began := time.Now(); !taken(turn, time.Second) || time.Since(began) != time.Second/2 {
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
		turn := make(chan struct{}, 1)
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
