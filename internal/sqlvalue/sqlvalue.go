// Package sqlvalue turns values into what statements take, and back, and says what
// they do not take.
package sqlvalue

import (
	"fmt"
	"math"
	"time"
)

// NullIfZero is v, or null for its zero value.
func NullIfZero[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// Count refuses a number that is below least, or above what an integer of the
// functions holds: the driver's own error names neither.
func Count(what string, n, least int) error {
	if n < least || n > math.MaxInt32 {
		return fmt.Errorf("%s %d is not from %d to %d", what, n, least, math.MaxInt32)
	}
	return nil
}

// Deref is what s points at; empty for null.
func Deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Seconds is an interval as the statements return it.
func Seconds(s float64) time.Duration {
	return time.Duration(math.Round(s*1e6)) * time.Microsecond
}
