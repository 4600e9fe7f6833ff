package claim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

// Queue is the work.Source of a subscription whose topic is a queue: it claims
// what is due, oldest first, and records what became of it. Where a claim looks is
// in span.go.
//
// work.Run calls its Limit and Exchange from one goroutine, Extend and Do from many.
// The watcher asks for its floor.
type Queue struct {
	*Subscription
	diving chan struct{} // holds 1: the dive has something to do

	mu        sync.Mutex
	floor     time.Time     // guarded by mu: claims look no lower, but for sweeps; zero before the first
	sweptAt   time.Time     // guarded by mu: when the last sweep ended; zero before the first
	sweepCost time.Duration // guarded by mu: how long it took
	dive      *dive         // guarded by mu: while sweeps outlast their deadline
}

// NewQueue returns the queue of s, which [Queue.Run] drains.
func NewQueue(s *Subscription) *Queue { return &Queue{Subscription: s, diving: make(chan struct{}, 1)} }

// Run drains the queue until ctx ends, or the topic becomes a stream.
func (q *Queue) Run(ctx context.Context) error {
	ctx, end := q.Begin(ctx)
	defer end(nil)
	if q.IsStream() { // before it could be told
		return ErrModeChanged
	}
	below, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { q.lookBelow(below) })
	defer looking.Wait()
	defer cancel()
	err := work.Run(ctx, q, q.Loop())
	if errors.Is(context.Cause(ctx), ErrModeChanged) {
		return errors.Join(ErrModeChanged, err)
	}
	return err
}

// apartFrom is how many outcomes and claims an exchange must have for each to
// take a connection and a transaction of its own: the server then works on both
// at once, and two commits cost less than that gains.
const apartFrom = 100

// retryClaim is when a claim is made again that failed beside outcomes that
// were recorded. If it fails again, by itself, the loop hears of it.
const retryClaim = 50 * time.Millisecond

// exchange is one trip to the database: what it takes there, and what has come of
// it.
type exchange struct {
	done        []work.Done[*Item]
	settlements []*Settlement // of done
	n           int           // messages wanted; 0: no claim
	span        span          // where they are looked for

	items    []*Item       // were claimed
	claimErr error         // why none were
	err      error         // why no outcome was recorded; then the loop brings them again
	took     time.Duration // both
}

// Exchange records outcomes and claims more, all in the time of one round trip
// and, unless both are many, in one transaction. An error means that no
// outcome was recorded, and they are given again; or, where there are none, that
// the claim failed. A claim that fails beside outcomes that were recorded is made
// again soon (retryClaim).
func (q *Queue) Exchange(ctx context.Context, done []work.Done[*Item], n int) ([]*Item, time.Duration, error) {
	if len(done) == 0 && n == 0 {
		return nil, 0, nil
	}
	x := &exchange{done: done, settlements: Settle(done), n: n, span: q.nextSpan(n)}
	if n > 0 {
		q.turnElsewhere(ctx, &x.span)
	}
	started := time.Now()
	if n > 0 && (q.mayOutlast(x.span) || (len(done) >= apartFrom && n >= apartFrom)) {
		q.sendApart(ctx, x)
	} else {
		q.sendTogether(ctx, x)
	}
	x.took = time.Since(started)
	if q.isGone(ctx, x.claimErr) && x.err != nil { // the claim has undone what was recorded beside it
		return q.Exchange(ctx, done, 0)
	}
	q.learn(ctx, x)
	if x.err != nil {
		return x.items, 0, sqlstate.WithHint(x.err)
	}
	q.count(ctx, x)
	return x.items, q.nextClaim(ctx, x), nil
}

// sendTogether records and claims in one transaction: both or neither.
func (q *Queue) sendTogether(ctx context.Context, x *exchange) {
	batch := &pgx.Batch{}
	q.Record(batch, x.settlements)
	if x.n > 0 {
		q.queueClaim(batch, x)
	}
	if x.err = q.DB.SendBatch(ctx, batch).Close(); x.err != nil {
		x.claimErr, x.items = x.err, nil
	}
}

