package deed

import (
	"context"
	"time"

	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/internal/work"
)

// lanesEvery is how often a process looks after its lanes: how long one that
// was given back waits for another process to take it.
const lanesEvery = time.Second

// lanesProtocol is what relays that read a stream together must agree on, as
// deed.take_lanes checks: how a key is hashed.
const lanesProtocol = 2

// assignedLane is a lane of this process, as deed.take_lanes tells of it.
type assignedLane struct {
	no                 int
	slotFrom, slotUpto int32
	ordered, giveBack  bool
	fence              int64
	takeovers          int
	lastWindow         *int64 // 0: stop between two windows; more: read up to it
}

// assignment is what the keeper tells a subscription.
type assignment struct {
	asked   time.Time // before the leases were renewed
	lanes   []assignedLane
	isQueue bool // the topic is no stream any more
}

// streaming reports whether any of the client's subscriptions is a stream's.
func (c *Client) streaming() bool {
	for _, s := range c.sources {
		if s.IsStream() {
			return true
		}
	}
	return false
}

// keepLanes holds the process's share of the lanes of all its streams, in one
// statement a second. Once stopping is closed it only renews what is still
// held, until ctx ends; then it gives back what is left, unless ctx's cause
// says that some of the work was abandoned.
func (c *Client) keepLanes(ctx context.Context, stopping <-chan struct{}) {
	worker := uuid.New()
	every := lanesEvery // a lease is renewed when a third of it has gone
	for _, s := range c.sources {
		every = min(every, s.Lease/6)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	live, stop := true, stopping
	for failures := 0; ctx.Err() == nil; {
		pause := (<-chan time.Time)(tick.C)
		if c.streaming() {
			if err := c.takeLanes(ctx, worker, live); err == nil {
				failures = 0
			} else if ctx.Err() == nil {
				failures++
				c.opts.Logger.Warn("looking after the lanes failed; will try again", "error", sqlstate.WithHint(err), "failures", failures)
				pause = time.After(work.Backoff(failures, 50*time.Millisecond, lanesEvery))
			}
		}
		select {
		case <-ctx.Done():
		case <-pause:
		case <-stop:
			live, stop = false, nil
			c.leaveRelays(ctx, worker, false)
		}
	}
	c.leaveRelays(ctx, worker, context.Cause(ctx) == context.Canceled)
}

// leaveRelays makes the other processes take this one's share at once. release:
// none of its lanes is read any more.
func (c *Client) leaveRelays(ctx context.Context, worker uuid.UUID, release bool) {
	if !c.streaming() {
		return
	}
	ctx, cancel := c.deadline(context.WithoutCancel(ctx))
	defer cancel()
	if _, err := c.workers.Exec(ctx, query.LeaveRelays, worker.String(), release); err != nil {
		c.opts.Logger.Warn("signing off from the streams failed; the others wait for the lease", "error", sqlstate.WithHint(err))
	}
}

// takeLanes is not cut short: what it takes is to be known, and given back.
func (c *Client) takeLanes(ctx context.Context, worker uuid.UUID, take bool) error {
	ctx, cancel := c.deadline(context.WithoutCancel(ctx))
	defer cancel()
	byID := map[int]*source{}
	var subs []int
	for _, s := range c.sources {
		if s.IsStream() && !s.IsRemoved() {
			byID[s.ID] = s
			subs = append(subs, s.ID)
		}
	}
	asked := time.Now()
	rows, err := c.workers.Query(ctx, query.TakeLanes, worker.String(), c.opts.Worker, subs, take, lanesProtocol)
	if err != nil {
		return err
	}
	defer rows.Close()
	told := map[int]*assignment{}
	for _, id := range subs {
		told[id] = &assignment{asked: asked}
	}
	for rows.Next() {
		var sub int
		var no *int
		var from, upto *int32
		var ordered *bool
		var fence *int64
		var l assignedLane
		if err := rows.Scan(&sub, &no, &from, &upto, &ordered, &fence, &l.giveBack, &l.takeovers, &l.lastWindow); err != nil {
			return err
		}
		if no == nil {
			told[sub].isQueue = true
			continue
		}
		l.no, l.slotFrom, l.slotUpto, l.ordered, l.fence = *no, *from, *upto, *ordered, *fence
		told[sub].lanes = append(told[sub].lanes, l)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for id, h := range told {
		byID[id].tell(h)
	}
	return nil
}

// tell hands h to the subscription's stream in place of what it has not read.
func (s *source) tell(h *assignment) {
	for {
		select {
		case s.assigned <- h:
			return
		default:
		}
		select {
		case <-s.assigned:
		default:
		}
	}
}
