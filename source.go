package deed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/deedhq/deed/internal/breaker"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/work"
)

// maxClaimBytes is what one claim should weigh at the most; its size follows
// the payloads' average.
const maxClaimBytes = 32 << 20

// source is one subscription as a work.Source: the only place that claims,
// finishes and fails messages for deed's own workers. Of a stream it is the part
// that stays: stream embeds it, and is made anew when the topic's mode changes.
//
// work.Run calls its Limit, Exchange and Extend from one goroutine, and Do from
// many. The watcher, the keeper of lanes and housekeeping read and wake it.
type source struct {
	client   *Client
	sub      Subscription
	log      *slog.Logger
	id       atomic.Int64 // of the subscription; -1 until it is registered
	lease    time.Duration
	wake     chan struct{}
	diving   chan struct{}    // the dive has something to do
	assigned chan *assignment // what the keeper of lanes says, of a stream

	registered int64                   // the id, until the registration has committed
	stream     atomic.Bool             // the topic is a stream
	removed    atomic.Bool             // the subscription was removed
	changed    context.CancelCauseFunc // guarded by mu: ends the work as what the topic is now

	breaker *breaker.Breaker
	failing failingTenants
	calls   calls
	stats   counters

	mu          sync.Mutex
	floor       time.Time     // guarded by mu: claims look no lower, but for sweeps
	sweptAt     time.Time     // guarded by mu
	sweepCost   time.Duration // guarded by mu
	dive        *dive         // guarded by mu: while sweeps outlast their deadline
	payloadSize float64       // guarded by mu: average, bytes
	slotFrom    *int32        // guarded by mu: of a stream whose lanes are here, from their first slot
	slotUpto    *int32        // guarded by mu: to their last
}

// item is a message that this process has claimed.
type item struct {
	msg     Message
	sub     int64 // the subscription's id
	claim   int64
	lost    int // claims of it that ran out before this one
	ord     time.Time
	problem error // it could not be decoded
}

func newSource(c *Client, sub Subscription) *source {
	s := &source{
		client: c, sub: sub, wake: make(chan struct{}, 1), diving: make(chan struct{}, 1), assigned: make(chan *assignment, 1),
		breaker: newBreaker(), log: c.opts.Logger.With("topic", sub.Topic, "subscription", sub.Name),
	}
	s.id.Store(-1)
	return s
}

func (s *source) label() string { return s.sub.Topic + "/" + s.sub.Name }

// register declares the subscription if it is absent. A difference between
// what is stored and what this program asks for is returned apart: two
// programs with different settings would fight.
func (s *source) register(ctx context.Context, tx pgx.Tx) (different, err error) {
	if s.sub.Topic == "" {
		s.lease, s.registered = 30*time.Second, 0
		return nil, nil
	}
	var attempts int
	var made bool
	var leased, backs float64
	var start, mode string
	err = tx.QueryRow(ctx, query.Subscribe, s.sub.Topic, s.sub.Name,
		sqlvalue.NullIfZero(string(s.sub.From)), sqlvalue.NullIfZero(s.sub.MaxAttempts), sqlvalue.NullIfZero(s.sub.Lease.Seconds()), sqlvalue.NullIfZero(s.sub.Backoff.Seconds())).
		Scan(&s.registered, &made, &attempts, &leased, &start, &mode, &backs)
	if err != nil {
		return nil, WrapError("subscribe "+s.label(), err)
	}
	s.lease = sqlvalue.Seconds(leased)
	s.stream.Store(mode == "stream")
	var differences []error
	differs := func(what string, stored, here any, flag string) {
		differences = append(differences, fmt.Errorf("%s is %v in the database and %v here; change it with: deed topic set %s --subscription %s %s %v",
			what, stored, here, s.sub.Topic, s.sub.Name, flag, here))
	}
	if s.sub.MaxAttempts != 0 && s.sub.MaxAttempts != attempts {
		differs("max_attempts", attempts, s.sub.MaxAttempts, "--max-attempts")
	}
	if s.sub.Lease != 0 && s.sub.Lease != s.lease {
		differs("lease", s.lease, s.sub.Lease, "--lease")
	}
	if stored := sqlvalue.Seconds(backs); s.sub.Backoff != 0 && s.sub.Backoff != stored {
		differs("backoff", stored, s.sub.Backoff, "--backoff")
	}
	if differences != nil {
		return &Error{Op: "subscribe " + s.label(), Code: Conflict, Err: errors.Join(differences...)}, nil
	}
	if !made {
		return nil, nil
	}
	s.log.Info("subscription made", "from", start, "max_attempts", attempts, "lease", s.lease)
	return nil, s.tellAnew(ctx, tx, start)
}