// sendApart records outcomes and claims at the same time. The claim has half
// the time, so that what follows from its being cut off has some, too.
func (q *Queue) sendApart(ctx context.Context, x *exchange) {
	outcomes, claim := &pgx.Batch{}, &pgx.Batch{}
	q.Record(outcomes, x.settlements)
	q.queueClaim(claim, x)
	var settling sync.WaitGroup
	if len(x.settlements) > 0 {
		settling.Go(func() { x.err = q.DB.SendBatch(ctx, outcomes).Close() })
	}
	claimCtx, cancel := context.WithTimeout(ctx, q.Deadline/2)
	defer cancel()
	if x.claimErr = q.DB.SendBatch(claimCtx, claim).Close(); x.claimErr != nil {
		q.Log.Debug("claim failed; will try again", "error", x.claimErr)
		x.items = nil
	}
	settling.Wait()
}

// queueClaim adds the claim. What it has claimed counts once the transaction has
// committed: an error of the batch throws it away.
func (q *Queue) queueClaim(batch *pgx.Batch, x *exchange) {
	at := x.span
	batch.Queue(query.Claim, q.Topic, q.Worker, at.limit, q.Name, at.floor, q.Lease.Seconds(), at.tenant).Query(func(rows pgx.Rows) error {
		var err error
		x.items, err = collect(rows, at.limit)
		return err
	})
}

// isGone hears why a claim was refused, and reports whether it was because the
// subscription is no more.
func (q *Queue) isGone(ctx context.Context, claimErr error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](claimErr)
	switch {
	case !ok:
		return false
	case pg.Code == "DDMOD":
		q.BecomeStream()
		return false
	case pg.Code == "DDNFD":
		return q.findRemoved(ctx)
	}
	return false
}

// learn is what an exchange teaches about where the next claim has to look, and
// settles whether the loop is to hear that the claim failed: not if it was only
// cut off, which the next one takes into account.
func (q *Queue) learn(ctx context.Context, x *exchange) {
	x.items = q.ours(ctx, x.items)
	switch {
	case x.n == 0:
	case x.claimErr == nil:
		q.claimed(x.items, x.span, x.took)
	case x.span.sweep:
		q.swept(x.took)
	}
	isCut := x.n > 0 && outlasted(x.claimErr) && q.cutOff(ctx, x.span) == nil
	if x.claimErr != nil && !isCut && len(x.done) == 0 {
		x.err = x.claimErr
	}
	if errors.Is(x.err, context.DeadlineExceeded) || errors.Is(x.claimErr, context.DeadlineExceeded) {
		// Where one connection is silent the idle ones may be too.
		q.DB.Reset()
	}
}

// count counts an exchange that went well.
func (q *Queue) count(ctx context.Context, x *exchange) {
	switch {
	case x.n == 0:
		q.Counters.Finish.Observe(x.took)
	case len(x.done) == 0:
		q.Counters.Claim.Observe(x.took)
	default:
		q.Counters.Both.Observe(x.took)
	}
	q.Account(ctx, x.settlements, x.done)
}

// nextClaim is when to claim again after an exchange that claimed nothing; 0: when
// the loop is woken.
func (q *Queue) nextClaim(ctx context.Context, x *exchange) time.Duration {
	switch {
	case x.n == 0 || len(x.items) > 0:
		return 0
	case x.claimErr != nil:
		return retryClaim
	default:
		return q.nextLook(ctx, x.span)
	}
}

// Do hands items to the destination, but for those that cannot be decoded.
func (q *Queue) Do(ctx context.Context, items []*Item) []error {
	outcomes := make([]error, len(items))
	msgs := make([]*Message, 0, len(items))
	at := make([]int, 0, len(items)) // of msgs, in items
	for i, it := range items {
		if it.Problem != nil {
			outcomes[i] = it.Problem
			continue
		}
		msgs = append(msgs, &it.Message)
		at = append(at, i)
	}
	if len(msgs) == 0 {
		return outcomes
	}
	for k, err := range q.Destination.Deliver(ctx, msgs) {
		outcomes[at[k]] = err
	}
	return outcomes
}
