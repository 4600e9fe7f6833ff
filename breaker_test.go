package deed

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
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
