package inbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// source is one source as a work.Source: of the messages that its executor is to run.
// work.Run calls Limit and Exchange from one goroutine, Extend and Do from many.
type source struct {
	receiver   *Receiver
	name       string
	opts       SourceOptions
	mostBody   int64 // bounds a request
	log        *slog.Logger
	woken      chan struct{} // holds one
	reading    chan struct{} // a place for each request that is read and stored,
	waiting    chan struct{} // and for each that waits for outcomes
	storing    *work.Rooms   // for each statement that stores messages, by who wrote
	unverified sometimes
	gone       sometimes
	crowded    sometimes
}

// item is a message in this process's hands.
type item struct {
	message Message
	claim   int64
	result  Result
	settled bool // its outcome is recorded, or is another's to record
}

// wake makes the loop look for messages; it never blocks.
func (s *source) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// run runs the executor once begin is closed, until ctx ends.
func (s *source) run(ctx context.Context, begin <-chan struct{}) error {
	select {
	case <-begin:
	case <-ctx.Done():
		return nil
	}
	o := s.receiver.opts
	err := work.Run(ctx, s, work.Options{
		Concurrency: s.opts.Concurrency, Batch: max(100, s.opts.Concurrency), Lease: o.Lease, Deadline: o.Deadline, Grace: o.Grace, Wake: s.woken, Logger: s.log,
	})
	if err != nil {
		return fmt.Errorf("deed: messages of %s: %w", s.name, err)
	}
	return nil
}

// Limit lets the loop take as many as it has room for.
func (s *source) Limit(n int) (int, time.Duration) { return n, 0 }

// Exchange records what became of messages, and claims more.
func (s *source) Exchange(ctx context.Context, done []work.Done[*item], n int) (claimed []*item, next time.Duration, err error) {
	if err := s.settle(ctx, done); err != nil || n == 0 {
		return nil, 0, err
	}
	o := s.receiver.opts
	crash.Point("inbound claiming")
	rows, err := s.receiver.pool.Query(ctx, query.Claim, s.name, n, o.Lease.Seconds(), o.MaxAttempts, o.Worker, s.opts.Tenant.String())
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	var kept []*item // for a person
	for rows.Next() {
		it := &item{}
		m := &it.message
		var owner string
		var held bool
		if err := rows.Scan(&m.ID, &it.claim, &owner, &m.PlatformID, &m.Contact, &m.Kind, &m.Sender, &m.ReplyTo, &m.Text,
			(*[]byte)(&m.Body), &m.Attempt, &m.CorrelationID, &m.ReceivedAt, &held); err != nil {
			return nil, 0, err
		}
		if m.Tenant, err = tenant.Parse(owner); err != nil {
			return nil, 0, err
		}
		m.Source = s.name
		if held {
			kept = append(kept, it)
			continue
		}
		claimed = append(claimed, it)
	}
	// Rows come before the commit. Of a claim that may be undone nothing is run: another one may have it.
	if err := rows.Err(); err != nil {
		return nil, 0, err
	}
	for _, it := range kept {
		s.ended(it, outcome{DispatchFailed, true}, it.message.Attempt, s.receiver.waiting.listeners(it.message.ID))
	}
	return claimed, o.PollInterval/2 + rand.N(o.PollInterval), nil
}

// Extend renews the leases of held.
func (s *source) Extend(ctx context.Context, held []*item) (lost []*item, err error) {
	ids, claims := make([]string, len(held)), make([]int64, len(held))
	for i, it := range held {
		ids[i], claims[i] = it.message.ID, it.claim
	}
	var kept, passed []string
	lease := s.receiver.opts.Lease.Seconds()
	if err := s.receiver.pool.QueryRow(ctx, query.Extend, ids, claims, lease).Scan(&kept); err != nil {
		return nil, err
	}
	if err := s.receiver.pool.QueryRow(ctx, query.Unrenewed, ids, claims, lease).Scan(&passed); err != nil {
		return nil, err
	}
	var unrenewed []*item
	for _, it := range held {
		switch {
		case !slices.Contains(kept, it.message.ID):
			lost = append(lost, it)
		case slices.Contains(passed, it.message.ID):
			unrenewed = append(unrenewed, it)
		}
	}
	if len(unrenewed) > 0 {
		return lost, &work.Unrenewed[*item]{Items: unrenewed}
	}
	return lost, nil
}