// run drains the subscription until ctx ends, as what its topic is now.
func (s *source) run(ctx context.Context) error {
	for {
		var err error
		if s.stream.Load() {
			err = s.runStream(ctx)
		} else {
			err = s.runQueue(ctx)
		}
		if !errors.Is(err, errModeChanged) {
			return s.outlast(ctx, err)
		}
		s.log.Info("the topic's mode has changed", "stream", s.stream.Load())
	}
}

// becomeStream ends the work on the topic as a queue, if that is what it was.
func (s *source) becomeStream() {
	if s.stream.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		s.changed(errModeChanged)
	}
}

func (s *source) runQueue(ctx context.Context) error {
	ctx, changed := s.changeable(ctx)
	defer changed(nil)
	if s.stream.Load() { // before it could be told
		return errModeChanged
	}
	group := 1
	if b, ok := s.sub.Sink.(BatchSink); ok {
		group = b.BatchSize()
	}
	below, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { s.lookBelow(below) })
	defer looking.Wait()
	defer cancel()
	err := work.Run(ctx, s, work.Options{
		Concurrency: s.sub.Concurrency,
		Batch:       s.sub.BatchSize,
		Group:       group,
		Lease:       s.lease,
		Deadline:    s.client.opts.Deadline,
		Grace:       s.client.opts.Grace,
		Wake:        s.wake,
		Logger:      s.log,
	})
	if errors.Is(context.Cause(ctx), errModeChanged) {
		return errors.Join(errModeChanged, err)
	}
	return err
}

// Limit stops claims while the sink is down.
func (s *source) Limit(n int) (int, time.Duration) {
	s.mu.Lock()
	if s.payloadSize > 0 {
		n = max(1, min(n, int(maxClaimBytes/s.payloadSize)))
	}
	s.mu.Unlock()
	return s.breaker.Limit(n)
}

// apartFrom is how many outcomes and claims an exchange must have for each to
// take a connection and a transaction of its own: the server then works on both
// at once, and two commits cost less than that gains.
const apartFrom = 100

// Exchange records outcomes and claims more, all in the time of one round trip
// and, unless both are many, in one transaction. An error means that no
// outcome was recorded, and they are given again; or, where there are none, that
// the claim failed. A claim that fails beside outcomes that were recorded is made
// again soon (retryClaim).
func (s *source) Exchange(ctx context.Context, done []work.Done[*item], n int) ([]*item, time.Duration, error) {
	if len(done) == 0 && n == 0 {
		return nil, 0, nil
	}
	settlements := settle(done)
	at := s.spanOfClaim(n)
	if n > 0 {
		s.turnElsewhere(ctx, &at)
	}
	var messages []*item
	var err, claimErr error
	started := time.Now()
	if n > 0 && (s.mayOutlast(at) || (len(done) >= apartFrom && n >= apartFrom)) {
		messages, claimErr, err = s.exchangeApart(ctx, settlements, at)
	} else {
		batch := &pgx.Batch{}
		s.queueSettlements(batch, settlements)
		if n > 0 {
			s.queueClaim(batch, at, &messages)
		}
		if err = s.client.workers.SendBatch(ctx, batch).Close(); err != nil {
			claimErr, messages = err, nil
		}
	}
	took := time.Since(started)
	if pg, ok := errors.AsType[*pgconn.PgError](claimErr); ok && pg.Code == "DDMOD" {
		s.becomeStream()
	} else if ok && pg.Code == "DDNFD" {
		s.client.lookRemoved(ctx, s)
		if s.removed.Load() && err != nil { // the claim has undone what was recorded beside it
			return s.Exchange(ctx, done, 0)
		}
	}
	messages = s.ours(ctx, messages)
	if n > 0 && claimErr == nil {
		s.claimed(messages, at, took)
	} else if n > 0 && at.sweep {
		s.swept(took)
	}
	isCut := n > 0 && outlasted(claimErr) && s.cutOff(ctx, at) == nil
	if claimErr != nil && !isCut && len(done) == 0 {
		err = claimErr
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(claimErr, context.DeadlineExceeded) {
		// Where one connection is silent the idle ones may be too.
		s.client.workers.Reset()
	}
	if err != nil {
		return messages, 0, sqlstate.WithHint(err)
	}
	switch {
	case n == 0:
		s.stats.finish.observe(took)
	case len(done) == 0:
		s.stats.claim.observe(took)
	default:
		s.stats.both.observe(took)
	}
	s.account(settlements, done)
	switch {
	case n == 0:
		return nil, 0, nil
	case claimErr != nil:
		return nil, retryClaim, nil
	case len(messages) > 0:
		return messages, 0, nil
	default:
		return nil, s.nextLook(ctx, at), nil
	}
}

// retryClaim is when a claim is made again that failed beside outcomes that
// were recorded. If it fails again, by itself, the loop hears of it.
const retryClaim = 50 * time.Millisecond

// exchangeApart records outcomes and claims at the same time. The claim has half
// the time, so that what follows from its being cut off has some, too.
func (s *source) exchangeApart(ctx context.Context, settlements []*settlement, at claimSpan) (messages []*item, claimErr, settleErr error) {
	outcomes, claim := &pgx.Batch{}, &pgx.Batch{}
	s.queueSettlements(outcomes, settlements)
	s.queueClaim(claim, at, &messages)
	var settling sync.WaitGroup
	if len(settlements) > 0 {
		settling.Go(func() { settleErr = s.client.workers.SendBatch(ctx, outcomes).Close() })
	}
	claimCtx, cancel := context.WithTimeout(ctx, s.client.opts.Deadline/2)
	defer cancel()
	if claimErr = s.client.workers.SendBatch(claimCtx, claim).Close(); claimErr != nil {
		s.log.Debug("claim failed; will try again", "error", claimErr)
		messages = nil
	}
	settling.Wait()
	return messages, claimErr, settleErr
}

func (s *source) queueClaim(batch *pgx.Batch, at claimSpan, messages *[]*item) {
	batch.Queue(query.Claim, s.sub.Topic, s.client.opts.Worker, at.limit, s.sub.Name, at.floor, s.lease.Seconds(), at.tenant).Query(func(rows pgx.Rows) error {
		var err error
		*messages, err = collectItems(rows, at.limit)
		return err
	})
}

func attrs(it *item) []any {
	return []any{
		"message_id", it.msg.ID, "seq", it.msg.Seq, "tenant", it.msg.Tenant,
		"correlation_id", it.msg.Headers[headerCorrelation],
	}
}

// floorLag is how much later than one with a later due time a message may
// commit and still be found by the next claim; then sweeps find it.
const floorLag = 100 * time.Millisecond

// sweepEvery lets sweeps take a twentieth of the time, those of more than a
// quarter of a second up to a third; s.mu is held. What the cheap claims miss,
// late commits and lost leases, waits for a sweep.
func (s *source) sweepEvery() time.Duration {
	return max(50*time.Millisecond, min(20*s.sweepCost, max(5*time.Second, 2*s.sweepCost)))
}

// watchFloor is the floor for the watcher's question; a deep one is from the
// beginning, unless that is not for a statement that others wait for.
func (s *source) watchFloor(deep bool) pgtype.Timestamptz {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.sweptAt.IsZero() && !s.stream.Load():
		return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true} // its first sweep will tell
	case s.floor.IsZero() || (deep && s.dive == nil):
		return beginning
	}
	return pgtype.Timestamptz{Time: s.floor, Valid: true}
}

