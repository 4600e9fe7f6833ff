package deed

import (
	"context"
	"errors"
	"time"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/work"
)

// recordsAhead is how many delivered pages may wait for their record. After a
// crash they come again, so there are few.
const recordsAhead = 4

// record is what has become of a page, or of several in a row: how far the lane
// has come, and what is put aside. It becomes one row of deed.progress, and one
// of deed.pending for each message that is put aside, in one transaction.
type record struct {
	passed, reading window // reading is zero if everything up to passed has been read
	slot            int32
	id              int64
	messages        int
	min, max        int64 // numbers of the first and last of the messages
	aside           []aside
	parks           int  // so often the stream's parking is held for reading, until this is recorded
	pause           bool // only say that the lane has stopped
}

// position is where the lane is then.
func (n *record) position() position {
	return position{passed: n.passed, reading: n.reading, slot: n.slot, id: n.id}
}

// aside is a message that is put aside.
type aside struct {
	entry   *entry
	hash    *int64
	outcome claim.Outcome // as for deed.finish_page
}

// merge makes n the record of both pages: pages that were delivered while another
// was being recorded cost one row.
func (n *record) merge(more record) {
	if n.messages == 0 {
		n.min, n.max = more.min, more.max
	} else if more.messages > 0 {
		n.min, n.max = min(n.min, more.min), max(n.max, more.max)
	}
	n.passed, n.reading, n.slot, n.id = more.passed, more.reading, more.slot, more.id
	n.messages += more.messages
	n.parks += more.parks
	n.aside = append(n.aside, more.aside...)
}

// recorder records a lane's pages, one after the other, in the background. The
// reader sends records, closes the queue when it ends, and waits for done. Each
// record names the row of deed.progress that it follows, so one that is sent
// twice, or by an owner that has lost the lane, changes nothing. After the first
// that fails for good, err is set and the rest of the queue is thrown away: the
// messages come again.
type recorder struct {
	l     *lane
	n     int64    // of the lane's last row of deed.progress; the recorder's
	last  position // which that row says; the recorder's
	queue chan record
	done  chan struct{}
	stop  context.CancelCauseFunc // ends the reading
	err   error                   // once done is closed: why not all was recorded

	// The reader's: the last window that a record sent says is passed.
	confirmed window
}

func newRecorder(l *lane, n int64, stop context.CancelCauseFunc) *recorder {
	r := &recorder{l: l, n: n, last: l.position, queue: make(chan record, recordsAhead), done: make(chan struct{}), stop: stop}
	if l.reading.n == 0 {
		r.confirmed = l.passed
	}
	return r
}

// confirm records that everything up to at has been read, unless that is recorded:
// where nothing comes, windows are gone past without a row.
func (r *recorder) confirm(at window) {
	if at != r.confirmed {
		r.confirmed = at
		r.queue <- record{passed: at, slot: slotLate}
	}
}

// pause says that the lane has stopped where it confirmed.
func (r *recorder) pause() { r.queue <- record{pause: true} }

// run records until the queue is closed; pages that have come meanwhile as one.
func (r *recorder) run() {
	defer close(r.done)
	for next := range r.queue {
		for more := r.waiting(); more != nil; more = r.waiting() {
			if next.pause || more.pause {
				r.record(next)
				next = *more
				continue
			}
			next.merge(*more)
		}
		r.record(next)
	}
}

// waiting returns the next record if it is there already.
func (r *recorder) waiting() *record {
	select {
	case more, ok := <-r.queue:
		if ok {
			return &more
		}
	default:
	}
	return nil
}

// errPlaceMoved makes a lane begin from its durable position again: waiting
// does not bring back the row that a failover took.
var errPlaceMoved = errors.New("the recorded position is not where this worker left it")

