package nats_test

import (
	"testing"
	"time"

	"github.com/deedhq/deed/sink/nats"
	"github.com/deedhq/deed/sink/sinktest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, newHarness)
}

func newHarness(t *testing.T) sinktest.Harness {
	c := start(t)
	sink := open(t, c, nil)
	return sinktest.Harness{
		Sink:     sink,
		Features: sinktest.Features{Batch: true, Headers: true, Down: true, Slow: true, Refuse: true},
		TooLarge: 2 << 20, // the server's max_payload is 1 MiB
		Arrived:  c.arrived,
		Down:     c.gate.Shut,
		Up:       c.gate.Open,
		Slow: func(pause time.Duration) {
			c.set(func() { c.slow = pause })
			c.interpose()
		},
		Refuse: func(judge func([]byte) sinktest.Verdict) {
			c.set(func() { c.judge = judge })
			c.interpose()
		},
	}
}

// open makes a sink that is closed when the test ends.
func open(t *testing.T, c *cluster, change func(*nats.Options)) *nats.Sink {
	t.Helper()
	opts := nats.Options{URL: c.url(), Subject: "events.{topic}", Installation: func() string { return "here" }}
	if change != nil {
		change(&opts)
	}
	sink, err := nats.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(); err != nil {
			t.Error(err)
		}
	})
	return sink
}