func (s *source) swept(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweptAt, s.sweepCost = time.Now(), took
}

func (s *source) claimed(items []*item, at claimSpan, took time.Duration) {
	switch {
	case at.sweep:
		s.swept(took)
	case at.found:
		s.foundThere(items, at)
	}
	if len(items) == 0 {
		return
	}
	size := 0
	for _, it := range items {
		size += len(it.msg.Payload)
		if it.lost > 0 {
			s.stats.takenOver.Add(1)
			s.log.With(attrs(it)...).Warn("took over a claim that had run out", "lost_claims", it.lost)
		}
	}
	s.weigh(size, len(items))
	s.stats.claimed.Add(int64(len(items)))
	s.log.Debug("claimed", "messages", len(items), "claim", items[0].claim)
	floor := items[len(items)-1].ord.Add(-floorLag)
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.tenant != nil {
		return
	}
	if at.found || (at.sweep && len(items) < at.limit) {
		// All that was there: what comes now is later than what was there. Or it lay alone.
		floor = maxTime(s.floor, floor)
	}
	s.floor = floor
}

// weigh keeps the payloads' average size, by which claims and pages are limited.
func (s *source) weigh(size, count int) {
	if count == 0 {
		return
	}
	average := float64(size) / float64(count)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.payloadSize = max(average, (s.payloadSize+average)/2)
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// nextLook is when to claim again after a claim that found nothing: at the
// next due time or end of a lease, if the claim was a sweep; else soon, by a
// sweep. News is the watcher's business.
func (s *source) nextLook(ctx context.Context, at claimSpan) time.Duration {
	if !at.sweep {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.dive != nil {
			return time.Second
		}
		return max(time.Until(s.sweptAt.Add(s.sweepEvery())), time.Millisecond)
	}
	var seconds *float64
	if err := s.client.workers.QueryRow(ctx, query.NextDue, s.id.Load()).Scan(&seconds); err != nil {
		return time.Second // the next exchange will say what is wrong
	}
	if seconds == nil {
		return 0
	}
	return max(time.Duration(*seconds*float64(time.Second)), time.Millisecond) + time.Millisecond
}

// Extend renews the leases of held, claim by claim in one round trip; in order,
// since two renewals at once would wait for each other.
func (s *source) Extend(ctx context.Context, held []*item) ([]*item, error) {
	return s.extend(ctx, &pgx.Batch{}, held)
}

// extend adds to the batch what renews the claims, and sends it.
func (s *source) extend(ctx context.Context, batch *pgx.Batch, held []*item) ([]*item, error) {
	byClaim := map[int64][]int64{}
	for _, it := range held {
		byClaim[it.claim] = append(byClaim[it.claim], it.msg.Seq)
	}
	type fence struct{ claim, seq int64 }
	still := make(map[fence]bool, len(held))
	for _, claim := range slices.Sorted(maps.Keys(byClaim)) {
		batch.Queue(query.Extend, s.id.Load(), claim, byClaim[claim], s.lease.Seconds()).QueryRow(func(row pgx.Row) error {
			var kept []int64
			if err := row.Scan(&kept); err != nil {
				return err
			}
			for _, id := range kept {
				still[fence{claim, id}] = true
			}
			return nil
		})
	}
	if err := s.client.workers.SendBatch(ctx, batch).Close(); err != nil {
		return nil, sqlstate.WithHint(err)
	}
	var lost []*item
	for _, it := range held {
		if !still[fence{it.claim, it.msg.Seq}] {
			lost = append(lost, it)
		}
	}
	if len(lost) > 0 {
		s.stats.lostClaims.Add(int64(len(lost)))
		s.log.Warn("claims lost to another worker", "messages", len(lost))
	}
	return lost, nil
}

// Do hands items to the sink, unless the breaker is open.
func (s *source) Do(ctx context.Context, items []*item) []error {
	outcomes := make([]error, len(items))
	msgs := make([]Message, 0, len(items))
	at := make([]int, 0, len(items))
	for i, it := range items {
		if it.problem != nil {
			outcomes[i] = it.problem
			continue
		}
		msgs = append(msgs, it.msg)
		at = append(at, i)
	}
	if len(msgs) == 0 {
		return outcomes
	}
	for k, err := range s.deliver(ctx, msgs) {
		outcomes[at[k]] = err
	}
	return outcomes
}

// deliver hands messages to the sink, unless the breaker is open, and returns
// an outcome each, read; nil means that all were delivered. A panic is the
// caller's business.
func (s *source) deliver(ctx context.Context, msgs []Message) (results []error) {
	round, _, cause := s.breaker.Admit()
	if cause != nil {
		results = make([]error, len(msgs))
		for k := range results {
			results[k] = &described{cause, describe(cause)}
		}
		return results
	}
	if s.sub.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.sub.Timeout)
		defer cancel()
	}
	if len(msgs) == 1 {
		ctx = WithTrace(ctx, traceOf(msgs[0].Headers))
	}
	started := time.Now()
	s.stats.attempts.Add(int64(len(msgs)))
	s.stats.inFlight.Add(int64(len(msgs)))
	defer func() { // also after a panic
		s.stats.inFlight.Add(-int64(len(msgs)))
		s.stats.deliver.observe(time.Since(started))
		s.reportToBreaker(round, msgs, results)
	}()
	n := s.calls.begin(msgs)
	defer s.calls.end(n)
	given := s.sub.Sink.Deliver(ctx, msgs)
	if given != nil && len(given) != len(msgs) {
		err := fmt.Errorf("the sink returned %d outcomes for %d messages: all of them count as failed", len(given), len(msgs))
		given = make([]error, len(msgs))
		for k := range given {
			given[k] = err
		}
	}
	if given == nil {
		return nil
	}
	results = make([]error, len(msgs))
	for k := range given {
		if given[k] != nil {
			results[k] = &described{given[k], describe(given[k])}
		}
	}
	return results
}

// poke makes the loop look for messages; it never blocks.
func (s *source) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// collectItems reads what was claimed. A row that cannot be decoded becomes an
// item whose attempt fails: it is counted and ends dead like any other.
func collectItems(rows pgx.Rows, n int) ([]*item, error) {
	items := make([]*item, 0, min(n, 1000))
	for rows.Next() {
		it := &item{}
		var headers *string
		m := &it.msg
		err := rows.Scan(&it.sub, &m.Seq, &it.claim, &m.Attempt, &it.lost, (*[16]byte)(&m.Tenant), &m.Topic,
			&m.Key, &m.Type, &m.ContentType, &headers, &m.Payload, &m.CreatedAt, &it.ord)
		if err != nil {
			return nil, err
		}
		m.ID = NewID(m.CreatedAt, m.Seq)
		m.Attempt++
		if headers != nil {
			if err := json.Unmarshal([]byte(*headers), &m.Headers); err != nil {
				it.problem = fmt.Errorf("decode message: headers: %w", err)
			}
		}
		items = append(items, it)
	}
	return items, rows.Err()
}
