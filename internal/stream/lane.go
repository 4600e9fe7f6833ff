package stream

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

// errWindowLost makes a lane begin from its durable position again.
var errWindowLost = errors.New("the last window is not what it was, as after a failover")

// errStale makes a lane ask whether it is still this worker's.
var errStale = errors.New("the lease could not be renewed in time")

// confirmEvery is how often a lane to which nothing comes records how far it
// has looked, so that old windows can be forgotten.
const confirmEvery = 10 * time.Minute

// confirmStop is how often a lane that has stopped for a change of lanes says so.
const confirmStop = 5 * time.Second

// suspectAfter is how many owners in a row must have lost a lane where they had
// taken it for the next one to take its first page for what killed them.
const suspectAfter = 3

// lane goes through its slots of the log, from window to window and page by
// page: it reads a page, delivers it, records it with one row, and meanwhile
// reads the next one. All it knows it has read from durable rows, and each
// statement that relies on them names them: one that finds others, as after a
// failover, makes the lane begin from its durable position again (the window
// protocol's rule 11).
//
// Three goroutines are at it. The lane's reader (run, read, nextWindow, readWindow;
// a [Reader] is the whole subscription's) owns the position and everything below it
// here. One reads pages ahead (readPages,
// dealPages), and knows only the position it was given. The recorder writes rows,
// at most recordsAhead behind the reader, and ends the reading when it cannot.
type lane struct {
	// Set once, before run.
	st      *stream
	no      int
	fence   int64 // of this ownership: a record under an older one is refused
	slots   slots
	working context.Context         // of deliveries and records: outlasts a stop by the grace
	cancel  context.CancelCauseFunc // ends working: the lane is lost, or the grace is over
	quit    chan struct{}           // closed by notify: give the lane back
	changed chan struct{}           // holds 1: lastWindow is another
	done    chan struct{}           // closed when it has ended, by who runs it
	keys    *blockedKeys
	left    atomic.Bool // a stop waits no longer: nothing more is recorded

	released atomic.Pointer[time.Time] // when it had been given back: an answer asked for before may still name it

	mu         sync.Mutex
	ordered    bool   // guarded by mu: as of assignedLane
	lastWindow *int64 // guarded by mu: as of assignedLane
	quitting   bool   // guarded by mu: quit is closed

	// The reader's.
	breaks   int      // of the feed, when the position was loaded: another number, and it is not to be trusted
	position          // up to where pages have been given to the recorder
	late     lateRows // of the window reading, if known
	ready    []*entry // if isReady: all that the window reading has for this lane
	isReady  bool
}

func newLane(st *stream, given assignedLane) *lane {
	l := &lane{
		st: st, no: given.no, fence: given.fence, slots: given.slots,
		ordered: given.ordered, lastWindow: given.lastWindow,
		quit: make(chan struct{}), changed: make(chan struct{}, 1), done: make(chan struct{}), keys: newBlockedKeys(),
	}
	l.working, l.cancel = context.WithCancelCause(context.Background())
	if given.giveBack {
		l.quitting = true
		close(l.quit)
	}
	return l
}

// notify tells a running lane what the assigner says of it. That it is to stop, or
// may go on, it hears at once; that its order is another with the next page.
func (l *lane) notify(given assignedLane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	other := (l.lastWindow == nil) != (given.lastWindow == nil) || l.lastWindow != nil && *l.lastWindow != *given.lastWindow
	l.ordered, l.lastWindow = given.ordered, given.lastWindow
	if given.giveBack && !l.quitting {
		l.quitting = true
		close(l.quit)
	}
	if other {
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}
}

