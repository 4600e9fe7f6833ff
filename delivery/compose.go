package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/deedhq/deed"
)

// Composer makes what a campaign's delivery says, from the content that its run never
// changes and from the data of its row ([Draft.Payload]): campaign.NewComposer makes one.
// Several goroutines call it at once.
type Composer interface {
	// Compose returns the payload that the provider makes its request of. An error whose
	// code is [deed.Invalid] fails the delivery, since no other attempt would make more of
	// it; after any other it goes back and is attempted again some seconds later.
	Compose(ctx context.Context, d Draft) (json.RawMessage, error)
}

// compose puts what a campaign's delivery says, with the link to leave by, in place of its row's data.
// It reports whether that could be done.
func (s *source) compose(ctx context.Context, it *item, link string) bool {
	if !s.hand.mayMake(it) {
		it.kind = "release" // claimed again when there is room
		return false
	}
	d := it.draft()
	d.Unsubscribe = link
	payload, err := s.ledger.composed(ctx, d)
	if err == nil {
		it.payload = payload
		s.hand.weigh(it, len(payload))
		return true
	}
	if deed.CodeOf(err) == deed.Invalid {
		it.kind, it.out = "unusable", Refused(err)
	} else {
		s.logOf(&it.row).Warn("delivery not composed; it goes back", "error", err)
		it.notMade(err)
	}
	return false
}

// notMade gives a delivery back of which no request could be made now: for a few seconds, since
// what keeps it from that is no matter of the moment.
func (it *item) notMade(err error) {
	const least = 5 * time.Second
	it.kind, it.out = "release", NotNow(err, least+rand.N(least))
}

// composed is Compose within a statement's deadline. A panic is its error, and the
// delivery's.
func (l *Ledger) composed(ctx context.Context, d Draft) (payload json.RawMessage, err error) {
	defer func() {
		if v := recover(); v != nil {
			payload, err = nil, invalidf("compose", "panic: %v", v)
		}
	}()
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	payload, err = l.opts.Composer.Compose(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("compose: %w", err)
	}
	return payload, nil
}
