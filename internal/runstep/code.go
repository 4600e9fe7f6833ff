package runstep

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Code is what an engine gives to the code of a step, so that it may have inner steps; package run calls it. Its methods may
// be called by several goroutines at once.
type Code interface {
	// Step does an inner step, or returns what is recorded of it.
	Step(ctx context.Context, ask Ask, do func(context.Context) (json.RawMessage, error)) (json.RawMessage, error)
	// Tx does one in a transaction that commits with its end.
	Tx(ctx context.Context, ask Ask, do func(context.Context, pgx.Tx) error) error
	// Sleep waits.
	Sleep(ctx context.Context, ask Ask, d time.Duration) error
	// Parallel does branches at the same time.
	Parallel(ctx context.Context, branches []Branch) error
}

// Ask names an inner step. Was is what it was called before; "" without one.
type Ask struct{ Name, Was string }

// Branch is one of those that are done at the same time.
type Branch struct {
	Ask
	Do func(context.Context) error
}

type codeKey struct{}

// WithCode returns a context whose inner steps are c's.
func WithCode(ctx context.Context, c Code) context.Context {
	return context.WithValue(ctx, codeKey{}, c)
}

// CodeFrom is whose the inner steps of ctx are; nil outside of a step's code.
func CodeFrom(ctx context.Context) Code {
	c, _ := ctx.Value(codeKey{}).(Code)
	return c
}