// Do runs the executor of one message. A result that writes in the transaction of its
// outcome is recorded here: that may take long. The others are, many at once, by
// Exchange.
func (s *source) Do(ctx context.Context, items []*item) []error {
	it := items[0]
	m := it.message
	ctx, cancel := context.WithTimeout(deed.WithTrace(ctx, deed.Trace{CorrelationID: m.CorrelationID}), s.opts.Timeout)
	defer cancel()
	crash.Point("inbound executing")
	many, err := s.tooMany(ctx, m)
	switch {
	case err != nil:
		return []error{err}
	case many:
		it.result = Deny("too_many")
		return []error{nil}
	}
	if it.result, err = s.opts.Executor(ctx, m); err == nil {
		_, err = it.result.status()
	}
	if err == nil && it.result.InTx != nil && it.result.Denied == "" {
		err = s.settleAlone(ctx, it)
	}
	crash.Point("inbound executed")
	return []error{err}
}

// tooMany reports whether the sender has had as many messages executed in the last hour as
// there may be.
func (s *source) tooMany(ctx context.Context, m Message) (bool, error) {
	if s.opts.PerHour == 0 {
		return false, nil
	}
	bounded, cancel := context.WithTimeout(ctx, s.receiver.opts.Deadline)
	defer cancel()
	var many bool
	err := s.receiver.pool.QueryRow(bounded, query.TooMany, m.Contact, s.name, s.opts.PerHour).Scan(&many)
	return many, err
}

// recorded is an outcome as deed.finish_messages takes it.
type recorded struct {
	it     *item
	status Status
	err    error
}

// settle records the outcomes of messages, with all that belongs to them, in one
// transaction; or, where that is refused, each in one of its own, so that no message
// fails for another, nor waits for one that somebody has locked.
func (s *source) settle(ctx context.Context, done []work.Done[*item]) error {
	var list []recorded
	for _, d := range done {
		switch it := d.Item; {
		case it.settled:
		case d.Released:
			list = append(list, recorded{it, Accepted, nil})
		case d.Err != nil:
			list = append(list, recorded{it, DispatchFailed, d.Err})
		default:
			status, _ := it.result.status() // Do has looked
			list = append(list, recorded{it, status, nil})
		}
	}
	if len(list) == 0 {
		return nil
	}
	err := s.record(ctx, list)
	if err == nil || (passing(err) && (!sqlstate.Locked(err) || len(list) == 1)) || sqlstate.Again(err) {
		return err
	}
	var locked error // the loop brings those again
	for _, one := range list {
		err := s.record(ctx, []recorded{one})
		if err != nil && !passing(err) && !sqlstate.Again(err) {
			err = s.record(ctx, []recorded{{one.it, DispatchFailed, err}})
		}
		switch {
		case sqlstate.Locked(err):
			locked = err
		case err != nil:
			return err
		}
	}
	return locked
}

// settleAlone records the outcome of a message whose result has an InTx, which is asked
// again where somebody had the message or its sender locked.
func (s *source) settleAlone(ctx context.Context, it *item) (err error) {
	for n := 1; n <= 5; n++ {
		if err = s.record(ctx, []recorded{{it, Executed, nil}}); !sqlstate.Locked(err) || !work.Sleep(ctx, work.Backoff(n, 100*time.Millisecond, time.Second)) {
			break
		}
	}
	return err
}

// errLost undoes what was written for a message that others have taken, errErased what was
// for one whose sender was erased while it was run.
var (
	errLost   = errors.New("the message was taken over")
	errErased = errors.New("the sender was erased")
)

