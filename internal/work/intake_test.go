package work_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// made is a source whose items are also made beside it.
type made struct {
	*slowFake
	intake work.Intake[int]
}

func newMade(f *fake, latency time.Duration) *made {
	return &made{slowFake: &slowFake{fake: f, latency: latency}}
}

func (m *made) Intake() *work.Intake[int] { return &m.intake }

// give has the loop given items as who makes them does.
func (m *made) give(t *testing.T, items ...int) {
	t.Helper()
	if got := m.intake.Promise(len(items)); got != len(items) {
		t.Fatalf("it takes %d of %d", got, len(items))
	}
	m.set(func() { m.inHand += len(items) })
	if !m.intake.Give(len(items), items, time.Now()) {
		t.Fatalf("it has not taken %v", items)
	}
}

// What is made beside a loop is attempted at once, without a claim, and its outcome recorded.
func TestIntake_IsAttemptedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at, began := time.Now(), time.Duration(-1)
		m := newMade(&fake{}, 0)
		m.do = func(context.Context, int) error { began = time.Since(at); return nil }
		stop := start(t, m, work.Options{Concurrency: 4})
		synctest.Wait()
		exchanges := m.exchanges
		m.give(t, 100, 101, 102)
		synctest.Wait()
		if began != 0 || m.exchanges > exchanges+2 || len(m.outcomes) != 3 {
			t.Errorf("begun after %s, %d outcomes of %d exchanges", began, len(m.outcomes), m.exchanges-exchanges)
		}
		if got := m.intake.InHand(); got != 0 {
			t.Errorf("%d are in hand, and all outcomes are recorded", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// It takes no more than it has room for, beside what it claims itself.
func TestIntake_IsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMade(&fake{}, 0)
		m.do = func(ctx context.Context, _ int) error { work.Sleep(ctx, time.Hour); return nil }
		wake := make(chan struct{}, 1)
		stop := start(t, m, work.Options{Concurrency: 4, Ahead: -1, Grace: time.Second, Wake: wake})
		synctest.Wait()
		m.give(t, 100)
		if got := m.intake.Promise(10); got != 3 {
			t.Errorf("it promises to take %d beside one, want 3", got)
		}
		if got := m.intake.Promise(1); got != 0 {
			t.Errorf("it promises to take %d of which the room is promised", got)
		}
		m.intake.Give(3, nil, time.Now()) // nothing came of it
		m.give(t, 101, 102, 103)
		m.set(func() { m.left = 10 })
		wake <- struct{}{}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := m.intake.InHand(); got != 4 || m.left != 10 {
			t.Errorf("%d are in hand, want 4; %d wait, want 10", got, m.left)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// While others wait that came before, nothing is taken in: not until a claim has found fewer than it asked for.
func TestIntake_GoesBehindWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMade(&fake{left: 1000}, 7*time.Millisecond)
		m.do = func(context.Context, int) error { time.Sleep(10 * time.Millisecond); return nil }
		stop := start(t, m, work.Options{Concurrency: 4, Batch: 50})
		for range 1000 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			m.mu.Lock()
			left := m.left
			m.mu.Unlock()
			if got := m.intake.Promise(1); left > 0 && got > 0 {
				t.Fatalf("it takes %d while %d wait", got, left)
			} else {
				m.intake.Give(got, nil, time.Now())
			}
		}
		time.Sleep(time.Minute)
		m.give(t, 5000)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A database that does not answer records no outcome: nothing is taken in meanwhile.
func TestIntake_NotWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMade(&fake{}, 0)
		stop := start(t, m, work.Options{Concurrency: 4})
		synctest.Wait()
		m.set(func() { m.away = true })
		m.give(t, 100)
		time.Sleep(time.Second)
		if got := m.intake.Promise(1); got != 0 {
			t.Errorf("it takes %d", got)
		}
		m.set(func() { m.away = false })
		time.Sleep(time.Minute)
		m.give(t, 101)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(m.outcomes) != 2 {
			t.Errorf("%d outcomes, want 2", len(m.outcomes))
		}
	})
}

// What has come by the intake is renewed as what was claimed is.
func TestIntake_IsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMade(&fake{lost: func(int) bool { return true }}, 0)
		var why error
		m.do = func(ctx context.Context, _ int) error { <-ctx.Done(); why = context.Cause(ctx); return why }
		stop := start(t, m, work.Options{Lease: 30 * time.Second})
		synctest.Wait()
		m.give(t, 100)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if !errors.Is(why, work.ErrLeaseLost) {
			t.Errorf("it ended with %v, and its lease is lost", why)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What comes as the loop stops is the giver's to give back, and what came before is given back by the loop. It promises nothing any more, though an exchange is under way.
func TestIntake_Stops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMade(&fake{}, 50*time.Millisecond)
		if got := m.intake.Promise(1); got != 0 {
			t.Errorf("it takes %d before it runs", got)
		}
		m.do = func(_ context.Context, item int) error { time.Sleep(time.Second); return nil }
		wake := make(chan struct{}, 1)
		stop := start(t, m, work.Options{Concurrency: 1, Ahead: 10, Wake: wake})
		time.Sleep(time.Second)
		m.give(t, 100, 101, 102) // of which one is begun
		if got := m.intake.Promise(1); got != 1 {
			t.Fatalf("it takes %d", got)
		}
		wake <- struct{}{}
		time.Sleep(10 * time.Millisecond)
		ended := make(chan error)
		go func() { ended <- stop() }()
		synctest.Wait()
		if got := m.intake.Promise(1); got != 0 {
			t.Errorf("it takes %d while it stops", got)
		}
		if m.intake.Give(1, []int{103}, time.Now()) {
			t.Error("it has taken what comes after its stop")
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if d := m.outcomes; len(d) != 3 || d[100].Released || !d[101].Released || !d[102].Released {
			t.Errorf("outcomes %+v, want one and two that were given back", d)
		}
	})
}

