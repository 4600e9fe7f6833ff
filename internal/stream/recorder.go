package stream

import (
	"context"
	"errors"
	"sync/atomic"
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
	position       // where the lane is then
	messages int   // read since the record before, with those put aside
	min, max int64 // numbers of the first and last of the messages
	aside    []aside
	keys     []int64 // of messages that the pages have put aside, once each; also of those that this does not record
	pause    bool    // no more than that the lane has stopped where the record before says
}

// add makes entries part of what n records.
func (n *record) add(entries []*entry) {
	for _, e := range entries {
		if n.messages == 0 {
			n.min, n.max = e.Seq, e.Seq
		}
		n.min, n.max = min(n.min, e.Seq), max(n.max, e.Seq)
		n.messages++
		n.position = n.position.at(e.place, e.Seq)
		if e.aside != nil {
			n.aside = append(n.aside, *e.aside)
		}
	}
}

// merge makes n the record of both pages: pages that were delivered while another
// was being recorded cost one row.
func (n *record) merge(more record) {
	if n.messages == 0 {
		n.min, n.max = more.min, more.max
	} else if more.messages > 0 {
		n.min, n.max = min(n.min, more.min), max(n.max, more.max)
	}
	n.position = more.position
	n.messages += more.messages
	n.keys = append(n.keys, more.keys...)
	n.aside = append(n.aside, more.aside...)
}

// recorder records a lane's pages, one after the other, in the background. The
// lane's reader sends records, closes the queue when it ends, and waits for done. Each
// record names the row of deed.progress that it follows, so one that is sent
// twice, or by an owner that has lost the lane, changes nothing. After the first
// that fails for good, err is set and the rest of the queue is thrown away: the
// messages come again.
type recorder struct {
	st      *stream
	lane    int
	fence   int64           // of the owner whose records these are
	working context.Context // the lane's: says whether it is lost; records outlast it otherwise
	keys    *blockedKeys    // the lane's
	left    *atomic.Bool    // the lane's
	queue   chan record
	done    chan struct{}           // closed when the queue has been closed and worked off
	stop    context.CancelCauseFunc // ends the reading
	err     error                   // once done is closed: why not all was recorded

	// The recorder's own. Together they say which row is there, as far as it knows:
	// a row that says anything else was written by another, or taken back.
	n    int64    // of the lane's last row of deed.progress
	last position // which that row says

	// The lane's reader's: the last window that a record sent says is passed.
	confirmed window
}

// confirm records that everything up to at has been read, unless that is recorded:
// where nothing comes, windows are gone past without a row.
func (r *recorder) confirm(at window) {
	if at != r.confirmed {
		r.confirmed = at
		r.queue <- record{position: position{passed: at, slot: slotLate}}
	}
}

// pause says that the lane has stopped where it confirmed.
func (r *recorder) pause() { r.queue <- record{pause: true} }

// run records until the queue is closed; pages that have come meanwhile as one.
func (r *recorder) run() {
	defer close(r.done)
	for next := range r.queue {
		for more := r.waiting(); more != nil; more = r.waiting() {
			if next.pause || more.pause { // what is said of a pause is said of the row before it
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
// In either case its keys wait for it no more: what was put aside is in the database
// then, or will be read again.
func (r *recorder) record(rec record) {
	defer r.keys.recorded(rec.keys)
	ctx := context.WithoutCancel(r.working) // also what a stop has cancelled
	for failures := 0; r.err == nil; {
		crash.Point("settling")
		err := r.try(ctx, rec)
		if err == nil {
			crash.Point("settled")
			return
		}
		if isLost(r.working) || r.left.Load() || !sqlstate.Passing(err) || errors.Is(err, errLaneLost) || errors.Is(err, errPlaceMoved) || failures == 20 {
			r.err = err
			r.stop(err)
			return
		}
		failures++
		r.st.Log.Warn("recording a page failed; will try again", "lane", r.lane, "error", sqlstate.WithHint(err), "failures", failures)
		work.Sleep(ctx, work.Backoff(failures, 20*time.Millisecond, 5*time.Second))
	}
}

// try sends a record. The row that it makes follows r.n and r.last under r.fence, or
// is not made.
func (r *recorder) try(ctx context.Context, rec record) error {
	st := r.st
	ctx, cancel := st.Bounded(ctx)
	defer cancel()
	if rec.pause {
		_, err := st.DB.Exec(ctx, query.PauseLane, st.ID, r.lane, r.fence)
		return err
	}
	a := asideColumns(rec.aside)
	var n *int64
	var dead []bool
	started := time.Now()
	err := st.DB.QueryRow(ctx, query.FinishPage, st.ID, r.lane, r.fence,
		r.n, r.last.passed.n, r.last.reading.n, r.last.slot, r.last.id, // the row that it follows
		rec.passed.n, rec.passed.h, sqlvalue.NullIfZero(rec.reading.n), sqlvalue.NullIfZero(rec.reading.h), rec.slot, rec.id,
		rec.messages, sqlvalue.NullIfZero(rec.min), sqlvalue.NullIfZero(rec.max), st.Worker,
		a.ids, a.slots, a.hashes, a.texts, a.after, a.kinds).Scan(&n, &dead)
	if err != nil {
		return err
	}
	if n == nil {
		return r.compare(ctx, rec)
	}
	r.n, r.last = *n, rec.position
	st.Counters.Finish.Observe(time.Since(started))
	r.account(rec, dead)
	return nil
}

// compare finds out why nothing was recorded: it was before, and the answer was
// lost (then it counts as recorded now); or the lane is another's (errLaneLost); or
// a failover has taken rows back (errPlaceMoved).
func (r *recorder) compare(ctx context.Context, rec record) error {
	there, err := r.st.recorded(ctx, r.lane, r.fence)
	switch {
	case err != nil:
		return err
	case there.n == r.n+1 && there.position == rec.position:
		r.n, r.last = there.n, rec.position
		r.account(rec, nil)
		return nil
	default:
		return errPlaceMoved
	}
}

// columns are what deed.finish_page takes of the messages that are put aside: one
// array each, in the order of the page.
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

// account counts and logs what a page has come to, once it is committed, and has
// what is put aside looked at. dead says of each message that is aside whether it
// is dead; nil: that is not known.
func (r *recorder) account(rec record, dead []bool) {
	r.st.Counters.Delivered.Add(int64(rec.messages - len(rec.aside)))
	for i, a := range rec.aside {
		switch {
		case i < len(dead) && dead[i]:
			r.st.AccountDeath(&a.entry.Message, a.outcome, 1)
		case a.outcome.Kind == claim.Retry:
			r.st.AccountRetry(&a.entry.Message, a.outcome, "attempts", 1)
		}
	}
	if len(rec.aside) > 0 {
		r.st.Wake()
	}
}
