package nats

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deedhq/deed"
)

// What JetStream refuses with, and the client has no name for.
const (
	errAccountFull  jetstream.ErrorCode = 10002 // the account's limit of storage
	errLargeHeaders jetstream.ErrorCode = 10097 // over 64 KiB
	errStreamSealed jetstream.ErrorCode = 10109
	errNoLimits     jetstream.ErrorCode = 10120 // the account has none for the stream's replicas
)

// outcome judges why a message was not stored, or not known to be.
func (s *Sink) outcome(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return s.errorf("no acknowledgement yet: %w", err)
	}
	api, refused := errors.AsType[*jetstream.APIError](err)
	switch {
	case errors.Is(err, errSubject), errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject),
		refused && (api.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum || api.ErrorCode == errLargeHeaders):
		return deed.Permanent(s.errorf("%w", err))
	case refused && api.ErrorCode == errAccountFull: // whatever its stream: no other subject fares better
		return deed.Unavailable(s.errorf("%w", err), 0)
	case refused && api.Code < 500 && api.ErrorCode != errStreamSealed && api.ErrorCode != errNoLimits:
		return s.errorf("refused: %w", err)
	case s.perOwn && (refused || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrPermissionViolation)):
		return s.errorf("%w", err)
	default:
		return deed.Unavailable(s.errorf("%w", err), 0)
	}
}

// denials are the subjects that the server has lately refused to take. It says
// so beside the protocol's request and answer, so the one does not lead to the
// other by itself.
type denials struct {
	mu      sync.Mutex
	at      map[string]time.Time
	changed chan struct{} // closed at the next denial; nil: nobody waits
}

// denialLasts is for how long a denial is an answer. Whoever waits for one has
// published before it came.
const denialLasts = time.Second

// note takes what the connection reports.
func (d *denials) note(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	// nats: permissions violation: Permissions Violation for Publish to "x"
	_, rest, ok := strings.Cut(err.Error(), ` for Publish to "`)
	if !ok {
		return
	}
	subject, _, _ := strings.Cut(rest, `"`)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == nil {
		d.at = map[string]time.Time{}
	}
	for old, at := range d.at {
		if time.Since(at) > denialLasts {
			delete(d.at, old)
		}
	}
	d.at[subject] = time.Now()
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// watch returns what is closed at the next denial.
func (d *denials) watch() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return d.changed
}

// recently reports whether a subject has just been denied.
func (d *denials) recently(subject string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, ok := d.at[subject]
	return ok && time.Since(at) <= denialLasts
}
