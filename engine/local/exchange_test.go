package local

import (
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
