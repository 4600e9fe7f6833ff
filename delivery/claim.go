package delivery

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/work"
)

func (s *source) queueClaim(batch *pgx.Batch, n int, claimed *[]*item) {
	busy, perLane := s.busyLanes()
	s.mu.Lock()
	var after any
	if s.after != "" {
		after = s.after
	}
	tenants := slices.Collect(maps.Keys(s.lanes))
	lanes := make([]string, len(tenants))
	for i, t := range tenants {
		lanes[i] = s.lanes[t]
	}
	s.mu.Unlock()
	batch.Queue(query["claim"], s.name, s.ledger.opts.Worker, n, s.ledger.opts.Lease.Seconds(), nonNil(busy), perLane, after,
		nonNil(tenants), nonNil(lanes)).Query(func(rows pgx.Rows) error {
		list := make([]*item, 0, n)
		for rows.Next() {
			it := &item{}
			w := &it.row
			if err := rows.Scan(&w.id, &w.claim, &w.tenant, &w.workspace, &w.key, &w.channel, &w.lane, &w.recipient, &w.recipientID,
				(*[]byte)(&w.payload), &w.request, &w.guarantee, &w.attempts, &w.correlationID, &w.channelMsgID, &w.takenOver); err != nil {
				return err
			}
			list = append(list, it)
		}
		*claimed = list
		return rows.Err()
	})
}

// busyLanes are the lanes to be left out of a claim: those that have their share
// of the calls.
func (s *source) busyLanes() (busy []string, perLane any) {
	if !s.caps.PerDomain {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for lane, n := range s.inHand {
		if n >= s.opts.PerDomain {
			busy = append(busy, lane)
		}
	}
	return busy, s.opts.PerDomain
}

// mostLanes bounds for how many tenants the rotation of their lanes is
// remembered; others begin at the first one.
const mostLanes = 100

// count keeps what the next claim needs to know.
func (s *source) count(done []work.Done[*item], claimed []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range done {
		if s.inHand[d.Item.lane]--; s.inHand[d.Item.lane] <= 0 {
			delete(s.inHand, d.Item.lane)
		}
	}
	first, last, start := s.after, "", maps.Clone(s.lanes)
	for _, it := range claimed {
		s.inHand[it.lane]++
		if it.takenOver {
			s.logOf(&it.row).Info("took over a delivery whose claim had run out before it was called")
		}
		if last == "" || behind(it.tenant, last, first) {
			last = it.tenant
		}
		from, ok := start[it.tenant]
		if reached, known := s.lanes[it.tenant]; !known || (ok && reached == from) || behind(it.lane, reached, from) {
			s.lanes[it.tenant] = it.lane
		}
	}
	if last != "" {
		s.after = last
	}
	if !s.laned() || len(s.lanes) > mostLanes {
		clear(s.lanes)
	}
}

// laned reports whether there are lanes but the one.
func (s *source) laned() bool { return s.caps.PerDomain || len(s.opts.Domains) > 0 }

// behind reports whether a comes later than b on the way round that begins
// after from.
func behind(a, b, from string) bool {
	if (a > from) == (b > from) {
		return a > b
	}
	return b > from
}

// nextLook is when to claim again after a claim that found nothing.
func (s *source) nextLook(ctx context.Context) time.Duration {
	poll := s.ledger.opts.PollInterval
	poll = poll/2 + rand.N(poll)
	var seconds *float64
	if err := s.ledger.pool.QueryRow(ctx, query["next"], s.name).Scan(&seconds); err != nil || seconds == nil {
		return poll // the next exchange will say what is wrong
	}
	wait := time.Duration(*seconds * float64(time.Second))
	if wait <= 0 {
		// Something is due, in a lane that is busy or over its limit.
		wait = 20*time.Millisecond + rand.N(20*time.Millisecond)
	}
	return min(wait+time.Millisecond, poll)
}

// Extend renews the leases of held.
func (s *source) Extend(ctx context.Context, held []*item) ([]*item, error) {
	ids, claims := make([]string, len(held)), make([]int64, len(held))
	for i, it := range held {
		ids[i], claims[i] = it.id, it.claim
	}
	var kept []string
	if err := s.ledger.pool.QueryRow(ctx, query["extend"], ids, claims, s.ledger.opts.Lease.Seconds()).Scan(&kept); err != nil {
		return nil, err
	}
	still := make(map[string]bool, len(kept))
	for _, id := range kept {
		still[id] = true
	}
	var lost []*item
	for _, it := range held {
		if !still[it.id] {
			lost = append(lost, it)
		}
	}
	return lost, nil
}
