package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/work"
)

// source is one provider as a source of work.
type source struct {
	ledger   *Ledger
	name     string
	opts     ProviderOptions
	provider Provider
	finder   Finder // nil: it cannot look up
	caps     Capabilities
	log      *slog.Logger
	wake     chan struct{}
	doubted  chan struct{} // wakes the reconciler
	writing  chan *writing
	watch    watch

	lanes *lanes
	hand  *hand

	idle atomic.Bool // another ledger serves the name otherwise; as of the last look
	mu   sync.Mutex
	away time.Time // guarded by mu: until when nothing is claimed, since another ledger serves the name otherwise
}

// item is a claimed delivery, and what has become of it.
type item struct {
	row
	kind   string // in deed.settle's words; "" before the attempt
	out    Outcome
	failed bool       // the destination did not answer as it should
	pauses bool       // so that it is to be left alone
	box    *sandboxed // nil: the call goes to the recipient
	made   *made      // nil: no call was made
	stack  string     // of a panic
	place  *place     // where it is called
}

// settled says that there is nothing to record: it was skipped, or lost.
const settled = "settled"

// unrepeated says that a repeat was claimed and nothing reached the provider.
const unrepeated = "unrepeated"

func newSource(l *Ledger, name string, opts ProviderOptions) *source {
	s := &source{
		ledger: l, name: name, opts: opts, provider: opts.Provider, caps: opts.Provider.Capabilities(),
		log: l.opts.Logger.With("provider", name), wake: make(chan struct{}, 1), doubted: make(chan struct{}, 1), writing: make(chan *writing, opts.Concurrency),
	}
	perDomain := 0
	if s.caps.PerDomain {
		perDomain = opts.PerDomain
	}
	s.lanes = newLanes(perDomain)
	s.hand = newHand(l, s.lanes, opts.Concurrency, opts.spare())
	s.finder, _ = opts.Provider.(Finder)
	return s
}

func (s *source) run(ctx context.Context) error {
	// The writers end when no call can want them any more.
	writers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var writing sync.WaitGroup
	for range 2 {
		writing.Go(func() { s.write(writers) })
	}
	s.hand.stopping = ctx.Done()
	err := work.Run(ctx, s, s.workOptions(s.hand.places))
	stop()
	writing.Wait()
	if err != nil {
		return fmt.Errorf("deed: deliveries of %s: %w", s.name, err)
	}
	return nil
}

func (s *source) workOptions(p *places) work.Options {
	concurrency := cap(p.usual) + cap(p.spare)
	return work.Options{
		Concurrency: concurrency, Batch: max(s.ledger.opts.ClaimBatch, concurrency), Lease: s.ledger.opts.Lease, Deadline: s.ledger.opts.Deadline,
		Grace: s.ledger.opts.Grace, Wake: s.wake, Logger: s.log,
	}
}

// poke makes the loop look for deliveries; it never blocks.
func (s *source) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Limit stops claims while the provider is somebody else's, and while there is
// enough in hand.
func (s *source) Limit(n int) (int, time.Duration) {
	if wait := s.replaced(); wait > 0 {
		return 0, wait
	}
	if s.hand.laden() {
		return 0, 50 * time.Millisecond
	}
	n = min(n, s.ledger.opts.ClaimBatch)
	return n, 0
}

// Exchange settles outcomes and claims more, in one round trip and one
// transaction.
func (s *source) Exchange(ctx context.Context, done []work.Done[*item], n int) ([]*item, time.Duration, error) {
	if len(done) == 0 && n == 0 {
		return nil, 0, nil
	}
	batch := &pgx.Batch{}
	st := s.queueSettle(batch, done)
	c := &claiming{}
	if n > 0 {
		c = s.queueClaim(batch, n)
	}
	if batch.Len() > 0 {
		if err := s.ledger.pool.SendBatch(ctx, batch).Close(); err != nil {
			return nil, 0, err
		}
	}
	s.account(st)
	for _, d := range done {
		s.hand.drop(d.Item)
	}
	s.hand.take(c)
	s.tellClaim(c)
	if n == 0 || len(c.items) > 0 {
		return c.items, 0, nil
	}
	return nil, s.hand.look(c, s.ledger.opts.PollInterval), nil
}

// Do attempts one delivery. What came of it is in the item, never in the
// error: also a call that was cut short has an outcome.
func (s *source) Do(ctx context.Context, items []*item) []error {
	for _, it := range items {
		s.hand.inTurn(ctx, it, s.attempt)
	}
	return nil
}

func (s *source) attempt(ctx context.Context, it *item) {
	it.kind = "release"
	if s.watch.holds(s.dest(&it.row)) {
		return
	}
	if it.request == nil {
		request, err := s.render(it.channel, it.draft())
		if err != nil {
			it.kind, it.out = "unusable", Refused(err)
			return
		}
		it.request = request
	}
	if s.opts.Sandbox != "" {
		it.box = s.forSandbox(&it.row)
	}
	begun := time.Now()
	verdict := s.writeAttempt(ctx, it)
	switch {
	case verdict.err != nil:
		return // it may have been written; then release takes it back
	case verdict.status == "sending" && since(begun) >= s.ledger.opts.Lease:
		return // its lease is over: somebody may have settled it as in doubt
	case verdict.status == "skipped":
		it.kind = settled
		s.logOf(&it.row).Info("delivery skipped", "from", Queued, "to", Skipped, "attempts", verdict.attempts, "reason", verdict.why)
		return
	case verdict.why == "paused":
		it.kind = settled // since it was claimed, and it has been let go
		return
	case verdict.why != "":
		it.kind = settled // it has been let go
		s.notOurs(ctx, it, verdict.why)
		return
	case verdict.status != "sending":
		it.kind = settled
		return
	}
	it.attempts = verdict.attempts
	s.idle.Store(false) // the name is this ledger's
	crash.Point("calling")
	s.call(ctx, it, false)
	crash.Point("called")
	s.judge(it)
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

// render makes the request. A panic of an adapter is its error.
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

// call makes the one call of an attempt. A call that panics or is cut off has
// an unknown outcome.
func (s *source) call(ctx context.Context, it *item, repeat bool) {
	if !s.opts.serves(it.tenant) {
		it.out = Refused(fmt.Errorf("the provider %s does not serve this tenant; see its tenants", s.name))
		return
	}
	if it.box != nil {
		if it.box.err != nil {
			it.out = marked(NotNow(it.box.err, 0))
			return
		}
		defer func() { it.out = marked(it.out) }()
	}
	r := Reservation{&reservation{row: &it.row, sandbox: it.box, repeat: repeat}}
	ctx, cancel := context.WithTimeout(deed.WithTrace(ctx, deed.Trace{CorrelationID: it.correlationID}), s.opts.Timeout)
	defer cancel()
	defer r.of.over.Store(true)
	begun := time.Now()
	defer func() {
		it.made = &made{out: it.out, took: max(0, since(begun)), box: it.box != nil}
		if s.caps.Key == HasKey || it.box != nil {
			it.made.key = r.Key()
		}
	}()
	it.out = Unknown(errors.New("the call ended without an outcome"))
	ended := s.timed(it)
	defer func() { ended(it.out) }()
	defer func() {
		if v := recover(); v != nil {
			p := &work.Panic{Value: v, Stack: debug.Stack()}
			it.out, it.stack = Unknown(p), string(p.Stack)
		}
	}()
	it.out = s.provider.Send(ctx, r)
}
