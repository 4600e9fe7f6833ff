package delivery

import (
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
