package deed

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

// attendAtLeast is the pause after a look that found nothing to do: what is due
// may be in another process's lanes.
const attendAtLeast = 500 * time.Millisecond

// chain is messages that a stream has put aside and that are delivered one after
// the other: one, and those of its key that stand behind it.
type chain struct {
	items     []*item // in order; at least one
	hash      *int64  // of the key; nil: the stream keeps no order, or the message has no key
	delivered int     // the first so many
	cut       bool    // no more was begun: the claim was lost, or the worker stops
}

// attention is the work.Source of what a stream has put aside, in the lanes that
// this process holds. Such a message has a row in deed.pending, as a queue's has:
// it is claimed there, attempted, finished or failed. What is different: of a key
// one message is free and the others are parked behind it (deed.release_keys), so
// outcomes let others go, and are recorded under the stream's parking.
type attention struct{ *stream }

// attendAside delivers what is put aside until ctx ends.
func (st *stream) attendAside(ctx context.Context) error {
	group := 1
	if b, ok := st.sub.Sink.(BatchSink); ok {
		group = b.BatchSize()
	}
	return work.Run(ctx, attention{st}, work.Options{
		Concurrency: st.sub.Concurrency,
		Batch:       st.sub.BatchSize,
		Group:       group,
		Lease:       st.lease,
		Deadline:    st.client.opts.Deadline,
		Grace:       st.client.opts.Grace,
		Wake:        st.wake,
		Logger:      st.log,
	})
}

// Exchange records outcomes, lets what stood behind them go, and claims more,
// in one transaction.
func (a attention) Exchange(ctx context.Context, done []work.Done[*chain], n int) ([]*chain, time.Duration, error) {
	if len(done) == 0 && n == 0 {
		return nil, 0, nil
	}
	flat, hashes := flatten(done)
	settlements := settle(flat)
	batch := a.lockKeys(hashes)
	a.queueSettlements(batch, settlements)
	var drained []int64
	if len(hashes) > 0 {
		batch.Queue(query.ReleaseKeys, a.id.Load(), hashes).QueryRow(func(row pgx.Row) error { return row.Scan(&drained) })
	}
	var chains []*chain
	if n > 0 {
		from, upto := a.laneSlots()
		batch.Queue(query.Attend, a.id.Load(), a.client.opts.Worker, n, from, upto, a.lease.Seconds()).Query(func(rows pgx.Rows) (err error) {
			chains, err = collectChains(rows)
			return err
		})
	}
	err := a.exchange(ctx, batch, len(hashes) > 0, &drained)
	if err != nil {
		return nil, 0, sqlstate.WithHint(err)
	}
	a.account(settlements, flat)
	for _, r := range chains {
		a.stats.claimed.Add(int64(len(r.items)))
		for _, it := range r.items {
			if it.lost > 0 {
				a.stats.takenOver.Add(1)
				a.log.With(attrs(it)...).Warn("took over a claim that had run out", "lost_claims", it.lost)
			}
		}
	}
	if n > 0 && len(chains) == 0 {
		return nil, a.nextDue(ctx), nil
	}
	return chains, 0, nil
}

// lockKeys begins a batch with what keeps it from a deadlock with who has taken
// a lane over.
func (a attention) lockKeys(hashes []int64) *pgx.Batch {
	batch := &pgx.Batch{}
	if len(hashes) > 0 {
		batch.Queue(query.LockKeys, a.id.Load(), hashes)
	}
	return batch
}

// exchange sends the batch. Outcomes of keys are recorded while no lane decides
// to put a message behind others of its key; then the keys that have none left
// are let go.
func (a attention) exchange(ctx context.Context, batch *pgx.Batch, keys bool, drained *[]int64) error {
	if keys {
		a.waiting.Store(true)
		a.parking.Lock()
		a.waiting.Store(false)
		defer a.parking.Unlock()
		// A lane may have delivered some of a long page meanwhile.
		fresh, cancel := a.client.deadline(context.WithoutCancel(ctx))
		defer cancel()
		ctx = fresh
	}
	if err := a.client.workers.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	a.unblock(*drained)
	return nil
}

func (a attention) nextDue(ctx context.Context) time.Duration {
	var seconds *float64
	if err := a.client.workers.QueryRow(ctx, query.NextDue, a.id.Load()).Scan(&seconds); err != nil {
		return attendAtLeast // the next exchange will say what is wrong
	}
	if seconds == nil {
		return 0
	}
	return max(time.Duration(*seconds*float64(time.Second))+time.Millisecond, attendAtLeast)
}

// flatten is what became of each message, and the keys that are concerned: those
// before the chain's end were delivered, the one at its end failed if there is an
// error, and those behind it go back as if they had never been claimed.
func flatten(done []work.Done[*chain]) (list []work.Done[*item], hashes []int64) {
	for _, d := range done {
		r := d.Item
		if r.hash != nil {
			hashes = append(hashes, *r.hash)
		}
		for i, it := range r.items {
			switch {
			case i < r.delivered:
				list = append(list, work.Done[*item]{Item: it})
			case i == r.delivered && d.Err != nil && !d.Released && !r.cut:
				list = append(list, work.Done[*item]{Item: it, Err: d.Err})
			default:
				list = append(list, work.Done[*item]{Item: it, Released: true})
			}
		}
	}
	return list, hashes
}

// Extend renews the claims of all messages of the chains.
func (a attention) Extend(ctx context.Context, held []*chain) ([]*chain, error) {
	var items []*item
	var hashes []int64
	of := map[*item]*chain{}
	for _, r := range held {
		if r.hash != nil {
			hashes = append(hashes, *r.hash)
		}
		for _, it := range r.items {
			items = append(items, it)
			of[it] = r
		}
	}
	gone, err := a.extend(ctx, a.lockKeys(hashes), items)
	if err != nil {
		return nil, err
	}
	var lost []*chain
	seen := map[*chain]bool{}
	for _, it := range gone {
		if r := of[it]; !seen[r] {
			seen[r] = true
			lost = append(lost, r)
		}
	}
	return lost, nil
}

// Do delivers the first message of each run, then the second of those that got
// on, and so forth: each only while the run's claim is still this worker's.
func (a attention) Do(ctx context.Context, chains []*chain) []error {
	outcomes := make([]error, len(chains))
	for {
		held := work.Held(ctx, chains)
		var msgs []Message
		var at []int
		for i, r := range chains {
			if outcomes[i] != nil || r.delivered == len(r.items) {
				continue
			}
			if !held[i] {
				r.cut, outcomes[i] = true, cmp.Or(context.Cause(ctx), work.ErrLeaseLost)
			} else if it := r.items[r.delivered]; it.problem != nil {
				outcomes[i] = it.problem
			} else {
				msgs, at = append(msgs, it.msg), append(at, i)
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

// collectChains reads the rows of deed.attend: those of one head follow each other.
func collectChains(rows pgx.Rows) ([]*chain, error) {
	var chains []*chain
	var head int64
	for rows.Next() {
		it := &item{}
		var of int64
		var hash *int64
		var headers *string
		m := &it.msg
		err := rows.Scan(&of, &hash, &m.Seq, &it.claim, &m.Attempt, &it.lost, (*[16]byte)(&m.Tenant), &m.Topic,
			&m.Key, &m.Type, &m.ContentType, &headers, &m.Payload, &m.CreatedAt)
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
		if len(chains) == 0 || of != head {
			chains = append(chains, &chain{hash: hash})
			head = of
		}
		last := chains[len(chains)-1]
		last.items = append(last.items, it)
	}
	return chains, rows.Err()
}
