package sinktest_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/sink/sinktest"
)

func TestMain(m *testing.M) { sinktest.Main(m) }

// memory is a destination in this process.
type memory struct {
	mu      sync.Mutex // guards the fields below
	arrived []sinktest.Arrival
	down    bool
	slow    time.Duration
	judge   func([]byte) sinktest.Verdict
}

var errDown = errors.New("the destination is down")

// accept is a plain Go function sink.
func (d *memory) accept(ctx context.Context, m deed.Message) error {
	d.mu.Lock()
	down, slow, judge := d.down, d.slow, d.judge
	d.mu.Unlock()
	if down {
		return deed.Unavailable(errDown, 0)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if judge != nil {
		switch judge(m.Payload) {
		case sinktest.ForNow:
			return errors.New("not now")
		case sinktest.ForGood:
			return deed.Permanent(errors.New("never"))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.arrived = append(d.arrived, sinktest.Arrival{
		ID: m.ID.String(), Topic: m.Topic, Key: m.Key, Type: m.Type,
		Payload: bytes.Clone(m.Payload), Headers: maps.Clone(m.Headers),
	})
	return nil
}

func (d *memory) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func newHarness(*testing.T) sinktest.Harness {
	d := &memory{}
	return sinktest.Harness{
		Sink:     deed.SinkFunc(d.accept),
		Features: sinktest.Features{Headers: true, Down: true, Slow: true, Refuse: true, InTurn: true},
		Arrived: func() []sinktest.Arrival {
			d.mu.Lock()
			defer d.mu.Unlock()
			return append([]sinktest.Arrival(nil), d.arrived...)
		},
		Down:   func() { d.set(func() { d.down = true }) },
		Up:     func() { d.set(func() { d.down = false }) },
		Slow:   func(pause time.Duration) { d.set(func() { d.slow = pause }) },
		Refuse: func(judge func([]byte) sinktest.Verdict) { d.set(func() { d.judge = judge }) },
	}
}

func TestFunction(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, newHarness)
}

// inBatches is a sink that takes several messages a call.
type inBatches struct{ deed.SinkFunc }

func (inBatches) BatchSize() int { return 100 }

func TestBatchFunction(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t *testing.T) sinktest.Harness {
		h := newHarness(t)
		h.Sink = inBatches{h.Sink.(deed.SinkFunc)}
		h.Features.Batch = true
		return h
	})
}
