package stream

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

// attendAtLeast is the pause after a look that found nothing to do: what is due
// may be in another process's lanes.
const attendAtLeast = 500 * time.Millisecond

// mostBehind is how many messages are claimed at the most with the first of a chain.
const mostBehind = 100

// chain is messages that a stream has put aside and that are delivered one after
// the other: one, and those of its key that stand behind it. They were claimed
// together, and live or die together: a chain is the item of the loop.
//
// While it is attempted it is Do's; before and afterwards the loop's.
type chain struct {
	items     []*claim.Item // in order; at least one
	hash      *int64        // of the key; nil: the stream keeps no order, or the message has no key
	delivered int           // the first so many
	cut       bool          // no more was begun: the claim was lost, or the worker stops
}

// attention is the work.Source of what a stream has put aside, in the lanes that
// this process holds. Such a message has a row in deed.pending, as a queue's has:
// it is claimed there, attempted, finished or failed. What is different: of a key
// one message is free and the others are parked behind it (deed.release_keys), so
// outcomes let others go, and in the end the key.
type attention struct {
	*stream
	lanes  *lanes
	probed time.Time // when it was last let claim while the destination was down; the loop's
}

// givesWay is how long it leaves probes of the destination to the lanes: what they
// have may be another tenant's and succeed, where what is aside has failed. Then it
// has one itself: a message at which a lane stands for ever keeps the lane, and is not
// to keep what is aside, which may show that the destination works.
const givesWay = time.Second

// run delivers what is put aside until ctx ends.
func (a *attention) run(ctx context.Context) error { return work.Run(ctx, a, a.Loop()) }

// Limit leaves the next probe of a destination that is down to a lane, if one waits
// for it.
func (a *attention) Limit(n int) (int, time.Duration) {
	if !a.probing() {
		return a.stream.Limit(n)
	}
	if a.probes.Load() > 0 && time.Since(a.probed) < givesWay {
		return 0, 10 * time.Millisecond
	}
	n, wait := a.stream.Limit(n)
	if n > 0 {
		a.probed = time.Now()
	}
	return n, wait
}

// attended is what one exchange with the database has come to. It is filled as the
// answers come, and to be believed once the transaction has committed.
type attended struct {
	chains []*chain // were claimed
	freed  []int64  // hashes of keys of which nothing is aside any more
}

// Exchange records outcomes, lets what stood behind them go, and claims more,
// in one transaction.
func (a *attention) Exchange(ctx context.Context, done []work.Done[*chain], n int) ([]*chain, time.Duration, error) {
	if len(done) == 0 && n == 0 {
		return nil, 0, nil
	}
	flat, hashes := flatten(done)
	settlements := claim.Settle(flat)
	batch := a.lockKeys(hashes)
	a.Record(batch, settlements)
	got := &attended{}
	if len(hashes) > 0 {
		batch.Queue(query.ReleaseKeys, a.ID, hashes).QueryRow(func(row pgx.Row) error { return row.Scan(&got.freed) })
	}
	if n > 0 {
		a.queueClaim(batch, n, got)
	}
	if err := a.send(ctx, batch, hashes, got); err != nil {
		return nil, 0, sqlstate.WithHint(err)
	}
	a.Account(ctx, settlements, flat)
	size, count := 0, 0
	for _, c := range got.chains {
		a.AccountClaim(c.items)
		for _, it := range c.items {
			size += len(it.Payload)
		}
		count += len(c.items)
	}
	a.Weigh(size, count)
	if n > 0 && len(got.chains) == 0 {
		return nil, a.nextLook(ctx), nil
	}
	return got.chains, 0, nil
}

// lockKeys begins a batch with what keeps it from a deadlock with who has taken
// a lane over: of each key the free row is locked before any other.
func (a *attention) lockKeys(hashes []int64) *pgx.Batch {
	batch := &pgx.Batch{}
	if len(hashes) > 0 {
		batch.Queue(query.LockKeys, a.ID, hashes)
	}
	return batch
}

// room is how many of n chains should be claimed at once, and how many messages with
// the first of each: none while it is not known how large they are.
func (a *attention) room(n int) (heads, run int) {
	fit := a.Fit((1 + mostBehind) * n)
	if heads = min(n, fit); a.Weighed() {
		run = fit/heads - 1
	}
	return heads, run
}

func (a *attention) queueClaim(batch *pgx.Batch, n int, got *attended) {
	from, upto := a.lanes.slots()
	heads, run := a.room(n)
	batch.Queue(query.Attend, a.ID, a.Worker, heads, from, upto, a.Lease.Seconds(), run).Query(func(rows pgx.Rows) (err error) {
		got.chains, err = collectChains(rows)
		return err
	})
}

