package delivery

import (
	"testing"
	"time"
)

// What may not be called, though it is due, is gone through quickly and then
// looked at as seldom as nothing at all: thousands of hosts that are down would
// else have claims look at them without end.
func TestLook_WhatMayNotBeCalledIsLookedAtSeldom(t *testing.T) {
	t.Parallel()
	h := newHand(nil, nil, 1, 0)
	more := 0.0
	c := &claiming{walk: walk{Wait: &more}}
	for n := range mostQuick {
		if wait := h.look(c, time.Hour); wait > time.Second {
			t.Fatalf("look %d waits %s", n, wait)
		}
	}
	if wait := h.look(c, time.Hour); wait < 30*time.Minute {
		t.Errorf("after %d looks the next waits %s", mostQuick, wait)
	}
	h.turns.quick = 0 // as after a claim that found something
	if wait := h.look(c, time.Hour); wait > time.Second {
		t.Errorf("after one that found something it waits %s", wait)
	}
}

// What is scheduled for a day that never comes is no reason to look again soon.
func TestLook_WhatIsDueInThousandsOfYears(t *testing.T) {
	t.Parallel()
	far := 2.5e11 // seconds
	if wait := newHand(nil, nil, 1, 0).look(&claiming{walk: walk{Wait: &far}}, time.Hour); wait < 30*time.Minute {
		t.Errorf("it looks again in %s", wait)
	}
}

// A look for doubts has a twentieth of the time where it takes long, as beside an old snapshot, and comes once in a lease.
func TestLook_ForDoubtsHasATwentiethOfTheTime(t *testing.T) {
	t.Parallel()
	r := &reconciler{source: &source{ledger: &Ledger{opts: Options{PollInterval: time.Second, Lease: 30 * time.Second}}}}
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: time.Second, 100 * time.Millisecond: 2 * time.Second, time.Minute: 30 * time.Second} {
		if got := r.rest(took); got != want {
			t.Errorf("after a look of %s it rests %s, want %s", took, got, want)
		}
	}
}
