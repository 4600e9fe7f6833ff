// Package runstep carries what a step's code may know of the step in its context: engines set it, and package
// run reads it.
package runstep

import (
	"context"
	"io"
	"log/slog"
	"time"
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
	// Artifacts takes what the step makes.
	Artifacts Artifacts
}

// Artifacts takes what a step makes.
type Artifacts interface {
	// Put keeps what r has, and makes it the step's.
	Put(ctx context.Context, kind string, r io.Reader) (Artifact, error)
	// Attach makes what is kept elsewhere the step's.
	Attach(a Artifact) error
}

// Artifact is as package run has it.
type Artifact struct {
	URI, Kind, SHA256 string
	SizeBytes         int64
	ExpiresAt         *time.Time
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
