package claim

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/deedhq/deed/internal/work"
)

// dive is what a queue does instead of sweeps once a claim has outlasted its
// deadline: there is more of what is finished to step over than a statement has
// time for. Claims go on from the floor; what is below is looked for by a
// statement that only reads and may take longer, and is claimed where it was found.
//
// Two are at it in turns. lookBelow looks while found is false, and sets it; the
// next claim is then made at from, and unsets it.
type dive struct {
	from  pgtype.Timestamptz // where the next look begins
	found bool               // something to claim is at from
	limit int                // how many are claimed there: as many as were, and more each time
}

const (
	diveFirst = 4 // times the deadline: for a look, which doubles whenever that was too short
	diveMost  = 10 * time.Minute
	diveAgain = 5 * time.Second // at least, from one pass over all to the next
	diveLimit = 1000            // bounds what is claimed at once
)

// mayOutlast reports whether the claim may take longer than its deadline, so that it is
// made apart from outcomes.
func (q *Queue) mayOutlast(at span) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return at.found || q.dive != nil || (at.sweep && (q.sweptAt.IsZero() || q.sweepCost > q.Deadline/4))
}

// outlasted reports whether err is that of a statement that was cut off.
func outlasted(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, context.DeadlineExceeded) || (ok && pg.Code == "57014")
}

// cutOff is what follows from a claim that has outlasted its deadline: a dive.
// Its error is that of the database, which then does not answer at all.
//
// The floor rises to a minute ago, by the database's clock: what has come since is
// claimed by cheap claims at once, and all that is older is the dive's.
func (q *Queue) cutOff(ctx context.Context, at span) error {
	var recent time.Time
	if err := q.DB.QueryRow(ctx, query.AMinuteAgo).Scan(&recent); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.dive == nil:
		q.Log.Warn("claims step over more finished messages than they have time for; what is new comes first",
			"hint", "an old transaction, a replication slot or a standby keeps them: see deed doctor")
		q.dive = &dive{from: beginning, limit: 1}
	case at.found:
		q.dive.found, q.dive.limit = false, 1
	}
	if !at.found {
		q.floor = later(q.floor, recent)
	}
	q.wakeDive()
	return nil
}

// foundThere is what follows from a claim where a dive had found something: the next
// look begins where the claim ended. What is found tends to lie together, so a claim
// that was full is followed by one of twice the size.
func (q *Queue) foundThere(items []*Item, at span) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dive == nil {
		return
	}
	q.dive.found = false
	if len(items) > 0 {
		q.dive.from = pgtype.Timestamptz{Time: items[len(items)-1].Ord, Valid: true}
	}
	if len(items) == at.limit {
		q.dive.limit = min(2*q.dive.limit, diveLimit)
	}
	q.wakeDive()
}

// wakeDive has lookBelow look whether it has something to do; it never blocks.
func (q *Queue) wakeDive() {
	select {
	case q.diving <- struct{}{}:
	default:
	}
}

// lookBelow looks for what may be claimed below the floor, while there is a dive,
// until ctx ends. It goes through all of it, pass after pass, with pauses of twice
// what a pass has taken; a pass that is quick ends the dive.
func (q *Queue) lookBelow(ctx context.Context) {
	l := &looker{Queue: q, limit: diveFirst * q.Deadline}
	for {
		select {
		case <-q.diving:
		case <-ctx.Done():
			return
		}
		from, upto, ok := q.toLook()
		if !ok {
			continue
		}
		found, pause := l.look(ctx, from, upto)
		if found {
			q.Wake() // the claim that takes it goes on with the dive
			continue
		}
		work.Sleep(ctx, pause)
		q.wakeDive()
	}
}

// toLook is what is to be looked through, if anything is: not while something that was
// found waits for its claim, since the look would find it again.
func (q *Queue) toLook() (from pgtype.Timestamptz, upto time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dive == nil || q.dive.found {
		return from, upto, false
	}
	return q.dive.from, q.floor, true
}

// looker is what lookBelow knows from one look to the next.
type looker struct {
	*Queue
	limit    time.Duration // of the next look
	failures int           // in a row
	pass     time.Duration // the looks since the beginning took
}

// look looks once, tells the dive, and says in how long to look again.
func (l *looker) look(ctx context.Context, from pgtype.Timestamptz, upto time.Time) (found bool, pause time.Duration) {
	started := time.Now()
	bounded, cancel := context.WithTimeout(ctx, l.limit)
	var at *time.Time
	err := l.DB.QueryRow(bounded, query.NextClaimable, l.ID, from, upto).Scan(&at)
	cancel()
	l.pass += time.Since(started)
	if err != nil {
		if ctx.Err() == nil {
			l.Log.Debug("looking for messages below the floor failed; will try again", "error", err)
		}
		l.failures++
		l.limit = min(2*l.limit, diveMost)
		return false, work.Backoff(l.failures, 50*time.Millisecond, 5*time.Second)
	}
	l.failures = 0
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case at != nil:
		l.dive.from, l.dive.found = pgtype.Timestamptz{Time: *at, Valid: true}, true
		return true, 0
	case l.pass < l.Deadline/4 && from == beginning: // a sweep can do that again
		l.dive, l.sweptAt, l.sweepCost = nil, time.Now(), l.pass
		l.Log.Info("claims step over few finished messages again")
		return false, 0
	}
	l.dive.from = beginning
	pause = max(diveAgain, 2*l.pass)
	l.pass = 0
	return false, pause
}
