package stream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/claim"
)

// healEvery is how often a reader looks for keys that nobody lets go.
const healEvery = time.Minute

// Reader is a subscription as a stream. It is there while the topic is a queue,
// too: the assigner and the watcher know it, and find out what the topic is. Run
// reads, and is called anew whenever the topic becomes a stream.
type Reader struct {
	*claim.Subscription
	queue    *claim.Queue // the same subscription as a queue
	feed     *Feed
	page     int              // most messages a page
	assigned chan *assignment // holds 1: the newest; written by the assigner, read by Run

	mu      sync.Mutex
	reading *slots // guarded by mu: from the first slot to the last that has a lane here; nil: none has
}

// NewReader returns the reader of a subscription, which is the queue's, too. page
// is how many messages it reads at once at the most.
func NewReader(queue *claim.Queue, feed *Feed, page int) *Reader {
	return &Reader{Subscription: queue.Subscription, queue: queue, feed: feed, page: page, assigned: make(chan *assignment, 1)}
}

// Run reads the stream until ctx ends, or the topic becomes a queue. It stops in
// this order: nothing more is taken up; the lanes end what they have begun and
// record it; so does what is aside, at the same time.
func (r *Reader) Run(ctx context.Context) error {
	st := &stream{Subscription: r.Subscription, feed: r.feed, page: r.page}
	ls := newLanes(st)
	ctx, end := r.Begin(ctx)
	defer end(nil)
	var aside sync.WaitGroup
	var asideErr error
	aside.Go(func() { r.healKeys(ctx, ls) })
	aside.Go(func() { asideErr = (&attention{stream: st, lanes: ls}).run(ctx) })
	r.followLanes(ctx, st, ls)
	err := ls.stop()
	aside.Wait()
	if errors.Is(context.Cause(ctx), claim.ErrModeChanged) {
		return claim.ErrModeChanged
	}
	return errors.Join(err, asideErr)
}

// tell hands a to the reader in place of what it has not read: it never blocks for
// a reader that is busy or does not run. What it replaces is older, and says less.
func (r *Reader) tell(a *assignment) {
	for {
		select {
		case r.assigned <- a:
			return
		default:
		}
		select {
		case <-r.assigned:
		default:
		}
	}
}

// followLanes starts and stops lanes as the assigner says, until ctx ends or it
// says that there are none, because the topic is a queue. While the assigner does not
// get through it lets go of all lanes in time: nothing of theirs is attempted once
// their leases may have run out.
func (r *Reader) followLanes(ctx context.Context, st *stream, ls *lanes) {
	tick := time.NewTicker(min(r.Lease/4, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-r.assigned:
			if a.isQueue {
				r.BecomeQueue()
				return
			}
			ls.assign(ctx, a)
			r.setReading(a)
		case <-tick.C:
			if st.stale() { // others may have taken them
				ls.assign(ctx, &assignment{})
				r.setReading(&assignment{})
			}
		}
	}
}

// setReading tells the watcher which slots have a lane here: rows of others need
// not come with a window. Between the first and the last may be some that have
// none; their rows come for nothing.
func (r *Reader) setReading(a *assignment) {
	var reading *slots
	for _, l := range a.lanes {
		if reading == nil {
			reading = &slots{l.from, l.upto}
		}
		reading.from, reading.upto = min(reading.from, l.from), max(reading.upto, l.upto)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = reading
}

// slots are from the first to the last that have a lane here; nil: none has.
func (r *Reader) slots() *slots {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reading
}

// healKeys looks, when there are new lanes and once a minute, for keys whose
// messages are parked behind nothing, and lets the first of each go. What an operator
// restores or deletes by hand leaves one, and so does who keeps a key's first message
// locked when its turn comes (deed.release_keys).
func (r *Reader) healKeys(ctx context.Context, ls *lanes) {
	tick := time.NewTicker(healEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ls.taken:
		case <-tick.C:
		}
		from, upto := ls.slots()
		if len(from) == 0 {
			continue
		}
		var freed []int64
		r.Upkeep.Chore(ctx, "look for stranded keys of "+r.Label(), func(ctx context.Context) error {
			return r.DB.QueryRow(ctx, query.HealKeys, r.ID, from, upto).Scan(&freed)
		})
		if len(freed) > 0 {
			r.Log.Warn("messages were parked behind nothing; the first of each key goes on", "keys", len(freed))
			r.Wake()
		}
	}
}
