package stream

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/work"
)

// pageRun is the delivery of one page, by up to Concurrency goroutines. Each key
// of an ordered stream is one goroutine's, so that its messages' entries have one
// writer, and its messages go one after the other.
type pageRun struct {
	st      *stream
	keys    *blockedKeys    // of the lane
	ctx     context.Context // ended: begin nothing more
	working context.Context // the lane's; ended: what is under way is cancelled, and counts for nothing
	ordered bool            // the stream keeps the order of each key
	began   time.Time

	mu        sync.Mutex
	decided   bool               // guarded by mu: it has put something aside of a key
	cut       bool               // guarded by mu: nothing more is begun, as a key waits for the page's record
	postponed map[claim.Key]bool // guarded by mu: keys of which no more is tried in this pass
}

// cutAfter is how long a key of which nothing else is aside any more waits for a page
// that has put messages of it aside.
const cutAfter = time.Second

// run settles the page: every message is delivered or put aside, unless
// the lane is to stop, or a key waits for this page's record. Of an ordered stream's
// key it delivers one message after the other, and once one has failed, or others
// are aside, none.
func (d *pageRun) run(entries []*entry, suspect bool) {
	crash.Point("claimed")
	todo := d.sort(entries, suspect)
	for failures := 0; len(todo) > 0; { // of passes in a row that have settled nothing
		d.pass(todo)
		left := todo[:0]
		for _, e := range todo {
			if !e.settled {
				left = append(left, e)
			}
		}
		if len(left) < len(todo) {
			failures = 0
		}
		todo = left
		if len(todo) == 0 || d.ended() {
			break
		}
		if d.st.probing() {
			d.awaitProbe()
			continue
		}
		failures++ // the leases are not renewed
		work.Sleep(d.ctx, work.Backoff(failures, 10*time.Millisecond, time.Second))
	}
	d.asideGaps(entries)
}

// awaitProbe waits until the destination, which is down, may be probed, or the page
// has ended. What is put aside gives way meanwhile.
func (d *pageRun) awaitProbe() {
	d.st.probes.Add(1)
	defer d.st.probes.Add(-1)
	for n := 0; n == 0 && !d.ended(); {
		_, wait := d.st.Destination.Limit(1)
		work.Sleep(d.ctx, min(max(wait, 10*time.Millisecond), time.Second))
		n, _ = d.st.Destination.Limit(1)
	}
}

// sort puts aside what is not to be attempted here, and returns the rest in the
// page's order.
func (d *pageRun) sort(entries []*entry, suspect bool) (todo []*entry) {
	for _, e := range entries {
		switch {
		case !e.due: // it waits in a row of its own, and takes no part in its key's order
			e.settled = true
			e.aside = &aside{entry: e, outcome: claim.Outcome{Kind: later}}
		case suspect: // three owners died here: each message alone, where a death is counted
			d.putAside(e, claim.Outcome{Kind: doubt})
		default:
			todo = append(todo, e)
		}
	}
	return todo
}

// ended reports whether nothing more of the page is to be begun: the lane
// stops, or the page has kept others waiting long enough.
func (d *pageRun) ended() bool {
	if d.ctx.Err() != nil {
		return true
	}
	if time.Since(d.began) < cutAfter {
		return false
	}
	// Once it has ended it stays so, or a hand would leave out one message and
	// go on to the next of its key.
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = d.cut || (d.decided && d.keys.keepWaiting())
	return d.cut
}

// pass tries each message once: by batches if the destination takes them, else key by
// key, or in any order if none is kept. It returns when all attempts have, so that
// between two passes the entries are the caller's again. Batches are one hand's, one
// after the other: the next may have the keys of this one.
func (d *pageRun) pass(todo []*entry) {
	clear(d.postponed)
	var workers sync.WaitGroup
	hands := min(d.st.Concurrency, len(todo))
	switch {
	case d.st.Group > 0:
		workers.Go(func() { d.inBatches(todo, d.st.Group) })
	case !d.ordered:
		var next atomic.Int64
		for range hands {
			workers.Go(func() {
				for i := next.Add(1) - 1; i < int64(len(todo)); i = next.Add(1) - 1 {
					d.one(todo[i])
				}
			})
		}
	default:
		for _, list := range byKey(todo, hands) {
			workers.Go(func() {
				for _, e := range list {
					d.one(e)
				}
			})
		}
	}
	workers.Wait()
	for _, e := range todo {
		if e.tried { // its attempt has neither returned nor panicked, and its hand is gone
			d.settle(e, errEnded)
		}
	}
}

// errEnded is the outcome of an attempt that ended its goroutine.
var errEnded = errors.New("the attempt called runtime.Goexit, as t.FailNow does")

// spread spreads keys over goroutines.
var spread = maphash.MakeSeed()

// byKey deals messages out to n hands, those of one key to one hand, in order.
func byKey(todo []*entry, n int) [][]*entry {
	hands := make([][]*entry, n)
	for i, e := range todo {
		at := i % n
		if e.Key != "" {
			at = int(maphash.String(spread, e.Key) % uint64(n))
		}
		hands[at] = append(hands[at], e)
	}
	return hands
}

