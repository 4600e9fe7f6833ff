package deed

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// claimSpan is where a claim looks: from floor on.
type claimSpan struct {
	floor pgtype.Timestamptz
	limit int
	sweep bool // from the beginning
	found bool // where a dive has found something

	tenant *tenant.ID // only its messages; nil: all tenants'
}

var beginning = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}

// dive is what a source does instead of sweeps once a claim has outlasted its
// deadline: there is more of what is finished to step over than a statement has
// time for. Claims go on from the floor; what is below is looked for by a
// statement that only reads and may take longer, and is claimed where it was found.
type dive struct {
	from  pgtype.Timestamptz // where the next look begins
	found bool               // something to claim is at from
	limit int                // how many are claimed there: as many as were, and more each time
}

const (
	diveFirst = 4 // times the deadline: for a look, which doubles whenever that was too short
	diveMost  = 10 * time.Minute
	diveAgain = 5 * time.Second // at least, from one pass over all to the next
)

// spanOfClaim says where the next claim of up to n looks. Claims normally start a
// little before the last one's end, so that they do not step over the index
// entries of what is finished, which an old snapshot may keep alive. A sweep
// starts from the beginning and finds what became claimable below: very late
// commits, leases that ran out, messages given back.
func (s *source) spanOfClaim(n int) claimSpan {
	s.mu.Lock()
	defer s.mu.Unlock()
	floor := pgtype.Timestamptz{Time: s.floor, Valid: true}
	switch {
	case s.dive != nil && s.dive.found:
		return claimSpan{floor: s.dive.from, limit: min(n, s.dive.limit), found: true}
	case s.dive != nil:
		return claimSpan{floor: floor, limit: n}
	case s.floor.IsZero() || time.Since(s.sweptAt) >= s.sweepEvery():
		return claimSpan{floor: beginning, limit: n, sweep: true}
	}
	return claimSpan{floor: floor, limit: n}
}

// turnElsewhere makes a claim while the sink is probed one of a tenant whose
// messages have not just failed, if there is one: theirs may be what the sink
// fails with, and would be probed one after the other.
func (s *source) turnElsewhere(ctx context.Context, at *claimSpan) {
	if s.breaker.State() == "closed" {
		return
	}
	failing := s.failing.list()
	if len(failing) == 0 || at.found || s.mayOutlast(*at) {
		return
	}
	// It stands before outcomes that wait to be recorded.
	ctx, cancel := context.WithTimeout(ctx, s.client.opts.Deadline/4)
	defer cancel()
	var other *tenant.ID
	err := s.client.workers.QueryRow(ctx, query.OtherTenant, s.id.Load(), failing).Scan(&other)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		s.failing.clear()
	case err == nil:
		*at = claimSpan{floor: beginning, limit: at.limit, tenant: other}
	} // else the claim will say what is wrong
}

// mayOutlast reports whether the claim may take longer than its deadline, so that it is
// made apart from outcomes.
func (s *source) mayOutlast(at claimSpan) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return at.found || s.dive != nil || (at.sweep && (s.sweptAt.IsZero() || s.sweepCost > s.client.opts.Deadline/4))
}

// outlasted reports whether err is that of a statement that was cut off.
func outlasted(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, context.DeadlineExceeded) || (ok && pg.Code == "57014")
}

// cutOff is what follows from a claim that has outlasted its deadline: a dive.
// Its error is that of the database, which then does not answer at all.
func (s *source) cutOff(ctx context.Context, at claimSpan) error {
	var recent time.Time
	if err := s.client.workers.QueryRow(ctx, query.AMinuteAgo).Scan(&recent); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dive == nil:
		s.log.Warn("claims step over more finished messages than they have time for; what is new comes first",
			"hint", "an old transaction, a replication slot or a standby keeps them: see deed doctor")
		s.dive = &dive{from: beginning, limit: 1}
	case at.found:
		s.dive.found, s.dive.limit = false, 1
	}
	if !at.found {
		s.floor = maxTime(s.floor, recent)
	}
	select {
	case s.diving <- struct{}{}:
	default:
	}
	return nil
}

// foundThere is what follows from a claim where a dive had found something.
func (s *source) foundThere(items []*item, at claimSpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dive == nil {
		return
	}
	s.dive.found = false
	if len(items) > 0 {
		s.dive.from = pgtype.Timestamptz{Time: items[len(items)-1].ord, Valid: true}
	}
	if len(items) == at.limit {
		s.dive.limit = min(2*s.dive.limit, maxClaim)
	}
	select {
	case s.diving <- struct{}{}:
	default:
	}
}

// maxClaim bounds what a dive claims at once.
const maxClaim = 1000

// lookBelow looks for what may be claimed below the floor, while there is a dive,
// until ctx ends.
func (s *source) lookBelow(ctx context.Context) {
	limit := diveFirst * s.client.opts.Deadline
	failures := 0
	var pass time.Duration // the looks since the beginning took
	for {
		select {
		case <-s.diving:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		if s.dive == nil || s.dive.found {
			s.mu.Unlock()
			continue
		}
		from, upto := s.dive.from, s.floor
		s.mu.Unlock()

		started := time.Now()
		lctx, cancel := context.WithTimeout(ctx, limit)
		var at *time.Time
		err := s.client.workers.QueryRow(lctx, query.NextClaimable, s.id.Load(), from, upto).Scan(&at)
		cancel()
		pass += time.Since(started)
		wait := time.Duration(0)
		s.mu.Lock()
		switch {
		case err != nil:
			failures++
			limit = min(2*limit, diveMost)
			wait = work.Backoff(failures, 50*time.Millisecond, 5*time.Second)
		case at != nil:
			failures = 0
			s.dive.from, s.dive.found = pgtype.Timestamptz{Time: *at, Valid: true}, true
		case pass < s.client.opts.Deadline/4 && from == beginning:
			s.dive, s.sweptAt, s.sweepCost = nil, time.Now(), pass
			s.log.Info("claims step over few finished messages again")
		default:
			failures, s.dive.from = 0, beginning
			wait, pass = max(diveAgain, 2*pass), 0
		}
		s.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			s.log.Debug("looking for messages below the floor failed; will try again", "error", err)
		}
		if at != nil {
			s.poke()
			continue
		}
		work.Sleep(ctx, wait)
		select {
		case s.diving <- struct{}{}:
		default:
		}
	}
}