// record tries until the page is recorded, or cannot be; then the reading ends.
func (r *recorder) record(rec record) {
	defer func() {
		for range rec.parks {
			r.l.st.parking.RUnlock()
		}
	}()
	ctx := context.WithoutCancel(r.l.working) // also what a stop has cancelled
	for failures := 0; r.err == nil; {
		crash.Point("settling")
		err := r.try(ctx, rec)
		if err == nil {
			crash.Point("settled")
			return
		}
		if r.l.isLost() || !passing(err) || errors.Is(err, errLaneLost) || errors.Is(err, errPlaceMoved) || failures == 20 {
			r.err = err
			r.stop(err)
			return
		}
		failures++
		r.l.st.Log.Warn("recording a page failed; will try again", "lane", r.l.no, "error", sqlstate.WithHint(err), "failures", failures)
		work.Sleep(ctx, work.Backoff(failures, 20*time.Millisecond, 5*time.Second))
	}
}

func (r *recorder) try(ctx context.Context, rec record) error {
	st := r.l.st
	ctx, cancel := st.Bounded(ctx)
	defer cancel()
	if rec.pause {
		_, err := st.DB.Exec(ctx, query.PauseLane, st.ID, r.l.no, r.l.fence)
		return err
	}
	a := asideColumns(rec.aside)
	var n *int64
	var dead []bool
	started := time.Now()
	err := st.DB.QueryRow(ctx, query.FinishPage, st.ID, r.l.no, r.l.fence, r.n, r.last.String(),
		rec.passed.n, rec.passed.h, sqlvalue.NullIfZero(rec.reading.n), sqlvalue.NullIfZero(rec.reading.h), rec.slot, rec.id,
		rec.messages, sqlvalue.NullIfZero(rec.min), sqlvalue.NullIfZero(rec.max), st.Worker,
		a.ids, a.slots, a.hashes, a.texts, a.after, a.kinds).Scan(&n, &dead)
	if err != nil {
		return err
	}
	if n == nil {
		return r.compare(ctx, rec)
	}
	r.n, r.last = *n, rec.position()
	st.Counters.Finish.Observe(time.Since(started))
	st.recorded(rec, dead)
	return nil
}

// compare finds out why nothing was recorded: it was before, and the answer was
// lost (then it counts as recorded now); or the lane is another's (errLaneLost); or
// a failover has taken rows back (errPlaceMoved).
func (r *recorder) compare(ctx context.Context, rec record) error {
	var there lane
	there.st, there.no, there.fence, there.slotFrom, there.slotUpto = r.l.st, r.l.no, r.l.fence, r.l.slotFrom, r.l.slotUpto
	n, err := there.loadPosition(ctx)
	switch {
	case err != nil:
		return err
	case n == r.n+1 && there.passed == rec.passed && there.reading == rec.reading && there.slot == rec.slot && there.id == rec.id:
		r.n, r.last = n, rec.position()
		r.l.st.recorded(rec, nil)
		return nil
	default:
		return errPlaceMoved
	}
}

// columns are what deed.finish_page takes.
type columns struct {
	ids    []int64
	slots  []int32
	hashes []*int64
	texts  []string
	after  []*float64
	kinds  []string
}

func asideColumns(list []aside) (c columns) {
	for _, a := range list {
		c.ids = append(c.ids, a.entry.Seq)
		c.slots = append(c.slots, a.entry.slot)
		c.hashes = append(c.hashes, a.hash)
		c.texts = append(c.texts, a.outcome.Text)
		c.after = append(c.after, a.outcome.After)
		c.kinds = append(c.kinds, string(a.outcome.Kind))
	}
	return c
}

// recorded counts and logs what a page has come to, once it is committed.
func (st *stream) recorded(rec record, dead []bool) {
	st.Counters.Delivered.Add(int64(rec.messages - len(rec.aside)))
	for i, a := range rec.aside {
		switch {
		case i < len(dead) && dead[i]:
			st.AccountDeath(&a.entry.Message, a.outcome, 1)
		case a.outcome.Kind == claim.Retry:
			st.AccountRetry(&a.entry.Message, a.outcome, "attempts", 1)
		}
	}
	if len(rec.aside) > 0 {
		st.Wake()
	}
}