// run reads until ctx ends or the lane is to be given back, and then gives it
// back; or until it has another owner. after is the lane of the same number
// before this one: two of one fence must not be at it at once.
func (l *lane) run(ctx context.Context, after *lane) {
	defer l.cancel(nil)
	if after != nil {
		<-after.done
	}
	// Two phases: ctx lets what is under way end, working does not.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(l.working, stop)()
	go func() {
		select {
		case <-l.quit:
			stop()
		case <-ctx.Done():
		}
	}()
	for failures := 0; ; {
		began := time.Now()
		err := l.read(ctx)
		if ctx.Err() != nil || errors.Is(err, errLaneLost) {
			break
		}
		if time.Since(began) > 10*time.Second { // it had got on
			failures = 0
		}
		failures++
		l.st.Log.Warn("reading a lane failed; will go on from its recorded position", "lane", l.no, "error", sqlstate.WithHint(err), "failures", failures)
		if !work.Sleep(ctx, work.Backoff(failures, 20*time.Millisecond, 5*time.Second)) {
			break
		}
	}
	if isLost(l.working) || l.left.Load() {
		return
	}
	// All is recorded that was delivered: the next owner need not wait for the lease.
	rctx, cancel := l.st.Bounded(context.WithoutCancel(ctx))
	defer cancel()
	if _, err := l.st.DB.Exec(rctx, query.ReleaseLane, l.st.ID, l.no, l.fence); err != nil {
		l.st.Log.Warn("giving a lane back failed; another worker takes it when its lease ends", "lane", l.no, "error", sqlstate.WithHint(err))
		return
	}
	now := time.Now()
	l.released.Store(&now)
}

// read goes on from the recorded position until ctx ends, and returns when all
// that has been delivered is recorded. It returns why it ended early, if the
// lane is to go on from its recorded position: a failed read or record, or a
// failover that took windows back.
func (l *lane) read(ctx context.Context) error {
	r, err := l.load(ctx)
	if err != nil {
		return err
	}
	suspect := r.takeovers >= suspectAfter        // until a page has had messages
	pages, cancel := context.WithCancelCause(ctx) // ended by the recorder, too
	rec := l.newRecorder(r, cancel)
	go rec.run()
	for pages.Err() == nil {
		if l.reading.n == 0 && !l.nextWindow(pages, rec) {
			continue
		}
		l.readWindow(pages, rec, &suspect)
	}
	close(rec.queue)
	<-rec.done
	cancel(nil)
	if ctx.Err() == nil {
		return context.Cause(pages)
	}
	return rec.err
}

// newRecorder makes the recorder of what follows r. stop ends the reading. Where the
// lane stands between two windows the first is confirmed: the row says so.
func (l *lane) newRecorder(r recorded, stop context.CancelCauseFunc) *recorder {
	rec := &recorder{
		st: l.st, lane: l.no, fence: l.fence, working: l.working, keys: l.keys, left: &l.left, n: r.n, last: r.position,
		queue: make(chan record, recordsAhead), done: make(chan struct{}), stop: stop,
	}
	if r.reading.n == 0 {
		rec.confirmed = r.passed
	}
	return rec
}

// load reads the recorded position, and which keys have messages aside. The
// breaks are counted first: a failover meanwhile shows as another number later.
func (l *lane) load(ctx context.Context) (recorded, error) {
	ctx, cancel := l.st.Bounded(ctx)
	defer cancel()
	l.ready, l.isReady, l.late = nil, false, lateRows{}
	l.breaks = l.st.feed.broken()
	r, err := l.st.recorded(ctx, l.no, l.fence)
	if err != nil {
		return r, err
	}
	l.position = r.position
	rows, err := l.st.DB.Query(ctx, query.BlockedHashes, l.st.ID, l.slots.from, l.slots.upto)
	if err != nil {
		return r, err
	}
	hashes, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return r, err
	}
	l.keys.load(hashes)
	return r, nil
}

// nextWindow finds the window to read to next, and reports whether there is
// one. It waits until ctx ends or the lane has other business. Normally that is
// the newest one the process knows of; while the lanes are being changed
// (deed.make_lanes) all of them stop between two windows, say so, and then read
// up to the last of the windows at which they stopped.
func (l *lane) nextWindow(ctx context.Context, rec *recorder) bool {
	l.mu.Lock()
	last := l.lastWindow
	l.mu.Unlock()
	switch {
	case last == nil:
		return l.awaitWindow(ctx, rec)
	case *last == 0: // stop here, and say where that is: a mark is below 0
		rec.confirm(l.passed)
		rec.pause()
	case *last > l.passed.n:
		h, err := l.windowID(ctx, *last)
		if err != nil || h == "" {
			rec.stop(cmp.Or(err, errors.New("the window at which the lanes are to stop is gone")))
			return false
		}
		l.position, l.late = l.position.begin(window{*last, h}), lateRows{}
		return true
	default: // the last window has been read
		rec.confirm(l.passed)
	}
	again := time.NewTimer(confirmStop)
	defer again.Stop()
	select {
	case <-ctx.Done():
	case <-l.changed:
	case <-again.C:
		rec.confirmed = window{} // a crash may have taken back what was said
	}
	return false
}

