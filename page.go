package deed

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/work"
)

// What becomes of a message that is put aside without an attempt of its own, in
// deed.finish_page's words.
const (
	park  claim.Kind = "park"  // it stands behind another of its key
	later claim.Kind = "later" // it waits for its time
	doubt claim.Kind = "doubt" // it may be what killed the owners before
)

// entry is a message of a page, and what has become of it. While its page is
// delivered the goroutine that has its key writes it, and the reader afterwards.
type entry struct {
	claim.Message
	place int32 // with Seq, the position after it
	slot  int32
	due   bool

	tried   bool   // the attempt has not come back
	settled bool   // it is delivered or put aside; what is not is read again
	aside   *aside // how it was settled, if it was not delivered
}

// scan reads a row of deed.page, after the columns before; of what
// topic it is the caller knows.
func (e *entry) scan(row pgx.Rows, before ...any) error {
	e.Attempt = 1
	return e.Scan(row, append(before, &e.place, &e.slot, &e.due)...)
}

// page is one read of the log.
type page struct {
	entries []*entry
	end     bool // of the window
	err     error
}

// readWindow goes through the rest of the window, page by page: while one is
// delivered the next is read and the one before recorded. It returns at the
// window's end; or earlier, with the position after the last message that is
// settled with all before it. What it has settled it has given to the recorder.
func (l *lane) readWindow(ctx context.Context, rec *recorder, careful *bool) {
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := make(chan page, 1)
	if l.isReady {
		go l.dealPages(rctx, l.ready, pages)
		l.ready, l.isReady = nil, false
	} else {
		go l.readPages(rctx, l.position, pages)
	}
	for p := range pages {
		if p.err != nil {
			rec.stop(p.err)
			return
		}
		if l.st.stale() {
			rec.stop(errStale)
			return
		}
		l.st.Counters.Claimed.Add(int64(len(p.entries)))
		parks := l.deliverPage(ctx, p.entries, *careful)
		*careful = *careful && len(p.entries) == 0
		done := settledPrefix(p.entries)
		p.end = p.end && done == len(p.entries)
		next := record{passed: l.passed, reading: l.reading, slot: l.slot, id: l.id, parks: parks}
		next.add(p.entries[:done])
		if p.end {
			next.passed, next.reading, next.slot, next.id = l.reading, window{}, slotLate, 0
			rec.confirmed = l.reading
		}
		if next.messages == 0 && !p.end { // nothing to record, so nobody else gives the parking back
			for range parks {
				l.st.parking.RUnlock()
			}
			return // before anything was settled
		}
		l.passed, l.reading, l.slot, l.id = next.passed, next.reading, next.slot, next.id
		rec.queue <- next
		if p.end || done < len(p.entries) || ctx.Err() != nil {
			return // what was not settled is read again from there
		}
	}
}

// errStale makes a lane ask whether it is still this worker's.
var errStale = errors.New("the lease could not be renewed in time")

// settledPrefix is up to where all is settled: a stop may leave the rest.
func settledPrefix(entries []*entry) int {
	for i, e := range entries {
		if !e.settled {
			return i
		}
	}
	return len(entries)
}

// add makes entries part of what n records.
func (n *record) add(entries []*entry) {
	for _, e := range entries {
		seq := e.Seq
		if n.messages == 0 {
			n.min, n.max = seq, seq
		}
		n.min, n.max = min(n.min, seq), max(n.max, seq)
		n.messages++
		n.slot, n.id = e.place, seq
		if e.aside != nil {
			n.aside = append(n.aside, *e.aside)
		}
	}
}

// dealPages deals out a window whose rows came with it.
func (l *lane) dealPages(ctx context.Context, entries []*entry, pages chan<- page) {
	defer close(pages)
	limit := l.st.Fit(l.st.opts.page)
	for end := false; !end; {
		n := min(limit, len(entries))
		end = n == len(entries)
		select {
		case pages <- page{entries: entries[:n], end: end}:
		case <-ctx.Done():
			return
		}
		entries = entries[n:]
	}
}

