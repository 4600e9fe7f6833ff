// Package order lets sinks keep the order of each key within a call.
package order

import (
	"context"
	"errors"
	"fmt"

	"github.com/deedhq/deed"
)

var errHeld = errors.New("held back: a message of its key, before it in the call, was not delivered")

// Keys are those of which a message of this call was not delivered. The zero
// value is empty.
type Keys map[string]bool

// Hold remembers that m was not delivered.
func (k *Keys) Hold(m deed.Message) {
	if m.Key == "" {
		return
	}
	if *k == nil {
		*k = Keys{}
	}
	(*k)[m.Key] = true
}

// Held returns the outcome of a message that may not be delivered, because one
// of its key before it was not: it costs no attempt. It is nil if m may be.
func (k Keys) Held(ctx context.Context, m deed.Message) error {
	switch {
	case !k[m.Key]:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", errHeld, ctx.Err())
	default:
		return deed.Unavailable(errHeld, 0)
	}
}