// awaitWindow waits for a window that has something for the lane's slots; those
// that have nothing are gone past. Now and then it has recorded that they are.
func (l *lane) awaitWindow(ctx context.Context, rec *recorder) bool {
	wait, cancel := context.WithTimeout(ctx, confirmEvery)
	defer cancel()
	step, seen, ok := l.st.feed.next(wait, l.passed, l.breaks, l.st.ID, l.slots, l.changed)
	l.passed = seen
	switch {
	case ok:
		l.position, l.late = l.position.begin(step.to), lateRows{}
		if step.from == l.passed { // what is known of the step holds for what the lane has to read
			l.late = step.late
			l.ready, l.isReady = step.within(l.st.ID, l.slots)
		}
	case l.st.feed.broken() != l.breaks:
		rec.stop(errWindowLost)
	case wait.Err() != nil && ctx.Err() == nil:
		rec.confirm(l.passed)
	}
	return ok
}

// windowID is the transaction id of a window, by which the lane knows it again; empty:
// there is none of that number any more.
func (l *lane) windowID(ctx context.Context, n int64) (h string, err error) {
	ctx, cancel := l.st.Bounded(ctx)
	defer cancel()
	err = l.st.DB.QueryRow(ctx, query.Window, n).Scan(&h)
	return h, err
}

// readWindow goes through the rest of the window, page by page: while one is
// delivered the next is read and the one before recorded. It returns at the
// window's end; or earlier, with the position after the last message that is
// settled with all before it. What it has settled it has given to the recorder.
func (l *lane) readWindow(ctx context.Context, rec *recorder, suspect *bool) {
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := make(chan page, 1) // one is read ahead
	if l.isReady {
		go l.st.dealPages(rctx, l.ready, pages)
		l.ready, l.isReady = nil, false
	} else {
		go l.st.readPages(rctx, l.slots, l.position, l.late, pages)
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
		l.newPageRun(ctx).run(p.entries, *suspect)
		*suspect = *suspect && len(p.entries) == 0
		if !l.hand(rec, p) || ctx.Err() != nil {
			return // what was not settled is read again from there
		}
	}
}

// newPageRun is the delivery of the next page: in order, if the stream keeps one now.
func (l *lane) newPageRun(ctx context.Context) *pageRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &pageRun{
		st: l.st, keys: l.keys, ctx: ctx, working: l.working, ordered: l.ordered,
		began: time.Now(), postponed: map[claim.Key]bool{},
	}
}

// hand gives the recorder what of the page is settled with all before it, and the
// keys on which the page has decided; and moves the lane's position behind that. It
// reports whether there is more of the window to come, and all of the page was
// settled.
func (l *lane) hand(rec *recorder, p page) (more bool) {
	done := settledPrefix(p.entries)
	end := p.end && done == len(p.entries)
	next := record{position: l.position, keys: decidedKeys(p.entries)}
	next.add(p.entries[:done])
	if end {
		next.position = l.position.end()
		rec.confirmed = l.reading
	}
	if next.messages == 0 && !end { // nothing to record: all of it comes again
		l.keys.recorded(next.keys)
		return false // before anything was settled
	}
	l.position = next.position
	rec.queue <- next
	return !end && done == len(p.entries)
}

// decidedKeys are those of the messages that a page has put aside, once each; also of
// those that it does not record.
func decidedKeys(entries []*entry) (hashes []int64) {
	for _, e := range entries {
		if e.aside != nil && e.aside.hash != nil {
			hashes = append(hashes, *e.aside.hash)
		}
	}
	return hashes
}

// settledPrefix is up to where all is settled: a stop may leave the rest.
func settledPrefix(entries []*entry) int {
	for i, e := range entries {
		if !e.settled {
			return i
		}
	}
	return len(entries)
}
