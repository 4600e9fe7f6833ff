package run

import (
	"context"
	"errors"

	"github.com/deedhq/deed/internal/runstep"
)

// Key is that of the effects of the step whose code has ctx: what its calls to the outside give as their idempotency
// key. It is the same one when an attempt is made again that may have been made; "" outside of a step.
func Key(ctx context.Context) string {
	s, _ := runstep.From(ctx)
	return s.Key
}

// Attempt is the logical one of the step whose code has ctx, from 1 (R5); 0 outside of a step.
func Attempt(ctx context.Context) int {
	s, _ := runstep.From(ctx)
	return s.Attempt
}

// Failure is an error of a step as its StepFailed event keeps it. A step's code may return one, or wrap one; of any other
// error the event has the text.
type Failure struct {
	// Category is whose doing it is: user, provider, infrastructure or secret. Default: user.
	Category string
	// Code is for programs. Default: STEP_FAILED.
	Code string
	// Final: a repeat would not mend it, and there is none, whatever the plan says.
	Final bool
	// NotDone: it is known that this attempt did nothing, as after a refused connection. The next attempt gets a
	// key of its own, unless one before it under the same key may have been done; and what must not be repeated may be.
	NotDone bool
	// Err is what happened. Required.
	Err error
}

func (f *Failure) Error() string {
	if f.Err == nil {
		return f.Code
	}
	return f.Err.Error()
}

// Unwrap returns what happened.
func (f *Failure) Unwrap() error { return f.Err }

// NotDone is err, of which it is known that nothing was done; see [Failure].
func NotDone(err error) error { return &Failure{NotDone: true, Err: err} }

// skipped is what [Skip] returns.
type skipped struct{ reason string }

func (s *skipped) Error() string { return "skipped: " + s.reason }

// Skip is what a step's code returns when there is nothing to do: the step is SKIPPED, for that reason.
func Skip(reason string) error { return &skipped{reason} }

// Skipped says why a step was skipped whose code has returned err; false: it was not.
func Skipped(err error) (reason string, ok bool) {
	s, ok := errors.AsType[*skipped](err)
	if !ok {
		return "", false
	}
	return s.reason, true
}
