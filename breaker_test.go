package deed

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/tenant"
)

// An open breaker lets one probe through; one that hangs is given up after
// half a minute for another, and its late outcome no longer counts.
func TestBreaker_GivesUpAHungProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker
		round, _, _ := b.admit()
		if opened, _ := b.report(round, Unavailable(errors.New("refused"), 0)); !opened {
			t.Fatal("an unavailable sink does not open it")
		}
		if n, wait := b.limit(10); n != 0 || wait <= 0 {
			t.Errorf("open, it allows %d claims, and asks again in %s", n, wait)
		}
		time.Sleep(breakerPause)
		hung, ok, _ := b.admit()
		if n, _ := b.limit(10); !ok || n != 0 {
			t.Errorf("a probe is let through: %t; beside it %d claims", ok, n)
		}
		if _, ok, cause := b.admit(); ok || cause == nil {
			t.Errorf("a second probe beside the first: %t, %v", ok, cause)
		}
		time.Sleep(breakerMaxPause)
		if n, _ := b.limit(10); n != 1 {
			t.Errorf("half a minute later it allows %d claims, want 1", n)
		}
		round, ok, _ = b.admit()
		if !ok {
			t.Error("the hung probe is not given up")
		}
		if _, closed := b.report(hung, nil); closed {
			t.Error("the hung probe's late success closes it")
		}
		if _, closed := b.report(round, nil); !closed || b.isOpen() {
			t.Error("the second probe's success does not close it")
		}
	})
}

// A probe that fails for its message's sake neither closes it nor makes it wait,
// and the next one is of another tenant.
func TestBreaker_StaysHalfOpenBehindAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b breaker
		round, _, _ := b.admit()
		b.report(round, Unavailable(errors.New("it errs"), 20*time.Millisecond))
		if over := b.passOver(); len(over) != 0 {
			t.Errorf("before a probe it passes over %v", over)
		}
		time.Sleep(20 * time.Millisecond)
		round, _, _ = b.admit()
		if opened, closed := b.report(round, errors.New("it errs"), tenant.ID{0xa}); opened || closed {
			t.Errorf("opened %t, closed %t", opened, closed)
		}
		if n, _ := b.limit(10); n != 1 || !b.isOpen() {
			t.Errorf("it allows %d claims, want 1", n)
		}
		if over := b.passOver(); len(over) != 1 || over[0] != (tenant.ID{0xa}) {
			t.Errorf("the next probe passes over %v", over)
		}
		round, _, _ = b.admit()
		if _, closed := b.report(round, nil); !closed || len(b.passOver()) != 0 {
			t.Error("what is delivered does not close it")
		}
	})
}
