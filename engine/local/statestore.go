package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/deedhq/deed/run"
)

// StateStore is for how long an engine waits until an event of a step is stored, and what becomes of one that is not by then
// (R14). Its fields are those of seed 001 §5. The zero value is what stands there.
type StateStore struct {
	// WriteLatencyBudget is how long one write of events may take. Default 3s.
	WriteLatencyBudget time.Duration
	// FailOpenForEventClass are types of events that go to [Options.Journal] past the budget: [run.StepStarted], or none. Default:
	// StepStarted, unless NeverFailOpen has it.
	FailOpenForEventClass []run.Type
	// NeverFailOpen are types that never do. [run.StepCompleted], [run.StepFailed] and [run.StepSkipped], which end an attempt, never do anyway.
	NeverFailOpen []run.Type
}

// ends of steps are what is stored, or was not.
var ends = []run.Type{run.StepCompleted, run.StepFailed, run.StepSkipped}

func (s StateStore) withDefaults() (StateStore, error) {
	s.WriteLatencyBudget = cmp.Or(s.WriteLatencyBudget, 3*time.Second)
	var errs []error
	if s.WriteLatencyBudget < 10*time.Millisecond || s.WriteLatencyBudget > time.Hour {
		errs = append(errs, fmt.Errorf("option StateStore: WriteLatencyBudget %s is not from 10ms to 1h", s.WriteLatencyBudget))
	}
	for _, class := range s.FailOpenForEventClass {
		switch {
		case slices.Contains(ends, class):
			errs = append(errs, fmt.Errorf("option StateStore: FailOpenForEventClass has %s: an end is stored, or its attempt has failed", class))
		case class != run.StepStarted:
			errs = append(errs, fmt.Errorf("option StateStore: FailOpenForEventClass has %q; an engine announces StepStarted and nothing else", class))
		case slices.Contains(s.NeverFailOpen, class):
			errs = append(errs, fmt.Errorf("option StateStore: %s is in FailOpenForEventClass and in NeverFailOpen", class))
		}
	}
	for _, class := range s.NeverFailOpen {
		if class != run.StepStarted && !slices.Contains(ends, class) {
			errs = append(errs, fmt.Errorf("option StateStore: NeverFailOpen has %q, which is no type of events of steps", class))
		}
	}
	return s, errors.Join(errs...)
}

// failsOpen reports whether announcements go to the journal past the budget.
func (s StateStore) failsOpen() bool {
	if s.FailOpenForEventClass == nil {
		return !slices.Contains(s.NeverFailOpen, run.StepStarted)
	}
	return slices.Contains(s.FailOpenForEventClass, run.StepStarted)
}

// budgeted bounds a write of ends.
func (e *Engine) budgeted(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(e.opts.StateStore.WriteLatencyBudget, e.opts.Deadline))
}

// Expired is asked of a step whose end could not be recorded for as long as its lease: the engine's attempt has failed, and who
// claims the step next repeats it under the same key. What must not be repeated is kept: if nobody has taken it by then, its end is recorded. One whose end was
// recorded apart from others, which were not, needs nothing any more.
func (e *Engine) Expired(it *item) bool {
	if it.recorded || it.once {
		return it.recorded
	}
	e.expired.Add(1)
	e.about(it).Error("the end of a step could not be recorded while its lease lasted; the step is begun again under the same key")
	return true
}
