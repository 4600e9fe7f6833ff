package duration_test

import (
	"testing"
	"time"

	"github.com/deedhq/deed/internal/duration"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "30s": 30 * time.Second, "1h30m": 90 * time.Minute,
		"250ms": 250 * time.Millisecond, "0s": 0, "1d1h1m1s": 25*time.Hour + time.Minute + time.Second,
	} {
		if got, err := duration.Parse(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
		if got := duration.Format(want); got != text {
			t.Errorf("%s: written as %s", text, got)
		}
	}
	for _, text := range []string{"", "d", "1.5d", "-1d", "70000d", "1d-1h", "1d+1h", "1dx", "7d7d", "1h1d"} {
		if got, err := duration.Parse(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}
