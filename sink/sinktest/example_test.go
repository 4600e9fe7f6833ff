package sinktest_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/sink/sinktest"
)

// list is a sink of one's own, and its destination.
type list struct {
	mu      sync.Mutex
	arrived []sinktest.Arrival // guarded by mu
}

// Deliver implements [deed.Sink]. Nil says that it has taken all of them.
func (l *list) Deliver(_ context.Context, ms []deed.Message) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range ms {
		l.arrived = append(l.arrived, sinktest.Arrival{ID: m.ID.String(), Topic: m.Topic, Key: m.Key, Type: m.Type, Payload: m.Payload})
	}
	return nil
}

func (l *list) Arrived() []sinktest.Arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.arrived)
}

// A sink's own tests have these two functions, and a destination to test against.
func ExampleRun() {
	_ = func(m *testing.M) { sinktest.Main(m) } // TestMain
	_ = func(t *testing.T) {                    // TestConformance
		sinktest.Run(t, func(*testing.T) sinktest.Harness {
			l := &list{}
			return sinktest.Harness{Sink: l, Arrived: l.Arrived}
		})
	}
}