// readPages reads from p to the end of its window, until ctx ends.
func (l *lane) readPages(ctx context.Context, p position, pages chan<- page) {
	defer close(pages)
	for {
		entries, end, err := l.st.readPage(ctx, l, p)
		if err != nil && ctx.Err() != nil {
			return
		}
		select {
		case pages <- page{entries, end, err}:
		case <-ctx.Done():
			return
		}
		if err != nil || end {
			return
		}
		last := entries[len(entries)-1]
		p.slot, p.id = last.place, last.Seq
	}
}

func (st *stream) readPage(ctx context.Context, l *lane, p position) (entries []*entry, end bool, err error) {
	ctx, cancel := st.Bounded(ctx)
	defer cancel()
	limit := st.Fit(st.opts.page)
	started := time.Now()
	rows, err := st.DB.Query(ctx, query.Page, st.ID, l.slotFrom, l.slotUpto,
		p.passed.n, p.passed.h, p.reading.n, p.reading.h, p.slot, p.id, limit, p.low, p.late)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	block := make([]entry, 0, min(limit, 1000))
	size := 0
	for rows.Next() {
		block = append(block, entry{})
		e := &block[len(block)-1]
		if err := e.scan(rows); err != nil {
			return nil, false, err
		}
		e.Topic = st.Topic
		size += len(e.Payload)
	}
	if err := rows.Err(); err != nil {
		return nil, false, err
	}
	st.Counters.Claim.Observe(time.Since(started))
	st.Weigh(size, len(block))
	entries = make([]*entry, len(block))
	for i := range block {
		entries[i] = &block[i]
	}
	return entries, len(block) < limit, nil
}

// deliverPage settles the page: every message is delivered or put aside, unless
// the lane is to stop, or the outcomes of others wait for this page's record. Of
// an ordered stream's key it delivers one message after the other, and once one
// has failed, or others are aside, none. It returns how often it holds the
// stream's parking, which the recorder gives back with the page's record.
func (l *lane) deliverPage(ctx context.Context, entries []*entry, careful bool) (parks int) {
	crash.Point("claimed")
	d := &pageRun{l: l, ctx: ctx, ordered: l.isOrdered(), began: time.Now(), postponed: map[claim.Key]bool{}}
	var todo []*entry
	for _, e := range entries {
		switch {
		case !e.due: // it waits in a row of its own, and takes no part in its key's order
			e.settled = true
			e.aside = &aside{entry: e, outcome: claim.Outcome{Kind: later}}
		case careful: // three owners died here: each message alone, where a death is counted
			d.putAside(e, claim.Outcome{Kind: doubt})
		default:
			todo = append(todo, e)
		}
	}
	for failures := 0; len(todo) > 0; {
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
		// The sink is unavailable, and is asked again when the breaker allows; or
		// the leases are not renewed.
		failures++
		pause := work.Backoff(failures, 10*time.Millisecond, time.Second)
		if n, wait := l.st.Destination.Limit(1); n == 0 {
			pause = max(wait, pause)
		}
		work.Sleep(ctx, pause)
	}
	d.asideGaps(entries)
	if d.parks {
		return 1
	}
	return 0
}

func (l *lane) isOrdered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ordered
}

// pageRun is the delivery of one page, by up to Concurrency goroutines. Each key
// of an ordered stream is one goroutine's, so that its messages' entries have one
// writer.
type pageRun struct {
	l       *lane
	ctx     context.Context // ended: begin nothing more
	ordered bool
	began   time.Time

	mu        sync.Mutex
	parks     bool               // guarded by mu: the stream's parking is held
	cut       bool               // guarded by mu: nothing more was begun because of it
	postponed map[claim.Key]bool // guarded by mu: keys of which no more is tried in this pass
}

// cutAfter is how long outcomes of messages that are aside wait for a page on
// which others of their keys were put behind them.
const cutAfter = time.Second

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
	// go on to the next of its key. While the parking is held nobody else ends the
	// waiting.
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = d.cut || (d.parks && d.l.st.waiting.Load())
	return d.cut
}

