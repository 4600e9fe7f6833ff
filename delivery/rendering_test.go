package delivery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// The request of a campaign's delivery that was claimed for a batch, and is in none since it is too bulky, is made
// again of when it was made: before the batch was called.
func TestRender_WhatFellOutOfABatch(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	v := newVan(10)
	v.render = func(d delivery.Draft) ([]byte, error) {
		// The next request, and what comes after it, is of another time.
		pgtest.Wait(pgtest.Patience, func() bool { return time.Since(d.At) > 2*time.Millisecond })
		return fmt.Appendf(nil, "%s at %s", d.Payload, d.At.Format(time.RFC3339Nano)), nil
	}
	made := v.reserve(t, db, several(3, func(i int, d *delivery.Delivery) {
		if i == 1 {
			d.Payload = []byte(`{"bulky": true}`)
		}
	})...)
	for _, m := range made {
		ofRun(t, db, m.ID, "00000000-0000-7000-8000-000000000001")
	}
	l, _ := run(t, db, fast(v))
	for i, m := range made {
		until(t, db, m.ID, delivery.Sent)
		if r, err := l.Render(t.Context(), m.ID); err != nil || !r.Same {
			t.Errorf("%d: %q, same %t, %v", i, r.Request, r.Same, err)
		}
	}
	if n, calls := v.called(made[1].ID), v.batches(); n != 1 || len(calls) != 1 || len(calls[0].ids) != 2 {
		t.Errorf("called alone %d times, and %+v", n, calls)
	}
}