// record records outcomes in one transaction, together with the replies, the published
// messages and what else the results of those write that were still this process's. What
// was lost meanwhile does nothing. One whose result has an InTx is recorded alone.
func (s *source) record(ctx context.Context, list []recorded) error {
	r := s.receiver
	ended := map[*item]outcome{}
	attempts := map[*item]int{}
	who := map[*item][]chan outcome{}
	for _, o := range list {
		who[o.it] = r.waiting.listeners(o.it.message.ID)
	}
	crash.Point("inbound settling")
	// What was stored while this waited must be seen, or it would never have its turn.
	err := pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		// First what may take long: who writes to us next waits for the rows that are
		// recorded.
		alone := false
		for _, o := range list {
			if o.status == Executed && o.it.result.InTx != nil {
				alone = true
				if err := o.it.result.InTx(ctx, tx); err != nil {
					return err
				}
			}
		}
		mine, err := s.finish(ctx, tx, list, ended, attempts)
		if err != nil {
			return err
		}
		switch {
		case alone && len(ended) > 0 && len(mine) == 0:
			return errErased
		case alone && len(mine) == 0:
			return errLost
		}
		return s.write(ctx, tx, mine)
	})
	if errors.Is(err, errErased) { // its end is recorded without what its result would write
		return s.record(ctx, []recorded{{list[0].it, Denied + "erased", nil}})
	}
	if err != nil && !errors.Is(err, errLost) {
		return err
	}
	crash.Point("inbound settled")
	for _, o := range list {
		o.it.settled = true
		end, ok := ended[o.it]
		switch {
		case !ok:
			r.counts.add(s.name, "late", 1)
			s.about(o.it).Warn("the message was taken over while it was run; nothing is recorded")
		case end.status != Accepted:
			s.ended(o.it, end, attempts[o.it], who[o.it])
		}
	}
	return nil
}

// finish records the outcomes and returns those that were still this process's.
func (s *source) finish(ctx context.Context, tx pgx.Tx, list []recorded, ended map[*item]outcome, attempts map[*item]int) (mine []*item, err error) {
	n := len(list)
	ids, claims, statuses, errs, pauses := make([]string, n), make([]int64, n), make([]string, n), make([]*string, n), make([]*float64, n)
	byID := make(map[string]*item, n)
	for i, o := range list {
		ids[i], claims[i], statuses[i] = o.it.message.ID, o.it.claim, string(o.status)
		byID[ids[i]] = o.it
		if o.err != nil {
			text := errortext.Stored(o.err.Error(), 1000, "")
			errs[i] = &text
		}
		if s.opts.At == AfterAccepted { // nobody else repeats it
			pause := work.Backoff(o.it.message.Attempt, time.Second, 10*time.Minute).Seconds()
			pauses[i] = &pause
		}
	}
	o := s.receiver.opts
	rows, err := tx.Query(ctx, query.Finish, ids, claims, statuses, errs, pauses, o.MaxAttempts, o.Worker)
	if err != nil {
		return nil, err
	}
	var id string
	var end outcome
	var times int
	_, err = pgx.ForEachRow(rows, []any{&id, &end.status, &times, &end.held}, func() error {
		it := byID[id]
		ended[it], attempts[it] = end, times
		if end.status == Executed {
			mine = append(mine, it)
		}
		return nil
	})
	return mine, err
}

// write does what the results of executed messages want done in their transaction.
func (s *source) write(ctx context.Context, tx pgx.Tx, mine []*item) error {
	var drafts []delivery.Delivery
	var published []deed.Message
	for _, it := range mine {
		list, err := it.message.drafts(it.result, s.opts.Reply)
		if err != nil {
			return err
		}
		drafts = append(drafts, list...)
		published = append(published, it.message.published(it.result)...)
	}
	if _, err := delivery.ReserveFor(ctx, tx, s.opts.Tenant, drafts...); err != nil {
		return err
	}
	if len(published) > 0 {
		if _, err := deed.Publish(ctx, tx, published...); err != nil {
			return err
		}
	}
	return nil
}

// ended tells whoever waits, and the log: one line an outcome, without contents.
func (s *source) ended(it *item, o outcome, attempts int, who []chan outcome) {
	r := s.receiver
	tell(who, o)
	log := s.about(it).With("status", o.status, "attempts", attempts)
	switch {
	case o.held:
		r.counts.add(s.name, "held", 1)
		log.Error("message is held for a person: see deed inbound show")
	case o.status == DispatchFailed:
		r.counts.add(s.name, string(DispatchFailed), 1)
		log.Error("message failed; it is run again when it is repeated or its pause is over: see deed inbound show")
	case o.status == Executed:
		r.counts.add(s.name, string(Executed), 1)
		log.Info("message executed", "replies", len(it.result.Replies))
	default:
		r.counts.add(s.name, "denied", 1)
		log.Info("message denied")
	}
}

// about returns a log whose lines have a message's ids.
func (s *source) about(it *item) *slog.Logger {
	return s.log.With("channel_message_id", it.message.ID, "correlation_id", it.message.CorrelationID, "tenant", it.message.Tenant)
}
