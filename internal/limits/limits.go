// Package limits says what a topic, a subscription and their settings may be.
// The schema's own checks say the same, and a test compares them.
package limits

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/duration"
)

// A Range is what a setting may be.
type Range[T cmp.Ordered] struct{ Least, Most T }

var (
	Attempts = Range[int]{1, 1000} // of a message or a delivery, before it is dead
	Lanes    = Range[int]{1, 64}
	Lease    = Range[time.Duration]{time.Second, 24 * time.Hour}
	Backoff  = Range[time.Duration]{time.Millisecond, time.Hour} // what the pauses after failures grow from
)

// Check says that a setting is not in the range, by the name that what has.
func (r Range[T]) Check(what string, v T) error {
	if v >= r.Least && v <= r.Most {
		return nil
	}
	return fmt.Errorf("%s %s is not from %s to %s", what, text(v), text(r.Least), text(r.Most))
}

// CheckSet is Check of a setting that may be left out, as the zero value.
func (r Range[T]) CheckSet(what string, v T) error {
	if v == *new(T) {
		return nil
	}
	return r.Check(what, v)
}

func text(v any) string {
	if d, ok := v.(time.Duration); ok {
		return duration.Format(d)
	}
	return fmt.Sprint(v)
}

const (
	longestTopic = 200
	longestName  = 100
)

var errTopic = errors.New("a topic's name has 1 to 200 characters of A-Z a-z 0-9 . _ : / -")

// Topic says that a topic cannot have this name.
func Topic(name string) error {
	if !isOf(name, longestTopic, "._:/-") {
		return errTopic
	}
	return nil
}

// PublishedTopic says that applications cannot publish to a topic of this name.
func PublishedTopic(name string) error {
	if strings.HasPrefix(name, "deed.") {
		return errors.New("names from deed. on are of what deed itself publishes; take another")
	}
	return Topic(name)
}

// Name says that a subscription, a sink or a provider, which of is, cannot have
// this name.
func Name(of, name string) error {
	if !isOf(name, longestName, "._-") {
		return fmt.Errorf("a %s's name has 1 to %d characters of A-Z a-z 0-9 . _ -", of, longestName)
	}
	return nil
}

func isOf(name string, longest int, others string) bool {
	if name == "" || len(name) > longest {
		return false
	}
	for _, c := range []byte(name) {
		if !isAlphanumeric(c) && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
