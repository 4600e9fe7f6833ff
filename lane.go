package deed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// errLaneLost ends a lane that has another owner.
var errLaneLost = errors.New("the lane has another owner")

// errWindowLost makes a lane begin from its durable position again.
var errWindowLost = errors.New("the last window is not what it was, as after a failover")

// confirmEvery is how often a lane to which nothing comes records how far it
// has looked, so that old windows can be forgotten.
const confirmEvery = 10 * time.Minute

// confirmStop is how often a lane that has stopped for a change of lanes says so.
const confirmStop = 5 * time.Second

// lane goes through its slots of the log, from window to window and page by
// page: it reads a page, delivers it, records it with one row, and meanwhile
// reads the next one. All it knows it has read from durable rows, and each
// statement that relies on them names them: one that finds others, as after a
// failover, makes the lane begin from its durable position again (the window
// protocol's rule 11).
//
// Three goroutines are at it. The reader (run, read, nextWindow, readWindow) owns
// the position and everything below it here. One reads pages ahead (readPages,
// dealPages), and knows only the position it was given. The recorder writes rows,
// at most recordsAhead behind the reader, and ends the reading when it cannot.
// The first part of the fields is set once, before run.
type lane struct {
	st                 *stream
	no                 int
	fence              int64 // of this ownership: a record under an older one is refused
	slotFrom, slotUpto int32
	takeovers          int                     // owners in a row that lost the lane where they had taken it: a poison message kills processes
	cancel             context.CancelCauseFunc // ends it without a record
	working            context.Context         // until then
	quit               chan struct{}           // closed: give the lane back
	changed            chan struct{}           // the fields below have changed
	done               chan struct{}           // closed when it has ended

	mu       sync.Mutex
	ordered  bool               // guarded by mu
	last     *int64             // guarded by mu: see assignedLane.lastWindow
	quitting bool               // guarded by mu: quit is closed
	blocked  map[int64]struct{} // guarded by mu: hashes of keys with messages aside

	// The reader's.
	breaks   int      // of the feed of windows, when the position was loaded
	position          // of the reader; what is recorded may be behind it
	ready    []*entry // if isReady: all that the window reading has for this lane
	isReady  bool
}

// slotLate is where a window's reading begins: with the late rows, those of
// transactions that passed did not see although it was past their numbers. See
// deed.page for what follows.
const slotLate = -2

// position is a place in the log. Everything up to the window passed has been
// read. If there is a window reading, it is being read: of what it shows and
// passed does not, the rows up to (slot, id) have been read, in the order that
// deed.page gives them. Between two windows slot is slotLate and id is 0.
type position struct {
	passed, reading window
	slot            int32
	id              int64
	low             *int64 // as deed.window_late says, if it is known
	late            []string
}

// String is the position in deed.finish_page's words.
func (p position) String() string {
	return fmt.Sprintf("%d/%d/%d/%d", p.passed.n, p.reading.n, p.slot, p.id)
}

func newLane(st *stream, given assignedLane) *lane {
	l := &lane{
		st: st, no: given.no, fence: given.fence, slotFrom: given.slotFrom, slotUpto: given.slotUpto, takeovers: given.takeovers,
		ordered: given.ordered, last: given.lastWindow,
		quit: make(chan struct{}), changed: make(chan struct{}, 1), done: make(chan struct{}),
	}
	l.working, l.cancel = context.WithCancelCause(context.Background())
	if given.giveBack {
		l.quitting = true
		close(l.quit)
	}
	return l
}

// notify tells a running lane what the keeper says of it.
func (l *lane) notify(given assignedLane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	other := (l.last == nil) != (given.lastWindow == nil) || l.last != nil && *l.last != *given.lastWindow
	l.ordered, l.last = given.ordered, given.lastWindow
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
	defer close(l.done)
	defer l.st.forget(l)
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
		if time.Since(began) > 10*time.Second {
			failures = 0
		}
		failures++
		l.st.Log.Warn("reading a lane failed; will go on from its recorded position", "lane", l.no, "error", sqlstate.WithHint(err), "failures", failures)
		if !work.Sleep(ctx, work.Backoff(failures, 20*time.Millisecond, 5*time.Second)) {
			break
		}
	}
	if l.isLost() {
		return
	}
	rctx, cancel := l.st.Bounded(context.WithoutCancel(ctx))
	defer cancel()
	if _, err := l.st.DB.Exec(rctx, query.ReleaseLane, l.st.ID, l.no, l.fence); err != nil {
		l.st.Log.Warn("giving a lane back failed; another worker takes it when its lease ends", "lane", l.no, "error", sqlstate.WithHint(err))
	}
}

// isLost reports whether the lane is, or may be, another worker's.
func (l *lane) isLost() bool { return errors.Is(context.Cause(l.working), work.ErrLeaseLost) }

