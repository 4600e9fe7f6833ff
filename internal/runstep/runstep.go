// Package runstep carries what a step's code may know of the step in its context: engines set it, and package
// run reads it.
package runstep

import (
	"context"
	"log/slog"
)

// Step is the step that is being done.
type Step struct {
	Run, Name string
	// Attempt is the logical one, EngineAttempt how often that was begun.
	Attempt, EngineAttempt int
	// Key is that of its effects.
	Key string
	// Secrets are values by the names that its plan has for them.
	Secrets map[string]string
	// Log is without those values.
	Log *slog.Logger
}

type contextKey struct{}

// With returns a context in which s is being done.
func With(ctx context.Context, s Step) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// From is the step that ctx is of.
func From(ctx context.Context) (Step, bool) {
	s, ok := ctx.Value(contextKey{}).(Step)
	return s, ok
}
