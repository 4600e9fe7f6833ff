package claim

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/deedhq/deed/tenant"
)

// span is where a claim looks: from floor on.
type span struct {
	floor pgtype.Timestamptz
	limit int
	sweep bool // from the beginning
	found bool // where a dive has found something

	tenant *tenant.ID // only its messages; nil: all tenants'
}

var beginning = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}

// floorLag is how much later than one with a later due time a message may
// commit and still be found by the next claim; then sweeps find it.
const floorLag = 100 * time.Millisecond

// nextSpan says where the next claim of up to n looks. Claims normally start a
// little before the last one's end, so that they do not step over the index
// entries of what is finished, which an old snapshot may keep alive. A sweep
// starts from the beginning and finds what became claimable below: very late
// commits, leases that ran out, messages given back.
func (q *Queue) nextSpan(n int) span {
	q.mu.Lock()
	defer q.mu.Unlock()
	floor := pgtype.Timestamptz{Time: q.floor, Valid: true}
	switch {
	case q.dive != nil && q.dive.found:
		return span{floor: q.dive.from, limit: min(n, q.dive.limit), found: true}
	case q.dive != nil:
		return span{floor: floor, limit: n}
	case q.floor.IsZero() || time.Since(q.sweptAt) >= q.sweepEvery():
		return span{floor: beginning, limit: n, sweep: true}
	}
	return span{floor: floor, limit: n}
}

// turnElsewhere makes a claim while the destination is probed one of a tenant
// whose messages have not just failed, if there is one: theirs may be what the
// destination fails with, and would be probed one after the other. When it has
// answered, what else waits of the tenant that it answered goes before them, too:
// they would end the next moment in which it is taken for up.
func (q *Queue) turnElsewhere(ctx context.Context, at *span) {
	if at.found || q.mayOutlast(*at) {
		return
	}
	if favoured := q.Destination.Favoured(); favoured != nil {
		*at = span{floor: beginning, limit: at.limit, tenant: favoured}
		return
	}
	failing := q.Destination.PassOver()
	if len(failing) == 0 {
		return
	}
	// It stands before outcomes that wait to be recorded.
	ctx, cancel := context.WithTimeout(ctx, q.Deadline/4)
	defer cancel()
	var other *tenant.ID
	err := q.DB.QueryRow(ctx, query.OtherTenant, q.ID, failing).Scan(&other)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		q.Destination.Forgive()
	case err == nil:
		*at = span{floor: beginning, limit: at.limit, tenant: other}
	} // else the claim will say what is wrong
}

// claimed is what a claim that succeeded says about the next one's floor.
func (q *Queue) claimed(items []*Item, at span, took time.Duration) {
	switch {
	case at.sweep:
		q.swept(took)
	case at.found:
		q.foundThere(items, at)
	}
	if len(items) == 0 {
		return
	}
	size := 0
	for _, it := range items {
		size += len(it.Payload)
	}
	q.Weigh(size, len(items))
	q.AccountClaim(items)
	q.Log.Debug("claimed", "messages", len(items), "claim", items[0].Claim)
	if at.tenant != nil {
		return // of one tenant: other tenants' messages lie before them
	}
	floor := items[len(items)-1].Ord.Add(-floorLag)
	q.mu.Lock()
	defer q.mu.Unlock()
	if at.found || (at.sweep && len(items) < at.limit) {
		// All that was there: what comes now is later than what was there. Or it lay alone.
		floor = later(q.floor, floor)
	}
	q.floor = floor
}

// swept is what follows from a sweep, also from one that failed: the next one waits
// the longer the longer it took.
func (q *Queue) swept(took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sweptAt, q.sweepCost = time.Now(), took
}

// sweepEvery lets sweeps take a twentieth of the time, those of more than a
// quarter of a second up to a third; q.mu is held. What the cheap claims miss,
// late commits and lost leases, waits for a sweep.
func (q *Queue) sweepEvery() time.Duration {
	return max(50*time.Millisecond, min(20*q.sweepCost, max(5*time.Second, 2*q.sweepCost)))
}

// Floor is where the watcher looks whether there is something to claim; a deep look
// is from the beginning, unless that is not for a statement that others wait for.
func (q *Queue) Floor(deep bool) pgtype.Timestamptz {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.sweptAt.IsZero() && !q.IsStream():
		return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true} // its first sweep will tell
	case q.floor.IsZero() || (deep && q.dive == nil):
		return beginning
	}
	return pgtype.Timestamptz{Time: q.floor, Valid: true}
}

// nextLook is when to claim again after a claim that found nothing: at the
// next due time or end of a lease, if the claim was a sweep; else soon, by a
// sweep. News is the watcher's business.
func (q *Queue) nextLook(ctx context.Context, at span) time.Duration {
	if !at.sweep {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.dive != nil {
			return time.Second
		}
		return max(time.Until(q.sweptAt.Add(q.sweepEvery())), time.Millisecond)
	}
	in, ok, err := q.NextDue(ctx)
	switch {
	case err != nil:
		return time.Second // the next exchange will say what is wrong
	case !ok:
		return 0
	}
	return max(in, time.Millisecond) + time.Millisecond
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
