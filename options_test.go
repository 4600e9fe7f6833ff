package deed

import (
	"context"
	"testing"
	"time"
)

// plainSink is a sink that knows its own time-out.
type plainSink struct{}

func (plainSink) Deliver(context.Context, []Message) []error { return nil }

// A function has a time-out unless its subscription says that it has none.
func TestSubscription_FunctionsHaveATimeout(t *testing.T) {
	t.Parallel()
	fn := SinkFunc(func(context.Context, Message) error { return nil })
	for name, c := range map[string]struct {
		sub  Subscription
		want time.Duration
	}{
		"function": {Subscription{Sink: fn}, 15 * time.Minute},
		"handler":  {Handle("t", func(context.Context, Received[int]) error { return nil }), 15 * time.Minute},
		"its own":  {Subscription{Sink: fn, Timeout: time.Second}, time.Second},
		"none":     {Subscription{Sink: fn, Timeout: -1}, 0},
		"sink":     {Subscription{Sink: plainSink{}}, 0},
	} {
		c.sub.Topic = "t"
		got, err := c.sub.withDefaults()
		if err != nil || got.Timeout != c.want {
			t.Errorf("%s: %s, %v; want %s", name, got.Timeout, err, c.want)
		}
	}
}
