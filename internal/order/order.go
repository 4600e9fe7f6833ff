// Package order lets sinks keep the order of each key within a call.
package order

import (
	"context"
	"errors"
	"fmt"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/tenant"
)

var errHeld = errors.New("held back: a message of its key, before it in the call, was not delivered")

// Keys are those of which a message of this call was not delivered, each a
// tenant's own. The zero value is empty.
type Keys map[key]bool

type key struct {
	tenant tenant.ID
	key    string
}

func keyOf(m deed.Message) key { return key{m.Tenant, m.Key} }

// Hold remembers that m was not delivered.
func (k *Keys) Hold(m deed.Message) {
	if m.Key == "" {
		return
	}
	if *k == nil {
		*k = Keys{}
	}
	(*k)[keyOf(m)] = true
}

// Held returns the outcome of a message that may not be delivered, because one
// of its key before it was not: it costs no attempt. It is nil if m may be.
func (k Keys) Held(ctx context.Context, m deed.Message) error {
	switch {
	case !k[keyOf(m)]:
		return nil
	case ctx.Err() != nil:
		return NotBegun(ctx, errHeld)
	default:
		return deed.Unavailable(errHeld, 0)
	}
}

// NotBegun returns the outcome of a message that was not handed over, as ctx has ended: err and
// ctx's error. A call's time-out costs it no attempt, since it was spent on others. Who cancels the call has no
// outage of the sink's, and gives the message back, or has lost its claim.
func NotBegun(ctx context.Context, err error) error {
	err = fmt.Errorf("%w: %w", err, ctx.Err())
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return deed.Unavailable(err, 0)
	}
	return err
}
