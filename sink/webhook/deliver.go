package webhook

import (
	"context"
	"net/http"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/order"
)

// Deliver posts each message in turn. See the package's documentation for what
// the outcomes mean.
func (s *Sink) Deliver(ctx context.Context, ms []deed.Message) []error {
	var outcomes []error
	var undelivered order.Keys
	for i, m := range ms {
		err := undelivered.Held(ctx, m)
		if err == nil {
			err = s.deliver(ctx, m.ID, excerptBytes, func(ctx context.Context) (*http.Request, [][]byte) { return s.request(ctx, m) }).outcome
		}
		if err != nil {
			if outcomes == nil {
				outcomes = make([]error, len(ms))
			}
			outcomes[i] = err
			undelivered.Hold(m)
		}
	}
	return outcomes
}

// deliver makes one request, unless the breaker is open. id names it to the
// breaker, keep is how much of the answer is wanted.
func (s *Sink) deliver(ctx context.Context, id deed.ID, keep int64, build func(context.Context) (*http.Request, [][]byte)) attempt {
	if ctx.Err() != nil {
		return attempt{outcome: order.NotBegun(ctx, s.errorf("not sent"))}
	}
	round, pause, cause := s.endpoint.Admit()
	if cause != nil {
		return attempt{outcome: deed.Unavailable(s.errorf("circuit breaker is open: %w", cause), pause)}
	}
	reported := false
	defer func() {
		if !reported { // a panic must not keep the probe's place
			s.endpoint.report(round, id, attempt{})
		}
	}()
	a := s.attempt(ctx, keep, build)
	outage, pause := s.endpoint.report(round, id, a)
	reported = true
	if outage {
		a.outcome = deed.Unavailable(a.err, pause)
	}
	return a
}
