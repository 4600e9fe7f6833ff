package stream

import (
	"context"
	"time"

	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/internal/work"
)

// assignEvery is how often a process looks after its lanes: how long one that
// was given back waits for another process to take it.
const assignEvery = time.Second

// protocol is what relays that read a stream together must agree on, as
// deed.take_lanes checks: how a key is hashed.
const protocol = 2

// assigner holds a process's share of the lanes. One goroutine uses it.
type assigner struct {
	*Process
	worker uuid.UUID // the owner's name in deed.lanes: another one each time the process runs
}

// AssignLanes holds the process's share of the lanes of all its streams, in one
// statement a second. Once stopping is closed it only renews what is still
// held, until ctx ends; then it gives back what is left, unless ctx's cause
// says that some of the work was abandoned.
func (p *Process) AssignLanes(ctx context.Context, stopping <-chan struct{}) {
	a := &assigner{p, uuid.New()}
	every := assignEvery // a lease is renewed when a third of it has gone
	for _, r := range p.Readers {
		every = min(every, r.Lease/6)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	live, stop := true, stopping // live: take more; stop: nil once it has been heard
	for failures := 0; ctx.Err() == nil; {
		pause := (<-chan time.Time)(tick.C) // a failure is mended sooner: a lease is running out
		if p.streaming() {
			if err := a.take(ctx, live); err == nil {
				failures = 0
			} else if ctx.Err() == nil {
				failures++
				p.Log.Warn("looking after the lanes failed; will try again", "error", sqlstate.WithHint(err), "failures", failures)
				pause = time.After(work.Backoff(failures, 50*time.Millisecond, assignEvery))
			}
		}
		select {
		case <-ctx.Done():
		case <-pause:
		case <-stop:
			live, stop = false, nil
			a.leave(ctx, false)
		}
	}
	a.leave(ctx, context.Cause(ctx) == context.Canceled)
}

// leave makes the other processes take this one's share at once. release:
// none of its lanes is read any more. Else they take each as it is given back, and
// what is abandoned when its lease has run out.
func (a *assigner) leave(ctx context.Context, release bool) {
	if !a.streaming() {
		return
	}
	ctx, cancel := a.bounded(context.WithoutCancel(ctx))
	defer cancel()
	if _, err := a.DB.Exec(ctx, query.LeaveRelays, a.worker.String(), release); err != nil {
		a.Log.Warn("signing off from the streams failed; the others wait for the lease", "error", sqlstate.WithHint(err))
	}
}

// take renews the lanes in hand, takes more if live, and tells the readers. It is
// not cut short: what it takes is to be known, and given back.
func (a *assigner) take(ctx context.Context, live bool) error {
	ctx, cancel := a.bounded(context.WithoutCancel(ctx))
	defer cancel()
	byID := map[int]*Reader{}
	var subs []int
	var leases []float64 // seconds: with which they are read here, whatever they are by now
	for _, r := range a.Readers {
		if r.IsStream() && !r.IsRemoved() {
			byID[r.ID] = r
			subs = append(subs, r.ID)
			leases = append(leases, r.Lease.Seconds())
		}
	}
	told, err := a.ask(ctx, subs, leases, live)
	if err != nil {
		return err
	}
	for id, assigned := range told {
		byID[id].tell(assigned)
	}
	return nil
}

// ask is the statement: what it says of each of the subscriptions. One of which there
// is no row has no lane here, and is told so; a row without a lane says that the
// topic is a queue. What is told is the whole: a lane that is not named is lost.
func (a *assigner) ask(ctx context.Context, subs []int, leases []float64, live bool) (map[int]*assignment, error) {
	// Before the statement: the leases end that much later by the server's clock, so
	// that nobody here takes for fresh what has run out there.
	asked := time.Now()
	rows, err := a.DB.Query(ctx, query.TakeLanes, a.worker.String(), a.Name, subs, live, protocol, leases)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	told := map[int]*assignment{}
	for _, id := range subs {
		told[id] = &assignment{asked: asked}
	}
	for rows.Next() {
		var sub int
		var no *int // null: the topic is a queue
		var from, upto *int32
		var ordered *bool
		var fence *int64
		var l assignedLane
		if err := rows.Scan(&sub, &no, &from, &upto, &ordered, &fence, &l.giveBack, &l.takeovers, &l.lastWindow); err != nil {
			return nil, err
		}
		if no == nil {
			told[sub].isQueue = true
			continue
		}
		l.no, l.slots, l.ordered, l.fence = *no, slots{*from, *upto}, *ordered, *fence
		told[sub].lanes = append(told[sub].lanes, l)
	}
	return told, rows.Err()
}
