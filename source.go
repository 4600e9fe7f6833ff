package deed

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/stream"
)

// source is one of the client's subscriptions. It is made by New, registered by
// Run, and from then on drained as what its topic is: by the queue or by the reader,
// which share all that it embeds.
type source struct {
	*claim.Subscription
	opts   Subscription
	dest   *destination
	queue  *claim.Queue
	reader *stream.Reader
	// The id, for [Client.Drained], which may be asked at any time: -1 until the
	// registration has committed. What works on the subscription takes ID.
	id atomic.Int64
}

// newSource makes the source of a subscription of a client with those options. It
// does nothing before it is registered, but can be counted and asked.
func newSource(client Options, opts Subscription, feed *stream.Feed) *source {
	group := 0 // a sink that takes one message a call has as many calls as Concurrency allows
	if b, ok := opts.Sink.(BatchSink); ok {
		group = b.BatchSize()
	}
	dest := &destination{sink: opts.Sink, timeout: opts.Timeout, breaker: newBreaker()}
	sub := claim.New(claim.Options{
		Topic: opts.Topic, Name: opts.Name, Worker: client.Worker,
		Concurrency: opts.Concurrency, Batch: opts.BatchSize, Group: group,
		Deadline: client.Deadline, Grace: client.Grace,
		Destination: dest, LogAttributes: logAttributes,
		Log: client.Logger.With("topic", opts.Topic, "subscription", opts.Name),
	})
	dest.sub = sub
	queue := claim.NewQueue(sub)
	s := &source{Subscription: sub, opts: opts, dest: dest, queue: queue, reader: stream.NewReader(queue, feed, opts.page)}
	s.id.Store(-1)
	return s
}

// subscriptionsOf are what the sources embed, for those who need nothing else of
// them.
func subscriptionsOf(sources []*source) []*claim.Subscription {
	subs := make([]*claim.Subscription, len(sources))
	for i, s := range sources {
		subs[i] = s.Subscription
	}
	return subs
}

// register declares the subscription if it is absent. A difference between
// what is stored and what this program asks for is returned apart: two
// programs with different settings would fight. It may be called again after a
// transaction that did not commit; what it sets counts once one has.
func (s *source) register(ctx context.Context, tx pgx.Tx) (different, err error) {
	if s.Topic == "" { // the catch-all of undeclared topics is there from the beginning
		s.Lease, s.ID = 30*time.Second, 0
		return nil, nil
	}
	o := s.opts
	var attempts int
	var made bool
	var leased, backs float64
	var start, mode string
	err = tx.QueryRow(ctx, query.Subscribe, o.Topic, o.Name,
		sqlvalue.NullIfZero(string(o.From)), sqlvalue.NullIfZero(o.MaxAttempts), sqlvalue.NullIfZero(o.Lease.Seconds()), sqlvalue.NullIfZero(o.Backoff.Seconds())).
		Scan(&s.ID, &made, &attempts, &leased, &start, &mode, &backs)
	if err != nil {
		return nil, WrapError("subscribe "+s.Label(), err)
	}
	// What is stored counts, also where this program asks for nothing.
	s.Lease = sqlvalue.Seconds(leased)
	s.SetStream(mode == "stream")
	// Compared is what this program sets; all that differs is told at once, with what
	// an operator can do.
	var differences []error
	differs := func(what string, stored, here any, flag string) {
		differences = append(differences, fmt.Errorf("%s is %v in the database and %v here; change it with: deed topic set %s --subscription %s %s %v",
			what, stored, here, o.Topic, o.Name, flag, here))
	}
	if o.MaxAttempts != 0 && o.MaxAttempts != attempts {
		differs("max_attempts", attempts, o.MaxAttempts, "--max-attempts")
	}
	if o.Lease != 0 && o.Lease != s.Lease {
		differs("lease", s.Lease, o.Lease, "--lease")
	}
	if stored := sqlvalue.Seconds(backs); o.Backoff != 0 && o.Backoff != stored {
		differs("backoff", stored, o.Backoff, "--backoff")
	}
	if differences != nil {
		return &Error{Op: "subscribe " + s.Label(), Code: Conflict, Err: errors.Join(differences...)}, nil
	}
	if !made { // as on every start but the first
		return nil, nil
	}
	s.Log.Info("subscription made", "from", start, "max_attempts", attempts, "lease", s.Lease)
	return nil, s.tellAnew(ctx, tx, start)
}

// tellAnew says of a subscription that was just made that there was one of its
// name: somebody has removed it, and this program may not have been meant to go on.
func (s *source) tellAnew(ctx context.Context, tx pgx.Tx, start string) error {
	var removed *time.Time
	if err := tx.QueryRow(ctx, query.RemovedAt, s.Topic, s.Name).Scan(&removed); err != nil {
		return WrapError("subscribe "+s.Label(), err)
	}
	if removed != nil {
		s.Log.Warn("one of this name was removed: this is a new subscription, and begins anew", "removed_at", *removed, "from", start)
	}
	return nil
}

// run drains the subscription until ctx ends, as what its topic is now. When that
// changes, the work ends as at a stop: what is under way is finished and recorded
// before it goes on the other way.
func (s *source) run(ctx context.Context) error {
	for {
		var err error
		if s.IsStream() {
			err = s.reader.Run(ctx)
		} else {
			err = s.queue.Run(ctx)
		}
		if !errors.Is(err, claim.ErrModeChanged) { // else there is no other error to tell
			return s.outlast(ctx, err)
		}
		s.Log.Info("the topic's mode has changed", "stream", s.IsStream())
	}
}

// outlast returns err, now or, if the subscription was removed, when ctx ends: a process
// with nothing else to do that ended would be started again, and make it anew.
func (s *source) outlast(ctx context.Context, err error) error {
	if s.IsRemoved() {
		<-ctx.Done()
	}
	return err
}