// pass tries each message once: by batches if the sink takes them, else key by
// key, or in any order if none is kept. It returns when all attempts have.
func (d *pageRun) pass(todo []*entry) {
	clear(d.postponed)
	st := d.l.st
	var workers sync.WaitGroup
	switch {
	case st.Group > 0:
		workers.Go(func() { d.inBatches(todo, st.Group) })
	case !d.ordered:
		var next atomic.Int64
		for range min(st.Concurrency, len(todo)) {
			workers.Go(func() {
				for i := next.Add(1) - 1; i < int64(len(todo)); i = next.Add(1) - 1 {
					d.one(todo[i])
				}
			})
		}
	default:
		for _, list := range byKey(todo, min(st.Concurrency, len(todo))) {
			workers.Go(func() {
				for _, e := range list {
					d.one(e)
				}
			})
		}
	}
	workers.Wait()
	for _, e := range todo {
		if e.tried {
			d.settle(e, errEnded)
		}
	}
}

// errEnded is the outcome of an attempt that ended its goroutine.
var errEnded = errors.New("the attempt called runtime.Goexit, as t.FailNow does")

// byKey deals messages out to n hands, those of one key to one hand, in order.
func byKey(todo []*entry, n int) [][]*entry {
	hands := make([][]*entry, n)
	for i, e := range todo {
		at := i % n
		if e.Key != "" {
			at = int(fnv(e.Key) % uint32(n))
		}
		hands[at] = append(hands[at], e)
	}
	return hands
}

// asideGaps, where the page has ended early, puts aside what was not delivered
// before something that was: a page is recorded up to one position, and what is
// delivered is not to come again because of what is not.
func (d *pageRun) asideGaps(entries []*entry) {
	d.mu.Lock()
	early := d.cut || d.ctx.Err() != nil
	d.mu.Unlock()
	if !early || d.l.isLost() {
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

// attempted reports whether the message was, and is settled: one that was only
// put behind others, or waits for its time, may as well be read again.
func (e *entry) attempted() bool {
	return e.settled && (e.aside == nil || (e.aside.outcome.Kind != park && e.aside.outcome.Kind != later))
}

// fnv spreads keys over goroutines.
func fnv(key string) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h
}

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

// attempt hands messages to the sink; a panic is an outcome of all of them. A
// worker that was frozen hands over nothing before it knows that the lane is
// still its own.
func (d *pageRun) attempt(batch []*entry, msgs []*claim.Message) {
	if d.l.st.stale() {
		for _, e := range batch {
			d.postpone(e)
		}
		return
	}
	for _, e := range batch {
		e.tried = true
	}
	crash.Point("attempting")
	results := d.deliver(msgs)
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

func (d *pageRun) deliver(msgs []*claim.Message) (results []error) {
	defer func() {
		if v := recover(); v != nil {
			err := &work.Panic{Value: v, Stack: debug.Stack()}
			results = make([]error, len(msgs))
			for i := range results {
				results[i] = err
			}
		}
	}()
	return d.l.st.Destination.Deliver(d.l.working, msgs)
}

// mayTry reports whether the message may be attempted now; if others of its key
// are aside it joins them. That is decided under the parking, or the last of
// those others could be let go between the look and the record, and this one
// would stand behind nothing.
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
	if d.l.nothingBlocked() {
		return true
	}
	hash := keyHash(e.Tenant, e.Key)
	if !d.l.isBlocked(hash) {
		return true
	}
	d.lockParking()
	if !d.l.isBlocked(hash) { // let go meanwhile
		return true
	}
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
	if o.Kind == claim.Outage || context.Cause(d.l.working) != nil {
		d.postpone(e)
		return
	}
	d.putAside(e, o)
}

// postpone has the page wait with e, and its key: nothing is counted.
func (d *pageRun) postpone(e *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.postponed[e.OfKey()] = e.Key != ""
}

// putAside makes e a message with a row of its own, behind which others of its
// key stand.
func (d *pageRun) putAside(e *entry, o claim.Outcome) {
	a := &aside{entry: e, outcome: o}
	if d.ordered && e.Key != "" {
		hash := keyHash(e.Tenant, e.Key)
		a.hash = &hash
		d.lockParking()
		d.l.block(hash)
	}
	e.settled, e.aside = true, a
}

// lockParking takes the stream's parking (for reading: pages do not exclude each
// other) until the page is recorded: whoever lets keys go waits for that.
func (d *pageRun) lockParking() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.parks {
		d.l.st.parking.RLock()
		d.parks = true
	}
}