// asideGaps, where the page has ended early, puts aside what was not attempted
// before something that was: a page is recorded up to one position, and what is
// delivered is not to come again because of what is not.
func (d *pageRun) asideGaps(entries []*entry) {
	d.mu.Lock()
	early := d.cut || d.ctx.Err() != nil
	d.mu.Unlock()
	if !early || isLost(d.working) {
		return
	}
	last := len(entries) - 1
	for last >= 0 && !entries[last].attempted() {
		last--
	}
	for _, e := range entries[:last+1] {
		if !e.settled {
			d.putAside(e, claim.Outcome{Kind: park})
		}
	}
}

// one tries a message by itself.
func (d *pageRun) one(e *entry) {
	if !d.mayTry(e) {
		return
	}
	if e.Problem != nil {
		d.settle(e, e.Problem)
		return
	}
	d.attempt([]*entry{e}, []*claim.Message{&e.Message})
}

// inBatches tries messages by batches of the destination's size, filled in the page's
// order with what may be tried now.
func (d *pageRun) inBatches(todo []*entry, size int) {
	for len(todo) > 0 && !d.ended() {
		batch := make([]*entry, 0, min(size, len(todo)))
		msgs := make([]*claim.Message, 0, min(size, len(todo)))
		for len(todo) > 0 && len(batch) < size {
			e := todo[0]
			todo = todo[1:]
			switch {
			case !d.mayTry(e):
			case e.Problem != nil:
				d.settle(e, e.Problem)
			default:
				batch = append(batch, e)
				msgs = append(msgs, &e.Message)
			}
		}
		if len(batch) > 0 {
			d.attempt(batch, msgs)
		}
	}
}

// attempt hands messages to the destination; a panic is an outcome of all of them. A
// worker that was frozen hands over nothing before it knows that the lane is
// still its own. Leases are fresh again when those of other lanes are, and a lane
// that was lost has been cancelled by then (lanes.assign): so it is asked second.
// The page's own context ends a moment later.
func (d *pageRun) attempt(batch []*entry, msgs []*claim.Message) {
	if d.st.stale() || d.working.Err() != nil {
		for _, e := range batch {
			d.postpone(e)
		}
		return
	}
	for _, e := range batch {
		e.tried = true
	}
	crash.Point("attempting")
	// Its context is the lane's, not the page's: a stop lets it end.
	results := d.st.deliver(d.working, msgs)
	crash.Point("attempted")
	failed := map[claim.Key]bool{} // in this call
	for i, e := range batch {
		switch {
		case results == nil || results[i] == nil:
			d.settle(e, nil)
		case d.ordered && failed[e.OfKey()]:
			// The sink owes it that it was not delivered; an attempt is counted of the
			// first one only, or two of a key would be tried beside each other.
			e.tried = false
			d.postpone(e)
		default:
			failed[e.OfKey()] = e.Key != ""
			d.settle(e, results[i])
		}
	}
}

// mayTry reports whether the message may be attempted now; if others of its key
// are aside it joins them.
func (d *pageRun) mayTry(e *entry) bool {
	if d.ended() {
		return false
	}
	if !d.ordered || e.Key == "" {
		return true
	}
	d.mu.Lock()
	late := d.postponed[e.OfKey()]
	d.mu.Unlock()
	if late {
		return false
	}
	if d.keys.none() {
		return true
	}
	hash := keyHash(e.Tenant, e.Key)
	if !d.keys.join(hash) {
		return true
	}
	d.decide()
	e.settled = true
	e.aside = &aside{entry: e, hash: &hash, outcome: claim.Outcome{Kind: park}}
	return false
}

// settle says what an attempt has come to. An outage, and whatever came back once
// the lane was lost or cancelled, counts nothing: the message is tried again, here
// or by the next owner.
func (d *pageRun) settle(e *entry, err error) {
	e.tried = false
	if err == nil {
		e.settled = true
		return
	}
	o := claim.OutcomeOf(err)
	if o.Kind == claim.Outage || context.Cause(d.working) != nil {
		d.postpone(e)
		return
	}
	d.putAside(e, o)
}

// postpone has the page wait with e, and its key: nothing is counted. The next pass
// tries them again, in their order.
func (d *pageRun) postpone(e *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.postponed[e.OfKey()] = e.Key != ""
}

// putAside makes e a message with a row of its own, behind which others of its
// key stand. From here on no other of the key is delivered by this lane, although
// the row is only written with the page's record.
func (d *pageRun) putAside(e *entry, o claim.Outcome) {
	a := &aside{entry: e, outcome: o}
	if d.ordered && e.Key != "" {
		hash := keyHash(e.Tenant, e.Key)
		a.hash = &hash
		d.keys.add(hash)
		d.decide()
	}
	e.settled, e.aside = true, a
}

// decide notes that the page has put something aside of a key, which blocks it until
// the page's record at the least.
func (d *pageRun) decide() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decided = true
}
