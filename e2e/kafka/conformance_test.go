package kafka_test

import (
	"testing"
	"time"

	"github.com/deedhq/deed/sink/kafka"
	"github.com/deedhq/deed/sink/sinktest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, newHarness)
}

func newHarness(t *testing.T) sinktest.Harness {
	c := start(t, nil)
	h := sinktest.Harness{
		Sink:     open(t, c, nil),
		Features: sinktest.Features{Batch: true, Headers: true},
		TooLarge: 2 << 20,
		Arrived:  c.arrived,
	}
	if c.fake != nil {
		h.Features.Down, h.Features.Slow, h.Features.Refuse = true, true, true
		h.Down, h.Up, h.Slow, h.Refuse = c.down, c.up, c.slow, c.refuse
	}
	return h
}

// open makes a sink that is closed when the test ends.
func open(t *testing.T, c *cluster, change func(*kafka.Options)) *kafka.Sink {
	t.Helper()
	opts := kafka.Options{Brokers: c.brokers, Topic: c.topic, Timeout: 10 * time.Second}
	if change != nil {
		change(&opts)
	}
	sink, err := kafka.New(opts)
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
