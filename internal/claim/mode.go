package claim

import (
	"context"
	"errors"
)

// ErrModeChanged ends the work on a subscription whose topic has become a
// stream, or a queue again.
var ErrModeChanged = errors.New("the topic's mode has changed")

// errRemoved ends the work on a subscription that was removed.
var errRemoved = errors.New("the subscription was removed")

// Begin returns a context for the work on the subscription as what it is now: it
// ends with [ErrModeChanged] when the topic becomes something else, and when the
// subscription is removed. Who calls it looks at IsStream afterwards: what changed
// before could not end it. Of one subscription, one work is under way at a time.
func (s *Subscription) Begin(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, end := context.WithCancelCause(ctx)
	s.mu.Lock()
	s.end = end
	s.mu.Unlock()
	if s.isRemoved.Load() { // before it could be told
		end(errRemoved)
	}
	return ctx, end
}

// SetStream says what the topic is when the subscription is registered.
func (s *Subscription) SetStream(is bool) { s.isStream.Store(is) }

// IsStream reports whether the topic is a stream.
func (s *Subscription) IsStream() bool { return s.isStream.Load() }

// BecomeStream ends the work on the topic as a queue, if that is what it was.
func (s *Subscription) BecomeStream() {
	if !s.isStream.Swap(true) {
		s.stop(ErrModeChanged)
	}
}

// BecomeQueue ends the work on the topic as a stream, if that is what it was.
func (s *Subscription) BecomeQueue() {
	if s.isStream.Swap(false) {
		s.stop(ErrModeChanged)
	}
}

// IsRemoved reports whether the subscription was removed.
func (s *Subscription) IsRemoved() bool { return s.isRemoved.Load() }

// becomeRemoved ends the work on the subscription: nothing new is begun, what is
// under way ends.
func (s *Subscription) becomeRemoved() {
	if s.isRemoved.Swap(true) {
		return
	}
	s.stop(errRemoved)
	s.Log.Warn("the subscription was removed: this process stops working on it; if it is declared again it begins as a new one")
}

// stop ends the work that is under way, if any.
func (s *Subscription) stop(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		s.end(cause)
	}
}
