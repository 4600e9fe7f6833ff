package run

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Who is alone goes at once. Beside many, the first waits for as many as there were of late, and no longer than patience has it; by a clock of the
// test's own, and a database that takes 40 ms.
func TestStarter_WaitsSoLongForCompany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var statements []string
		s := &Starter{opts: StarterOptions{Statements: 1, Batch: 200}, asked: make(chan *request), stopped: make(chan struct{})}
		s.do = func(_ context.Context, list []*request) ([]Started, error) {
			statements = append(statements, fmt.Sprintf("%d after %s", len(list), time.Since(began)))
			time.Sleep(40 * time.Millisecond)
			return make([]Started, len(list)), nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running, callers sync.WaitGroup
		running.Go(func() { _ = s.Run(ctx) })
		ask := func(n int, apart time.Duration) {
			for range n {
				callers.Go(func() {
					if _, err := s.Start(t.Context(), Request{Plan: "p", ID: "r"}); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(apart)
			}
		}
		at := func(when time.Duration) { time.Sleep(when - time.Since(began)) }
		ask(1, time.Millisecond) // who is alone waits for nobody
		ask(8, 0)                // while it is under way
		at(100 * time.Millisecond)
		ask(6, 1100*time.Microsecond) // one after the other: in five milliseconds come five of the eight, and the sixth waits in vain for more
		at(200 * time.Millisecond)
		ask(1, 0) // in vain, too
		at(300 * time.Millisecond)
		ask(5, time.Millisecond) // so many are enough by now
		callers.Wait()
		cancel()
		running.Wait()
		if got, want := strings.Join(statements, ", "), "1 after 0s, 8 after 40ms, 5 after 105ms, 1 after 150ms, 1 after 205ms, 5 after 304ms"; got != want {
			t.Errorf("statements of %s, want %s", got, want)
		}
	})
}