// read goes on from the recorded position until ctx ends, and returns when all
// that has been delivered is recorded. It returns why it ended early, if the
// lane is to go on from its recorded position: a failed read or record, or a
// failover that took windows back.
func (l *lane) read(ctx context.Context) error {
	n, err := l.load(ctx)
	if err != nil {
		return err
	}
	careful := l.takeovers >= 3
	l.takeovers = 0
	pages, cancel := context.WithCancelCause(ctx) // ended by the recorder, too
	rec := newRecorder(l, n, cancel)
	go rec.run()
	for pages.Err() == nil {
		if l.reading.n == 0 && !l.nextWindow(pages, rec) {
			continue
		}
		l.readWindow(pages, rec, &careful)
	}
	close(rec.queue)
	<-rec.done
	cancel(nil)
	if ctx.Err() == nil {
		return context.Cause(pages)
	}
	return rec.err
}

// loadPosition reads the recorded position.
func (l *lane) loadPosition(ctx context.Context) (n int64, err error) {
	l.position = position{}
	err = l.st.DB.QueryRow(ctx, query.LanePosition, l.st.ID, l.no, l.fence).
		Scan(&l.takeovers, &n, &l.passed.n, &l.passed.h, &l.reading.n, &l.reading.h, &l.slot, &l.id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errLaneLost
	}
	return n, err
}

// load reads the recorded position, and which keys have messages aside.
func (l *lane) load(ctx context.Context) (n int64, err error) {
	ctx, cancel := l.st.Bounded(ctx)
	defer cancel()
	l.ready, l.isReady = nil, false
	l.breaks = l.st.windows.broken()
	if n, err = l.loadPosition(ctx); err != nil {
		return 0, err
	}
	rows, err := l.st.DB.Query(ctx, query.BlockedHashes, l.st.ID, l.slotFrom, l.slotUpto)
	if err != nil {
		return 0, err
	}
	blocked := map[int64]struct{}{}
	hashes, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, err
	}
	for _, h := range hashes {
		blocked[h] = struct{}{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked = blocked
	return n, nil
}

// nextWindow finds the window to read to next, and reports whether there is
// one. It waits until ctx ends or the lane has other business. Normally that is
// the newest one the process knows of; while the lanes are being changed
// (deed.make_lanes) all of them stop between two windows, say so, and then read
// up to the last of the windows at which they stopped.
func (l *lane) nextWindow(ctx context.Context, rec *recorder) bool {
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	switch {
	case last == nil:
		wait, cancel := context.WithTimeout(ctx, confirmEvery)
		defer cancel()
		step, seen, ok := l.st.windows.next(wait, l.passed, l.breaks, l.st.ID, l.slotFrom, l.slotUpto, l.changed)
		l.passed = seen // windows that have nothing for these slots are gone past
		if ok {
			l.reading, l.low, l.late = step.to, nil, nil
			if step.from == l.passed {
				l.low, l.late = step.low, step.late
				l.ready, l.isReady = step.within(l.st.ID, l.slotFrom, l.slotUpto)
			}
			l.slot, l.id = slotLate, 0
		} else if l.st.windows.broken() != l.breaks {
			rec.stop(errWindowLost)
		} else if wait.Err() != nil && ctx.Err() == nil {
			rec.confirm(l.passed)
		}
		return ok
	case *last != 0 && *last > l.passed.n:
		h, err := l.windowID(ctx, *last)
		if err != nil || h == "" {
			rec.stop(cmp.Or(err, errors.New("the window at which the lanes are to stop is gone")))
			return false
		}
		l.reading, l.low, l.late, l.slot, l.id = window{*last, h}, nil, nil, slotLate, 0
		return true
	case *last == 0: // stop here, and say where that is
		rec.confirm(l.passed)
		rec.pause()
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

func (l *lane) windowID(ctx context.Context, n int64) (h string, err error) {
	ctx, cancel := l.st.Bounded(ctx)
	defer cancel()
	err = l.st.DB.QueryRow(ctx, query.Window, n).Scan(&h)
	return h, err
}

// unblock lets keys go that have no messages aside any more.
func (l *lane) unblock(hashes []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range hashes {
		delete(l.blocked, h)
	}
}

func (l *lane) isBlocked(hash int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.blocked[hash]
	return ok
}

func (l *lane) block(hash int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked[hash] = struct{}{}
}

func (l *lane) nothingBlocked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.blocked) == 0
}

// keyHash identifies a tenant's key among those with messages aside; its first
// byte is the one by which deed.slot chooses the slot, which all tenants' keys
// of a name share. Relays of one protocol number make the same of it.
func keyHash(owner tenant.ID, key string) int64 {
	ofKey := sha256.Sum256([]byte(key))
	both := sha256.Sum256(append(owner[:], ofKey[:8]...))
	return int64(binary.BigEndian.Uint64(append(ofKey[:1:1], both[:7]...)))
}
