package breaker_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/breaker"
)

var errDown = errors.New("it is down")

// admit fails the test if no attempt is admitted.
func admit(t *testing.T, b *breaker.Breaker) int {
	t.Helper()
	round, wait, cause := b.Admit()
	if cause != nil {
		t.Fatalf("no attempt is admitted, and it is to be asked in %s: %v", wait, cause)
	}
	return round
}

func TestBreaker_OpensAfterARunOfFailures(t *testing.T) {
	t.Parallel()
	b := breaker.New(breaker.Options{Failures: 2, Pause: time.Hour, MaxPause: time.Hour}) // the clock is the machine's here
	for i, step := range []struct {
		report func(round int) breaker.Effect
		want   breaker.Effect
	}{
		{down(b), breaker.Counted},
		{b.Up, breaker.Counted},
		{down(b), breaker.Counted},
		{b.Nothing, breaker.Counted},
		{down(b), breaker.Opened},
	} {
		if got := step.report(admit(t, b)); got != step.want {
			t.Fatalf("step %d: %d, want %d", i+1, got, step.want)
		}
	}
	if n, wait := b.Limit(10); n != 0 || wait <= 0 || b.State() != "open" {
		t.Errorf("it is %s, allows %d claims, and is to be asked in %s", b.State(), n, wait)
	}
}

func down(b *breaker.Breaker) func(int) breaker.Effect {
	return func(round int) breaker.Effect {
		effect, _ := b.Down(round, errDown, nil)
		return effect
	}
}

func TestBreaker_DoublesThePauseUpToItsBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Options{Failures: 1, Pause: time.Second, MaxPause: 5 * time.Second})
		for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second} {
			if _, pause := b.Down(admit(t, b), errDown, nil); pause != want {
				t.Errorf("it pauses for %s, want %s", pause, want)
			}
			if _, wait, cause := b.Admit(); wait != want || !errors.Is(cause, errDown) {
				t.Errorf("it is to be asked in %s: %v", wait, cause)
			}
			<-time.After(want)
		}
		if effect := b.Up(admit(t, b)); effect != breaker.Closed || b.State() != "closed" {
			t.Errorf("an answer has effect %d and leaves it %s", effect, b.State())
		}
		asked := func(usual time.Duration) time.Duration {
			if usual != time.Second {
				t.Errorf("once it was closed it would pause for %s", usual)
			}
			return time.Hour
		}
		if _, pause := b.Down(admit(t, b), errDown, asked); pause != 5*time.Second {
			t.Errorf("asked for an hour it pauses for %s", pause)
		}
	})
}

// One attempt is admitted after the pause, whoever asks; the outcome of one from
// before counts no more.
func TestBreaker_LetsOneProbeThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Options{Failures: 1, Pause: time.Second, MaxPause: time.Minute})
		late := admit(t, b)
		b.Down(admit(t, b), errDown, nil)
		if effect := b.Up(late); effect != breaker.Stale || b.State() != "open" {
			t.Errorf("an answer from before has effect %d, and it is %s", effect, b.State())
		}
		<-time.After(time.Second)
		var admitted, round atomic.Int32
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if r, wait, cause := b.Admit(); cause == nil {
					round.Store(int32(r))
					admitted.Add(1)
				} else if wait <= 0 || wait > time.Second {
					t.Errorf("beside a probe it is to be asked in %s", wait)
				}
			})
		}
		wg.Wait()
		if n, _ := b.Limit(10); n != 0 || admitted.Load() != 1 {
			t.Errorf("%d probes were let through, and %d more would be", admitted.Load(), n)
		}
		if effect := b.Nothing(int(round.Load())); effect != breaker.Counted || b.State() != "half-open" {
			t.Errorf("a probe that shows nothing has effect %d and leaves it %s", effect, b.State())
		}
		if n, _ := b.Limit(10); n != 1 {
			t.Errorf("then it allows %d claims, want 1", n)
		}
	})
}

// A probe that hangs is given up for another, and its late outcome no longer
// counts.
func TestBreaker_GivesUpAHungProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Options{Failures: 1, Pause: time.Second, MaxPause: time.Minute, Probe: 30 * time.Second})
		b.Down(admit(t, b), errDown, nil)
		<-time.After(time.Second)
		hung := admit(t, b)
		<-time.After(29 * time.Second)
		if n, _ := b.Limit(10); n != 0 {
			t.Errorf("beside a probe it allows %d claims", n)
		}
		<-time.After(time.Second)
		if n, _ := b.Limit(10); n != 1 {
			t.Errorf("beside one that hangs it allows %d claims, want 1", n)
		}
		round := admit(t, b)
		if effect := b.Up(hung); effect != breaker.Stale {
			t.Errorf("the hung probe's late success has effect %d", effect)
		}
		if effect := b.Up(round); effect != breaker.Closed {
			t.Errorf("the second probe's success has effect %d", effect)
		}
	})
}
