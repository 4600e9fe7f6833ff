package stream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// lanes are those of a subscription that this process holds. One goroutine assigns
// them (Reader.followLanes); each ends by itself, and says so by forget.
//
// Of a number one lane reads at a time: a lane waits for the one before it of its
// number, which may still be delivering when the number is this process's again.
type lanes struct {
	st    *stream
	taken chan struct{} // holds 1: there is a new one

	mu      sync.Mutex
	running map[int]*lane // guarded by mu: by number
	ended   map[int]*lane // guarded by mu: the last of a number that runs no more, or is still ending
}

func newLanes(st *stream) *lanes {
	return &lanes{st: st, taken: make(chan struct{}, 1), running: map[int]*lane{}, ended: map[int]*lane{}}
}

// assign makes the running lanes those of a: it starts and ends what is not. A lane
// is the same if its fence is: one that was lost, and is this process's again, goes
// on from what is recorded, not from what the lane before it had in memory. One that
// was given back while a was under way is not begun again.
func (ls *lanes) assign(ctx context.Context, a *assignment) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	keep := map[int]bool{}
	for _, given := range a.lanes {
		l := ls.running[given.no]
		if l != nil && l.fence == given.fence {
			l.notify(given)
			keep[given.no] = true
		}
	}
	for no, l := range ls.running {
		if !keep[no] {
			l.cancel(work.ErrLeaseLost) // its deliveries end, and nothing more of it is recorded
			delete(ls.running, no)
			ls.ended[no] = l
		}
	}
	ls.st.leases.renew(a.asked) // only now: no lane that was lost is to be taken for fresh
	for _, given := range a.lanes {
		if !keep[given.no] && !ls.wasReleased(given, a.asked) {
			ls.start(ctx, given)
		}
	}
}

// wasReleased reports whether a lane has been given back since it was asked what is
// this process's: a lane that is taken again has another fence. One that is named under its
// old fence by an answer that was asked for later is this process's all the same: what gave
// it back was lost, as by a failover. ls.mu is held.
func (ls *lanes) wasReleased(given assignedLane, asked time.Time) bool {
	l := ls.ended[given.no]
	if l == nil || l.fence != given.fence {
		return false
	}
	at := l.released.Load()
	return at != nil && asked.Before(*at)
}

// start begins to read a lane; one that is to be given back ends at once. ls.mu is
// held.
func (ls *lanes) start(ctx context.Context, given assignedLane) {
	l, before := newLane(ls.st, given), ls.ended[given.no]
	ls.running[given.no] = l
	go func() {
		defer close(l.done)
		defer ls.forget(l)
		l.run(ctx, before)
	}()
	select {
	case ls.taken <- struct{}{}: // healKeys looks through it
	default:
	}
	ls.st.Log.Debug("lane taken", "lane", given.no, "fence", given.fence, "takeovers", given.takeovers)
}

// forget is what follows when a lane has given itself back. If it was lost, another
// of its number may run by now.
func (ls *lanes) forget(l *lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.running[l.no] == l {
		delete(ls.running, l.no)
		ls.ended[l.no] = l
	}
}

// slots are those of the lanes that run, in deed.attend's form: what is aside in
// them, and only there, is this process's to attempt.
func (ls *lanes) slots() (from, upto []int32) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.running {
		from = append(from, l.slots.from)
		upto = append(upto, l.slots.upto)
	}
	return from, upto
}

// settle tells the lanes that outcomes of messages of these keys are about to be
// recorded.
func (ls *lanes) settle(hashes []int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.running {
		l.keys.settle(hashes)
	}
}

// unblock lets the keys go of which that record has left no message aside.
func (ls *lanes) unblock(hashes []int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.running {
		l.keys.remove(hashes)
	}
}

// stop waits for the lanes to end what they have begun; past the grace it
// cancels that. Whoever runs them has ended their context. A delivery that ignores
// that it is cancelled is left behind, with its lane: nothing of it is recorded
// before the lease ends, and then it comes again elsewhere.
func (ls *lanes) stop() error {
	ls.mu.Lock()
	all := make([]*lane, 0, len(ls.running)+len(ls.ended))
	for _, some := range []map[int]*lane{ls.running, ls.ended} {
		for _, l := range some {
			all = append(all, l)
		}
	}
	ls.mu.Unlock()
	grace := time.AfterFunc(ls.st.Grace, func() {
		for _, l := range all {
			l.cancel(work.ErrStopping)
		}
	})
	defer grace.Stop()
	abandoned := time.NewTimer(ls.st.Grace + 5*time.Second)
	defer abandoned.Stop()
	for _, l := range all {
		select {
		case <-l.done:
		case <-abandoned.C:
			for _, l := range all {
				l.left.Store(true) // when all have stopped the pool is closed
			}
			return errors.New("deliveries did not return after they were cancelled; their lanes are another's when the lease ends")
		}
	}
	return nil
}
