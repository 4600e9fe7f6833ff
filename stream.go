package deed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/work"
)

// stream reads a subscription of a stream: lanes that go through the log, and
// beside them one loop for the messages that were put aside.
type stream struct {
	*source

	// parking orders two decisions about a key: a lane's, that a message stands
	// behind others of it, up to its record (read lock), and the record of what
	// became of those others (write lock).
	parking sync.RWMutex
	waiting atomic.Bool // somebody waits to write

	taken chan struct{} // there is a new lane

	lanesMu sync.Mutex
	lanes   map[int]*lane // guarded by lanesMu: those that run
	gone    map[int]*lane // guarded by lanesMu: those of a number before, which may still be ending
	renewed time.Time     // guarded by lanesMu: when the leases were renewed, at the latest
}

// runStream reads the stream until ctx ends, or the topic becomes a queue.
func (s *source) runStream(ctx context.Context) error {
	st := &stream{source: s, lanes: map[int]*lane{}, gone: map[int]*lane{}, taken: make(chan struct{}, 1)}
	ctx, end := st.Begin(ctx)
	defer end(nil)
	var aside sync.WaitGroup
	var asideErr error
	aside.Go(func() { st.keepKeys(ctx) })
	aside.Go(func() { asideErr = st.attendAside(ctx) })
	st.followLanes(ctx)
	err := st.stopLanes()
	aside.Wait()
	if errors.Is(context.Cause(ctx), claim.ErrModeChanged) {
		return claim.ErrModeChanged
	}
	return errors.Join(err, asideErr)
}

// followLanes starts and stops lanes as the keeper says, until ctx ends.
func (st *stream) followLanes(ctx context.Context) {
	tick := time.NewTicker(min(st.Lease/4, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-st.assigned:
			if h.isQueue {
				st.BecomeQueue()
				return
			}
			st.assign(ctx, h)
		case <-tick.C:
			if st.stale() {
				st.assign(ctx, &assignment{}) // others may have taken them
			}
		}
	}
}

// keepKeys looks, when there are new lanes and once a minute, for keys whose
// messages are parked behind nothing, and lets the first of each go.
func (st *stream) keepKeys(ctx context.Context) {
	tick := time.NewTicker(housekeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-st.taken:
		case <-tick.C:
		}
		from, upto := st.laneSlots()
		if len(from) == 0 {
			continue
		}
		var freed []int64
		st.Upkeep.Chore(ctx, "look for stranded keys of "+st.Label(), func(ctx context.Context) error {
			return st.DB.QueryRow(ctx, query.HealKeys, st.ID, from, upto).Scan(&freed)
		})
		if len(freed) > 0 {
			st.Log.Warn("messages were parked behind nothing; the first of each key goes on", "keys", len(freed))
			st.Wake()
		}
	}
}

// stale reports whether the leases may have run out: they are renewed when less
// than two thirds are left. By both clocks, as the monotonic one stands still
// while the machine sleeps.
func (st *stream) stale() bool {
	st.lanesMu.Lock()
	defer st.lanesMu.Unlock()
	now := time.Now()
	return max(now.Sub(st.renewed), now.Round(0).Sub(st.renewed.Round(0))) > st.Lease*3/5
}

// assign makes the running lanes those of h.
func (st *stream) assign(ctx context.Context, h *assignment) {
	st.lanesMu.Lock()
	defer st.lanesMu.Unlock()
	st.renewed = h.asked
	keep := map[int]bool{}
	for _, given := range h.lanes {
		l := st.lanes[given.no]
		if l != nil && l.fence == given.fence {
			l.notify(given)
			keep[given.no] = true
		}
	}
	for no, l := range st.lanes {
		if !keep[no] {
			l.cancel(work.ErrLeaseLost)
			delete(st.lanes, no)
			st.gone[no] = l
		}
	}
	for _, given := range h.lanes {
		if keep[given.no] {
			continue
		}
		l := newLane(st, given) // one that is to be given back ends at once
		st.lanes[given.no] = l
		go l.run(ctx, st.gone[given.no])
		select {
		case st.taken <- struct{}{}:
		default:
		}
		st.Log.Debug("lane taken", "lane", given.no, "fence", given.fence, "takeovers", given.takeovers)
	}
	st.setSlots(h)
}

// setSlots tells the watcher which slots have a reader here.
func (s *source) setSlots(h *assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slotFrom, s.slotUpto = nil, nil
	for _, l := range h.lanes {
		if s.slotFrom == nil || l.slotFrom < *s.slotFrom {
			s.slotFrom = &l.slotFrom
		}
		if s.slotUpto == nil || l.slotUpto > *s.slotUpto {
			s.slotUpto = &l.slotUpto
		}
	}
}

// slotRange is from the first to the last that have a reader here; null: none has.
func (s *source) slotRange() (from, upto *int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slotFrom, s.slotUpto
}

// forget is called by a lane that has given itself back.
func (st *stream) forget(l *lane) {
	st.lanesMu.Lock()
	defer st.lanesMu.Unlock()
	if st.lanes[l.no] == l {
		delete(st.lanes, l.no)
		st.gone[l.no] = l
	}
}

// laneSlots are those of the lanes that run, for deed.attend.
func (st *stream) laneSlots() (from, upto []int32) {
	st.lanesMu.Lock()
	defer st.lanesMu.Unlock()
	for _, l := range st.lanes {
		from = append(from, l.slotFrom)
		upto = append(upto, l.slotUpto)
	}
	return from, upto
}

// unblock lets the keys go of which no message is aside any more.
func (st *stream) unblock(hashes []int64) {
	st.lanesMu.Lock()
	defer st.lanesMu.Unlock()
	for _, l := range st.lanes {
		l.unblock(hashes)
	}
}

// stopLanes lets the lanes end what they have begun, and past the grace
// cancels it.
func (st *stream) stopLanes() error {
	st.lanesMu.Lock()
	all := make([]*lane, 0, len(st.lanes)+len(st.gone))
	for _, lanes := range []map[int]*lane{st.lanes, st.gone} {
		for _, l := range lanes {
			all = append(all, l)
		}
	}
	st.lanesMu.Unlock()
	grace := time.AfterFunc(st.Grace, func() {
		for _, l := range all {
			l.cancel(work.ErrStopping)
		}
	})
	defer grace.Stop()
	abandoned := time.NewTimer(st.Grace + 5*time.Second)
	defer abandoned.Stop()
	for _, l := range all {
		select {
		case <-l.done:
		case <-abandoned.C:
			return errors.New("deliveries did not return after they were cancelled; their lanes are another's when the lease ends")
		}
	}
	return nil
}
