package claim

import (
	"errors"
	"fmt"
	"time"

	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/work"
)

// Kind is what an attempt came to, in deed.fail's words. A stream's reader has
// some more, for what it puts aside.
type Kind string

const (
	Retry   Kind = "retry"   // it failed, and is tried again until there were too many attempts
	Discard Kind = "discard" // it failed for good: the message is dead, and an operator may discard it
	Outage  Kind = "outage"  // the destination is down; no attempt is counted
	Release Kind = "release" // there was no attempt: the message goes back
)

// Outcome is what an attempt that did not succeed came to.
type Outcome struct {
	Kind  Kind
	Text  string   // the error, for people
	After *float64 // seconds until the next attempt; nil: by the subscription's back-off
	Stack string   // of a panic
}

// Steer is an error by which a handler or a sink says more than that its attempt
// failed. Package deed makes them.
type Steer struct {
	Kind  Kind          // Retry, Discard or Outage
	After time.Duration // until the next attempt; of an outage, 0: by the breaker's back-off
	Err   error
}

func (s *Steer) Error() string { return s.Err.Error() }

// Unwrap returns the cause.
func (s *Steer) Unwrap() error { return s.Err }

// Failed is an error that has been read. Errors of attempts travel through
// internal/work as these.
type Failed struct {
	Outcome Outcome
	Err     error
}

func (f *Failed) Error() string { return f.Err.Error() }

// Describe reads an attempt's error. It does so once, within the attempt: the
// methods of a handler's error are the handler's code, and may panic.
func Describe(err error) (f *Failed) {
	f = &Failed{Err: err}
	defer func() {
		if v := recover(); v != nil {
			f.Outcome = Outcome{Kind: Retry, Text: fmt.Sprintf("the handler's error cannot be read: panic: %v", v)}
		}
	}()
	o := Outcome{Kind: Retry, Text: errortext.Stored(err.Error(), 2000, "")}
	if p, ok := errors.AsType[*work.Panic](err); ok {
		o.Stack = string(p.Stack)
	}
	if s, ok := errors.AsType[*Steer](err); ok {
		o.Kind = s.Kind
		if s.Kind == Retry {
			seconds := s.After.Seconds()
			o.After = &seconds
		}
	}
	f.Outcome = o
	return f
}

// OutcomeOf is that of an attempt's error: what the destination returned has been
// read, what the loop has found has not.
func OutcomeOf(err error) Outcome {
	if f, ok := err.(*Failed); ok {
		return f.Outcome
	}
	return Describe(err).Outcome
}
