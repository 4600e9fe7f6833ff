// Package duration reads and writes durations as people do: 7d, 1d12h, 90s.
package duration

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Parse reads what time.ParseDuration reads, and whole days before that: 7d,
// 1d12h.
func Parse(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("invalid duration %q", text)
	}
	d := time.Duration(n) * 24 * time.Hour
	if rest == "" {
		return d, nil
	}
	more, err := time.ParseDuration(rest)
	if err != nil || more < 0 || rest[0] == '+' || d > math.MaxInt64-more {
		return 0, fmt.Errorf("invalid duration %q", text)
	}
	return d + more, nil
}

// Format writes a duration without its zero parts, as Parse reads it: 7d, not
// 168h0m0s.
func Format(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= day:
		return short(d)
	case d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	default:
		return fmt.Sprintf("%dd%s", d/day, short(d%day))
	}
}

// short writes a duration without its zero parts: 24h, not 24h0m0s.
func short(d time.Duration) string {
	switch {
	case d != 0 && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d != 0 && d%time.Minute == 0:
		return strings.TrimSuffix(d.String(), "0s")
	}
	return d.String()
}
