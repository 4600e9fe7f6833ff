package local

import (
	"log/slog"
	"testing"
	"time"
)

// What waits for a day that never comes, such as one of the year 9999, is no reason to look again sooner than where nothing waits.
func TestEngine_LooksAgain(t *testing.T) {
	t.Parallel()
	e := &Engine{opts: Options{PollInterval: time.Hour}}
	seconds := func(s float64) *float64 { return &s }
	for what, c := range map[string]struct {
		wait        *float64
		least, most time.Duration
	}{
		"nothing":                {nil, 30 * time.Minute, 90 * time.Minute},
		"soon":                   {seconds(0.25), 250 * time.Millisecond, 250 * time.Millisecond},
		"by now":                 {seconds(-1), time.Millisecond, time.Millisecond},
		"for thousands of years": {seconds(2.5e11), 30 * time.Minute, 90 * time.Minute},
	} {
		if got := e.lookAgain(c.wait); got < c.least || got > c.most {
			t.Errorf("what waits for its time: %s: it looks again in %s", what, got)
		}
	}
}

// What is recorded, apart from others that are not, is no end that could not be recorded while its lease lasted, and is let go.
func TestEngine_WhatIsRecordedHasNotExpired(t *testing.T) {
	t.Parallel()
	e := &Engine{opts: Options{Logger: slog.New(slog.DiscardHandler)}}
	for _, c := range []struct{ recorded, once, gone bool }{{true, false, true}, {true, true, true}, {false, true, false}} {
		if gone := e.Expired(&item{recorded: c.recorded, once: c.once}); gone != c.gone || e.expired.Load() != 0 {
			t.Errorf("%+v: let go: %t, %d counted", c, gone, e.expired.Load())
		}
	}
	if !e.Expired(&item{}) || e.expired.Load() != 1 {
		t.Errorf("what is not recorded: %d counted", e.expired.Load())
	}
}
