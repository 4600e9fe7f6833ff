package deed

import (
	"context"
	"errors"
	"time"

	"github.com/deedhq/deed/internal/claim"
)

// A Sink delivers messages to one destination.
//
// Deliver attempts every message of ms, in order where the destination has
// one, and returns an outcome for each: result[i] is about ms[i], and nil
// means delivered. A nil result means that all were delivered. Deliver must
// return soon after ctx ends; what it could not finish then is reported as
// ctx's error and costs the message no attempt.
//
// Of a tenant's key's messages in one call, none may be delivered when one before it was
// not: an ordered stream would deliver that one later, and so out of order. What
// is held back for that is reported as [Unavailable], which costs no attempt.
//
// A message may be delivered more than once (a crash between the delivery and
// its record), so a sink passes [Message.ID] on for the consumer to drop
// repeats by. Deliver is called by several goroutines at once.
//
// An outcome steers what happens next: [After] chooses the time of the next
// attempt, [Permanent] ends the message, [Unavailable] says that the destination
// as a whole is down. Any other error counts an attempt and is retried with
// back-off until the subscription's max_attempts is reached.
type Sink interface {
	Deliver(ctx context.Context, ms []Message) []error
}

// A BatchSink is a Sink that prefers several messages a call. A sink without
// this method is given one message at a time.
type BatchSink interface {
	Sink
	// BatchSize is the most messages that one Deliver takes; at least 1.
	BatchSize() int
}

// SinkFunc is a function that delivers one message.
type SinkFunc func(ctx context.Context, m Message) error

// Deliver calls f for each message in turn, but for those of a key of which one
// before has failed.
func (f SinkFunc) Deliver(ctx context.Context, ms []Message) []error {
	var outcomes []error
	failed := map[claim.Key]bool{}
	for i, m := range ms {
		err := errHeldBack
		key := claim.Key{Tenant: m.Tenant, Name: m.Key}
		if !failed[key] {
			err = f(ctx, m)
		}
		if err != nil {
			if outcomes == nil {
				outcomes = make([]error, len(ms))
			}
			outcomes[i] = err
			failed[key] = m.Key != ""
		}
	}
	return outcomes
}

var errHeldBack = Unavailable(errors.New("held back: a message of its key, before it in the call, was not delivered"), 0)

var errRetryLater = errors.New("retry asked for by the handler")

// After is an outcome that counts an attempt and asks for the next one in d
// from now, by the database's clock. A negative d means at once.
func After(d time.Duration) error { return AfterError(d, errRetryLater) }

// AfterError is [After] with a cause, which is kept as the message's last
// error.
func AfterError(d time.Duration, err error) error {
	return &claim.Steer{Kind: claim.Retry, After: max(d, 0), Err: orUnknown(err)}
}

// Permanent is an outcome that ends the message at once: it is dead, kept with
// err as its reason, and never attempted again unless an operator redrives it.
func Permanent(err error) error { return &claim.Steer{Kind: claim.Discard, Err: orUnknown(err)} }

// Unavailable is an outcome about the destination, not the message: it is
// down, nothing was attempted, and no attempt is counted. The
// subscription pauses and probes until the destination answers again; after
// proposes the pause, 0 leaves it to the subscription's own back-off.
func Unavailable(err error, after time.Duration) error {
	return &claim.Steer{Kind: claim.Outage, After: max(after, 0), Err: orUnknown(err)}
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("no cause given")
	}
	return err
}

// IsUnavailable reports whether err is, or wraps, an [Unavailable] outcome.
func IsUnavailable(err error) bool {
	s, ok := errors.AsType[*claim.Steer](err)
	return ok && s.Kind == claim.Outage
}

// IsPermanent reports whether err is, or wraps, a [Permanent] outcome.
func IsPermanent(err error) bool {
	s, ok := errors.AsType[*claim.Steer](err)
	return ok && s.Kind == claim.Discard
}

// RetryAfter returns the pause that an [After], [AfterError] or [Unavailable]
// outcome asks for.
func RetryAfter(err error) (time.Duration, bool) {
	s, ok := errors.AsType[*claim.Steer](err)
	if !ok || s.Kind == claim.Discard {
		return 0, false
	}
	return s.After, true
}
