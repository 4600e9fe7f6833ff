package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// source is one provider as a work.Source, for its deliveries that are due; the
// reconciler embeds it for those in doubt. work.Run calls Limit and Exchange from
// one goroutine, Extend and Do from many; two more write attempts (write.go), and
// housekeeping looks whether the name is still this ledger's. What is set by
// newSource never changes.
type source struct {
	ledger   *Ledger
	name     string
	opts     ProviderOptions
	provider Provider
	finder   Finder       // nil: it cannot look up
	batcher  Batcher      // nil: every call is of one delivery
	batch    int          // most deliveries of a call
	room     atomic.Int32 // how many of these fit into one lately; 0: as many as that
	fitted   atomic.Int32 // calls since, of so many
	caps     Capabilities // what the adapter said once, when the ledger was made
	log      *slog.Logger
	woken    chan struct{}                                                          // holds one: however often it is woken meanwhile, the loop looks once more
	doubted  chan struct{}                                                          // wakes the reconciler
	writing  chan *writing                                                          // attempts that wait to be written
	writes   func(ctx context.Context, list []*writing) (map[string]verdict, error) // in one statement
	watch    watch

	lanes *lanes // which destinations answer; the reconciler's loop counts into it, too
	hand  *hand  // of the loop over what is due; the reconciler has its own

	blocked atomic.Int64 // when events met what somebody else has locked, the last time; in nanoseconds since 1970

	idle atomic.Bool // another ledger serves the name otherwise; as of the last look
	mu   sync.Mutex
	away time.Time // guarded by mu: until when nothing is claimed, since another ledger serves the name otherwise
}

// newSource makes the source of a provider. Nothing runs, and the name is not
// registered, before the ledger does.
func newSource(l *Ledger, name string, opts ProviderOptions) *source {
	s := &source{
		ledger: l, name: name, opts: opts, provider: opts.Provider, caps: opts.Provider.Capabilities(),
		log: l.opts.Logger.With("provider", name), woken: make(chan struct{}, 1), doubted: make(chan struct{}, 1), writing: make(chan *writing, opts.Concurrency),
	}
	s.writes = s.writeAll
	s.lanes = newLanes(opts.Concurrency, opts.PerLane, s.caps.Lanes != LanePerRecipient)
	s.hand = newHand(&l.inHand, s.lanes, opts.Concurrency, opts.spare())
	s.finder, _ = opts.Provider.(Finder)
	s.batcher, _ = opts.Provider.(Batcher)
	s.batch = 1
	if opts.Sandbox == "" && s.batcher != nil {
		s.batch = max(1, s.caps.Batch)
	}
	return s
}

// workOptions are those of a loop with these places. It may have as many calls
// under way as there are usual and spare ones together: a call that takes long
// moves from the former to the latter, and makes room.
func (s *source) workOptions(p *places) work.Options {
	concurrency := cap(p.usual) + cap(p.spare)
	return work.Options{
		Concurrency: concurrency, Batch: max(s.ledger.opts.ClaimBatch, concurrency), Group: s.batch, Lease: s.ledger.opts.Lease, Deadline: s.ledger.opts.Deadline,
		Grace: s.ledger.opts.Grace, Wake: s.woken, Logger: s.log,
	}
}

// wake makes the loop look for deliveries; it never blocks.
func (s *source) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// wakeReconciler makes it look for what is in doubt; it never blocks.
func (s *source) wakeReconciler() {
	select {
	case s.doubted <- struct{}{}:
	default:
	}
}

// since is how long ago t was by the clock that says more: the monotonic one
// stands still while the machine sleeps.
func since(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// maxRequest bounds what a payload may become: the largest that there are, each
// byte written as three.
const maxRequest = 32 << 20

// render makes the request, before anything of the attempt is written: what
// cannot be rendered was never called. A panic of an adapter is its error.
func (s *source) render(channel Channel, d Draft) (request []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("render: panic: %v", v)
		}
	}()
	if !slices.Contains(s.caps.Channels, channel) {
		return nil, fmt.Errorf("provider %s (%s) does not serve the channel %s", s.name, s.caps.Kind, channel)
	}
	request, err = s.provider.Render(d)
	switch {
	case err != nil:
		return nil, err
	case len(request) == 0:
		return nil, errors.New("the provider made an empty request")
	case len(request) > maxRequest:
		return nil, fmt.Errorf("the provider made a request of over %d MiB", maxRequest>>20)
	}
	return request, nil
}

// about returns a log whose lines have a delivery's ids.
func about(log *slog.Logger, w *row) *slog.Logger {
	log = log.With("delivery", w.id, "tenant", w.tenant, "channel", w.channel)
	if w.correlationID != "" {
		log = log.With("correlation_id", w.correlationID)
	}
	if w.channelMsgID != "" {
		log = log.With("channel_message_id", w.channelMsgID)
	}
	return log
}

func (s *source) logOf(w *row) *slog.Logger { return about(s.log, w) }
