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

	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// errLaneLost ends a lane that has another owner.
var errLaneLost = errors.New("the lane has another owner")

// errWindowsGone makes a lane begin from its durable position again.
var errWindowsGone = errors.New("the last window is not what it was, as after a failover")

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
type lane struct {
	st                 *stream
	no                 int
	fence              int64
	slotFrom, slotUpto int32
	takeovers          int
	cancel             context.CancelCauseFunc // ends it without a record
	working            context.Context         // until then
	quit               chan struct{}           // closed: give the lane back
	news               chan struct{}           // the fields below have changed
	done               chan struct{}           // closed when it has ended

	mu       sync.Mutex
	ordered  bool               // guarded by mu
	last     *int64             // guarded by mu: see heldLane.lastWindow
	quitting bool               // guarded by mu: quit is closed
	blocked  map[int64]struct{} // guarded by mu: hashes of keys with messages aside

	breaks  int      // of the feed of windows, when the position was read
	place            // of the reader; what is recorded may be behind it
	ready   []*entry // if isReady: all of the window to
	isReady bool
}

// slotLate is where a window's reading begins: see deed.page.
const slotLate = -2

// place is a position in the log: everything up to at has been read, and of
// what comes up to the window to, if that is not 0, the rows up to (slot, id).
type place struct {
	at, to window
	slot   int32
	id     int64
	low    *int64 // as deed.window_late says, if it is known
	late   []string
}

// String is the place in deed.finish_page's words.
func (p place) String() string { return fmt.Sprintf("%d/%d/%d/%d", p.at.n, p.to.n, p.slot, p.id) }

func newLane(st *stream, held heldLane) *lane {
	l := &lane{
		st: st, no: held.no, fence: held.fence, slotFrom: held.slotFrom, slotUpto: held.slotUpto, takeovers: held.takeovers,
		ordered: held.ordered, last: held.lastWindow,
		quit: make(chan struct{}), news: make(chan struct{}, 1), done: make(chan struct{}),
	}
	l.working, l.cancel = context.WithCancelCause(context.Background())
	if held.giveBack {
		l.quitting = true
		close(l.quit)
	}
	return l
}

// notify tells a running lane what the keeper says of it.
func (l *lane) notify(held heldLane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := (l.last == nil) != (held.lastWindow == nil) || l.last != nil && *l.last != *held.lastWindow
	l.ordered, l.last = held.ordered, held.lastWindow
	if held.giveBack && !l.quitting {
		l.quitting = true
		close(l.quit)
	}
	if changed {
		select {
		case l.news <- struct{}{}:
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
		l.st.log.Warn("reading a lane failed; will go on from its recorded position", "lane", l.no, "error", withHint(err), "failures", failures)
		if !work.Sleep(ctx, work.Backoff(failures, 20*time.Millisecond, 5*time.Second)) {
			break
		}
	}
	if l.isLost() {
		return
	}
	rctx, cancel := l.st.client.deadline(context.WithoutCancel(ctx))
	defer cancel()
	if _, err := l.st.client.workers.Exec(rctx, query["release_lane"], l.st.id.Load(), l.no, l.fence); err != nil {
		l.st.log.Warn("giving a lane back failed; another worker takes it when its lease ends", "lane", l.no, "error", withHint(err))
	}
}

// isLost reports whether the lane is, or may be, another worker's.
func (l *lane) isLost() bool { return errors.Is(context.Cause(l.working), work.ErrLeaseLost) }

// read goes on from the recorded position until ctx ends, and returns when all
// that has been delivered is recorded.
func (l *lane) read(ctx context.Context) error {
	n, err := l.load(ctx)
	if err != nil {
		return err
	}
	careful := l.takeovers >= 3
	l.takeovers = 0
	pages, cancel := context.WithCancelCause(ctx)
	rec := newRecorder(l, n, cancel)
	go rec.run()
	for pages.Err() == nil {
		if l.to.n == 0 && !l.nextWindow(pages, rec) {
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

// position reads the recorded position.
func (l *lane) position(ctx context.Context) (n int64, err error) {
	l.place = place{}
	err = l.st.client.workers.QueryRow(ctx, query["lane_position"], l.st.id.Load(), l.no, l.fence).
		Scan(&l.takeovers, &n, &l.at.n, &l.at.h, &l.to.n, &l.to.h, &l.slot, &l.id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errLaneLost
	}
	return n, err
}

// load reads the recorded position, and which keys have messages aside.
func (l *lane) load(ctx context.Context) (n int64, err error) {
	ctx, cancel := l.st.client.deadline(ctx)
	defer cancel()
	l.ready, l.isReady = nil, false
	l.breaks = l.st.client.windows.broken()
	if n, err = l.position(ctx); err != nil {
		return 0, err
	}
	rows, err := l.st.client.workers.Query(ctx, query["blocked_hashes"], l.st.id.Load(), l.slotFrom, l.slotUpto)
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
// one. It waits until ctx ends or the lane has other business.
func (l *lane) nextWindow(ctx context.Context, rec *recorder) bool {
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	switch {
	case last == nil:
		wait, cancel := context.WithTimeout(ctx, confirmEvery)
		defer cancel()
		step, seen, ok := l.st.client.windows.next(wait, l.at, l.breaks, int(l.st.id.Load()), l.slotFrom, l.slotUpto, l.news)
		l.at = seen
		if ok {
			l.to, l.low, l.late = step.to, nil, nil
			if step.from == l.at {
				l.low, l.late = step.low, step.late
				l.ready, l.isReady = step.within(int(l.st.id.Load()), l.slotFrom, l.slotUpto)
			}
			l.slot, l.id = slotLate, 0
		} else if l.st.client.windows.broken() != l.breaks {
			rec.fail(errWindowsGone)
		} else if wait.Err() != nil && ctx.Err() == nil {
			rec.confirm(l.at)
		}
		return ok
	case *last != 0 && *last > l.at.n:
		h, err := l.windowID(ctx, *last)
		if err != nil || h == "" {
			rec.fail(cmp.Or(err, errors.New("the window at which the lanes are to stop is gone")))
			return false
		}
		l.to, l.low, l.late, l.slot, l.id = window{*last, h}, nil, nil, slotLate, 0
		return true
	case *last == 0:
		rec.confirm(l.at)
		rec.pause()
	default:
		rec.confirm(l.at)
	}
	again := time.NewTimer(confirmStop)
	defer again.Stop()
	select {
	case <-ctx.Done():
	case <-l.news:
	case <-again.C:
		rec.told = window{} // a crash may have taken back what was said
	}
	return false
}

func (l *lane) windowID(ctx context.Context, n int64) (h string, err error) {
	ctx, cancel := l.st.client.deadline(ctx)
	defer cancel()
	err = l.st.client.workers.QueryRow(ctx, query["window"], n).Scan(&h)
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

// keyID is a key, which is its tenant's own (O13).
type keyID struct {
	tenant tenant.ID
	key    string
}

func idOf(m Message) keyID { return keyID{m.Tenant, m.Key} }

// keyHash identifies a tenant's key among those with messages aside; its first
// byte is the one by which deed.slot chooses the slot, which all tenants' keys
// of a name share. Relays of one protocol number make the same of it.
func keyHash(owner tenant.ID, key string) int64 {
	ofKey := sha256.Sum256([]byte(key))
	both := sha256.Sum256(append(owner[:], ofKey[:8]...))
	return int64(binary.BigEndian.Uint64(append(ofKey[:1:1], both[:7]...)))
}