// send sends the batch, and lets the keys go of which the outcomes have left nothing
// aside. No page is waited for, whatever it has put behind them: see [blockedKeys].
func (a *attention) send(ctx context.Context, batch *pgx.Batch, hashes []int64, got *attended) error {
	a.lanes.settle(hashes)
	if err := a.DB.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	a.lanes.unblock(got.freed)
	return nil
}

// nextLook is when to look again after a look that found nothing; 0: when the loop is
// woken.
func (a *attention) nextLook(ctx context.Context) time.Duration {
	in, ok, err := a.NextDue(ctx)
	switch {
	case err != nil:
		return attendAtLeast // the next exchange will say what is wrong
	case !ok:
		return 0
	}
	return max(in+time.Millisecond, attendAtLeast)
}

// flatten is what became of each message, and the keys that are concerned, which may
// have nothing aside afterwards and are looked at by deed.release_keys: those
// before the chain's end were delivered, the one at its end failed if there is an
// error, and those behind it go back as if they had never been claimed.
func flatten(done []work.Done[*chain]) (list []work.Done[*claim.Item], hashes []int64) {
	for _, d := range done {
		c := d.Item
		if c.hash != nil {
			hashes = append(hashes, *c.hash)
		}
		for i, it := range c.items {
			switch {
			case i < c.delivered:
				list = append(list, work.Done[*claim.Item]{Item: it})
			case i == c.delivered && d.Err != nil && !d.Released && !c.cut:
				list = append(list, work.Done[*claim.Item]{Item: it, Err: d.Err})
			default:
				list = append(list, work.Done[*claim.Item]{Item: it, Released: true})
			}
		}
	}
	return list, hashes
}

// Extend renews the claims of all messages of the chains. A chain is lost with the
// first of its messages that is: they were claimed as one.
func (a *attention) Extend(ctx context.Context, held []*chain) ([]*chain, error) {
	var items []*claim.Item
	of := map[*claim.Item]*chain{}
	for _, c := range held {
		for _, it := range c.items {
			items = append(items, it)
			of[it] = c
		}
	}
	gone, err := a.stream.Extend(ctx, items)
	passed, ok := errors.AsType[*work.Unrenewed[*claim.Item]](err)
	if err != nil && !ok {
		return nil, err
	}
	chains := func(items []*claim.Item) (list []*chain) {
		for _, it := range items {
			if c := of[it]; !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
		return list
	}
	if ok {
		return chains(gone), &work.Unrenewed[*chain]{Items: chains(passed.Items)}
	}
	return chains(gone), nil
}

// Lost counts the messages of chains that are lost.
func (a *attention) Lost(chains []*chain) {
	var items []*claim.Item
	for _, c := range chains {
		items = append(items, c.items...)
	}
	a.stream.Lost(items)
}

// Do delivers the first message of each chain, then the second of those that got
// on, and so forth: each only while the chain's claim is still this worker's, and
// none after a stop. The outcome of a chain is that of the message at which it stopped.
func (a *attention) Do(ctx context.Context, chains []*chain) []error {
	outcomes := make([]error, len(chains))
	for {
		held := work.Held(ctx, chains)
		var msgs []*claim.Message // the next one of each chain that goes on
		var at []int              // of msgs, in chains
		for i, c := range chains {
			if outcomes[i] != nil || c.delivered == len(c.items) {
				continue
			}
			if !held[i] {
				c.cut, outcomes[i] = true, cmp.Or(context.Cause(ctx), work.ErrLeaseLost)
			} else if it := c.items[c.delivered]; it.Problem != nil {
				outcomes[i] = it.Problem
			} else {
				msgs, at = append(msgs, &it.Message), append(at, i)
			}
		}
		if len(msgs) == 0 {
			return outcomes
		}
		results := a.deliver(ctx, msgs)
		for k, i := range at {
			if results == nil || results[k] == nil {
				chains[i].delivered++
			} else {
				outcomes[i] = results[k]
			}
		}
	}
}

// collectChains reads the rows of deed.attend: those of one head, the message at the
// beginning of a chain, follow each other, in the order in which they are delivered.
func collectChains(rows pgx.Rows) ([]*chain, error) {
	var chains []*chain
	var head int64
	for rows.Next() {
		it := &claim.Item{}
		var of int64
		var hash *int64
		if err := it.Scan(rows, &of, &hash); err != nil {
			return nil, err
		}
		if len(chains) == 0 || of != head {
			chains = append(chains, &chain{hash: hash})
			head = of
		}
		last := chains[len(chains)-1]
		last.items = append(last.items, it)
	}
	return chains, rows.Err()
}
