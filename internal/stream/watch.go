package stream

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/work"
)

const (
	watchBusy = time.Millisecond       // between questions while messages come
	watchIdle = 300 * time.Millisecond // when none has come for a while
	watchLook = time.Second            // between looks while the log stands still, at the most
	watchDeep = 50 * time.Millisecond  // between looks below the floors, at the least
)

// watcher asks what is new on behalf of all subscriptions of a process: one cheap
// statement, often while messages come and seldom when they do not. It wakes the
// queues that have something to claim, and hands windows to the lanes.
//
// There are two kinds of question. One names the log's number as it was last
// seen (seq), and is answered from memory while that has not moved. A look does
// not, and has the index of what is due read: a message takes its number before
// it commits, and what is scheduled moves nothing when it becomes due. After the
// log has moved the watcher looks at growing intervals, up to watchLook. Windows
// are asked for with every question. One goroutine uses it.
type watcher struct {
	*Process
	seq      *int64        // the log's number, as the last answer has it; nil before the first
	pause    time.Duration // until the next question
	movedAt  time.Time     // when seq was last seen to move
	look     time.Duration // until the next look whether or not the log moved
	lookAt   time.Time     // when that is
	deepAt   time.Time     // from when on a look goes below the floors
	failures int           // in a row

	// The statement's arguments, by the number of the reader.
	subs   []int                // the subscriptions,
	floors []pgtype.Timestamptz // and from when on each is looked at
	byID   map[int]*Reader
}

// Watch asks until ctx ends; wake has it ask at once, but while that fails. What fails
// is asked again, ever less often: without an answer the queues sweep by themselves, and the lanes
// stand still.
func (p *Process) Watch(ctx context.Context, wake <-chan struct{}) {
	if len(p.Readers) == 0 {
		return
	}
	w := &watcher{Process: p, pause: watchBusy, look: watchBusy, byID: map[int]*Reader{}}
	for _, r := range p.Readers {
		w.subs = append(w.subs, r.ID)
		w.byID[r.ID] = r
	}
	w.floors = make([]pgtype.Timestamptz, len(p.Readers))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		woken := false // else it is time to ask
		listen := wake
		if w.failures > 0 {
			listen = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-listen:
			woken = true
		case <-timer.C:
		}
		if err := w.ask(ctx, woken); err != nil && ctx.Err() == nil {
			w.failures++
			p.Log.Warn("watching the log failed; will try again", "error", sqlstate.WithHint(err), "failures", w.failures)
			timer.Reset(work.Backoff(w.failures, 50*time.Millisecond, 5*time.Second))
			continue
		}
		if w.failures > 0 {
			p.Log.Info("watching the log succeeds again", "failures", w.failures)
		}
		w.failures = 0
		timer.Reset(w.pause/2 + rand.N(w.pause)) // processes that began together do not stay so
	}
}

// ask asks once, tells queues and lanes what they have to know, and sets when to
// ask next. woken: somebody has just committed, or says so.
//
// How often it asks follows the log: as fast as it can be answered while that moves,
// and ever more slowly once it has stood still for a while. Looks go by themselves:
// after each the next is twice as far, until the log moves again.
func (w *watcher) ask(ctx context.Context, woken bool) error {
	started := time.Now()
	known := w.seq
	looking := woken || !started.Before(w.lookAt)
	if looking {
		known = nil // then the answer says what is ready even if the log has not moved
	}
	deep := looking && !started.Before(w.deepAt)
	for i, id := range w.subs {
		w.floors[i] = w.byID[id].queue.Floor(deep)
	}
	a, err := w.fetch(ctx, known)
	now := time.Now()
	if deep {
		// Below the floors there may be many finished entries to step over.
		w.deepAt = now.Add(min(max(watchDeep, 20*now.Sub(started)), 30*time.Second))
	}
	if err != nil {
		return err
	}
	w.tell(a)
	switch {
	case w.seq == nil || a.seq != *w.seq || woken:
		w.movedAt, w.pause, w.look = now, watchBusy, watchBusy
	case now.Sub(w.movedAt) > 200*time.Millisecond:
		w.pause = min(2*w.pause, watchIdle)
	}
	if looking {
		w.look = min(2*w.look, watchLook)
	}
	if looking || w.look == watchBusy {
		w.lookAt = now.Add(w.look)
	}
	w.seq = &a.seq
	return nil
}

// tell tells queues and lanes what they have to know. None of it blocks: a lane that
// is busy finds the window later, and a queue that is awake already need not hear it
// twice.
func (w *watcher) tell(a answer) {
	if a.step.to != (window{}) && a.step.to != a.step.from {
		w.Feed.publish(a.step)
	}
	for _, id := range a.streams {
		w.byID[id].BecomeStream()
	}
	for _, id := range a.ready {
		w.byID[id].Wake()
	}
}

// answer is what deed.watch says.
type answer struct {
	seq            int64      // the log's number
	ready, streams []int      // subscriptions that have something to claim, and those of streams
	step           windowStep // to nothing, if there is no later window
}

// watched are the slots of which each subscription wants the rows of a new window, in
// the statement's form: parallel to the subscriptions, null for one without lanes.
type watched struct{ from, upto []*int32 }

func (w *watcher) watched() (s watched) {
	for _, id := range w.subs {
		var from, upto *int32
		if held := w.byID[id].slots(); held != nil {
			from, upto = &held.from, &held.upto
		}
		s.from, s.upto = append(s.from, from), append(s.upto, upto)
	}
	return s
}

// fetch sends the statement and reads its answer: a row about all and then, if that
// says that they are whole, the rows of the new window, each with its subscription.
// They may be used once all have come: then the window has been committed.
func (w *watcher) fetch(ctx context.Context, known *int64) (a answer, err error) {
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	last := w.Feed.current()
	var n *int64 // of the last window; null: no stream is read here, and no window is wanted
	var in watched
	if w.streaming() {
		n, in = &last.n, w.watched()
	}
	rows, err := w.DB.Query(ctx, query.Watch, known, w.subs, w.floors, n, sqlvalue.NullIfZero(last.h), in.from, in.upto)
	if err != nil {
		return a, err
	}
	defer rows.Close()
	for first := true; rows.Next(); first = false {
		var news answer
		var whole bool
		var sub int
		var e entry
		if err := scanWatched(rows, &news, &whole, &sub, &e); err != nil {
			return a, err
		}
		if first {
			a, a.step.from = news, last
			if whole {
				a.step.rows = w.spans(in)
			}
			continue
		}
		e.Topic = w.byID[sub].Topic
		a.step.rows[sub].entries = append(a.step.rows[sub].entries, e)
	}
	if err := rows.Err(); err != nil {
		return a, err
	}
	if rows.CommandTag().RowsAffected() == 0 {
		return a, pgx.ErrNoRows
	}
	return a, nil
}

// spans are those of a window all of whose rows follow, to be filled: also for who
// has asked and gets none, as that there are none is known, too.
func (w *watcher) spans(in watched) map[int]*span {
	spans := map[int]*span{}
	for i, id := range w.subs {
		if in.from[i] != nil {
			spans[id] = &span{slots: slots{*in.from[i], *in.upto[i]}}
		}
	}
	return spans
}

// scanWatched reads a row of the statement: the news, or a message. What the row has
// not is empty.
func scanWatched(rows pgx.Rows, news *answer, whole *bool, sub *int, e *entry) error {
	s := &news.step
	return e.scan(rows, &news.seq, &news.ready, &news.streams, &s.to.n, &s.to.h, &s.slots, &s.late.low, &s.late.xids, whole, sub)
}