// Room that was promised for nothing is claimed for again, without waiting for the next look.
func TestIntake_RoomThatComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		m := newMade(&fake{}, 0)
		stop := start(t, m, work.Options{Concurrency: 4, Ahead: -1, Wake: wake})
		synctest.Wait()
		if got := m.intake.Promise(10); got != 4 {
			t.Fatalf("it takes %d, want 4", got)
		}
		m.set(func() { m.left = 1 })
		wake <- struct{}{}
		time.Sleep(time.Minute)
		m.intake.Give(4, nil, time.Now())
		synctest.Wait()
		if len(m.outcomes) != 1 {
			t.Errorf("%d outcomes, want that of the one that waited", len(m.outcomes))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// However many are made beside it, what waits to be claimed has its turn when runners become free, one after the other, that are busy with slow ones.
func TestIntake_StarvesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMade(&fake{}, 3*time.Millisecond)
		m.do = func(ctx context.Context, item int) error {
			work.Sleep(ctx, time.Duration(20+item%13)*time.Second)
			return nil
		}
		wake := make(chan struct{}, 1)
		stop := start(t, m, work.Options{Concurrency: 8, Ahead: -1, Wake: wake, Grace: time.Second})
		time.Sleep(10 * time.Millisecond)
		next := 1000
		ctx, cancel := context.WithCancel(t.Context())
		go func() { // makes more than there is room for
			for ctx.Err() == nil {
				if n := m.intake.Promise(5); n > 0 {
					items := make([]int, n)
					for i := range items {
						next++
						items[i] = next
					}
					m.set(func() { m.inHand += n })
					m.intake.Give(n, items, time.Now())
				}
				time.Sleep(time.Millisecond)
			}
		}()
		time.Sleep(10 * time.Minute)
		m.set(func() { m.left = 10 })
		wake <- struct{}{}
		time.Sleep(2 * time.Minute)
		m.mu.Lock()
		left := m.left
		m.mu.Unlock()
		if left > 0 {
			t.Errorf("%d of 10 still wait", left)
		}
		cancel()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Room for what is done quickly is not there any more for what comes long after: it may take hours, and others could do it.
func TestIntake_OldRoomIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMade(&fake{}, 0)
		stop := start(t, m, work.Options{Concurrency: 4, Ahead: -1, Batch: 100})
		synctest.Wait()
		for range 100 { // one each 2 ms
			m.give(t, 100)
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
		}
		if got := m.intake.Promise(1000); got < 100 {
			t.Errorf("it takes %d, and has done 500 a second", got)
		} else {
			m.intake.Give(got, nil, time.Now())
		}
		time.Sleep(time.Hour)
		if got := m.intake.Promise(1000); got != 4 {
			t.Errorf("an hour later it takes %d, want as many as it does at once", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Ends whose exchange had no room for a claim may have made others ready: they are looked for as soon as there is some.
func TestIntake_LooksForWhatEndsHaveMadeReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMade(&fake{}, 0)
		m.do = func(ctx context.Context, item int) error {
			if item == 100 {
				work.Sleep(ctx, time.Hour)
			}
			return nil
		}
		stop := start(t, m, work.Options{Concurrency: 2, Ahead: -1, Grace: time.Second})
		synctest.Wait()
		m.refuse = func(done []work.Done[int], n int) error { // it refuses nothing
			if len(done) > 0 && n == 0 {
				m.set(func() { m.left = 1 })
			}
			return nil
		}
		m.give(t, 100, 101) // of which the second is done at once
		synctest.Wait()
		if got := m.intake.Promise(1); got != 1 {
			t.Fatalf("it takes %d beside one", got)
		}
		time.Sleep(time.Second) // its outcome is recorded meanwhile
		m.intake.Give(1, nil, time.Now())
		time.Sleep(time.Second)
		synctest.Wait()
		if len(m.outcomes) != 2 {
			t.Errorf("%d outcomes, want that of the one that became ready, too", len(m.outcomes))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What is given too late, as by a process that was frozen between the commit and this, is not begun before it is known that it is still this worker's.
func TestIntake_StaleItemsAreNotBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMade(&fake{lost: func(item int) bool { return item == 100 }}, 0)
		stop := start(t, m, work.Options{Concurrency: 4, Lease: 30 * time.Second})
		synctest.Wait()
		if got := m.intake.Promise(2); got != 2 {
			t.Fatalf("it takes %d", got)
		}
		m.set(func() { m.inHand += 2 })
		m.intake.Give(2, []int{100, 101}, time.Now().Add(-time.Minute))
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if !slices.Equal(m.attempted, []int{101}) {
			t.Errorf("begun are %v, and 100 is another's by now", m.attempted)
		}
	})
}
