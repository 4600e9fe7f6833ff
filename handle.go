package deed

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// From says which messages a subscription that is added later begins with.
type From string

const (
	// FromBeginning asks for every message that the topic still holds.
	FromBeginning From = "beginning"
	// FromNow asks for the messages that commit after the subscription is
	// registered.
	FromNow From = "now"
)

// A Subscription is a topic's path to one sink, with its own progress. The
// zero values of its options are usable.
type Subscription struct {
	// Topic is the topic to drain. Required.
	Topic string

	// Name identifies the subscription within its topic, for ever: progress is
	// kept under it. Default "handler".
	Name string

	// Sink receives the messages. Required.
	Sink Sink

	// From says where a subscription that is not known yet begins. Default:
	// [FromBeginning] for the first one of a topic, [FromNow] for later ones.
	From From

	// MaxAttempts is how many failed attempts make a message dead. Default 20.
	MaxAttempts int

	// Lease is how long a claim lasts unless it is renewed; workers renew at a
	// third of it. Default 30s, at least 1s.
	Lease time.Duration

	// Backoff is what the pause after a failed attempt grows from: it doubles
	// with every failure, up to 2^10 times this. Default 1s.
	Backoff time.Duration

	// Concurrency is how many calls to Deliver may run at once in this process.
	// Default 16.
	Concurrency int

	// BatchSize is how many messages one claim takes at the most, or one page of
	// a stream. Default for a claim: 200, or the sink's own batch size times
	// Concurrency if that is larger; for a page: 1000.
	BatchSize int
	page      int // the same, of a stream

	// Timeout bounds one call to Deliver: its context ends then. Default: 15
	// minutes for a function ([SinkFunc], [Handle]), the sink's own otherwise;
	// negative: none. Go cannot stop a function: one that goes on although its
	// context has ended keeps its message, and of a stream its lane, and nothing
	// runs beside it; deed status and deed doctor show it.
	Timeout time.Duration
}

// Received is a message whose payload has been decoded into T.
type Received[T any] struct {
	Message
	// Value is the decoded payload.
	Value T
}

// Handle makes a subscription of topic, named "handler", that decodes each
// payload from JSON into T and calls fn. A payload that does not decode is a
// failed attempt like any other: it is retried, ends dead and holds up nobody.
//
// fn may run for the same message again (see [Sink]); it steers by what it
// returns.
func Handle[T any](topic string, fn func(context.Context, Received[T]) error) Subscription {
	return Subscription{Topic: topic, Name: "handler", Sink: SinkFunc(func(ctx context.Context, m Message) error {
		r := Received[T]{Message: m}
		if err := json.Unmarshal(m.Payload, &r.Value); err != nil {
			return fmt.Errorf("decode payload as %T: %w", r.Value, err)
		}
		return fn(ctx, r)
	})}
}
