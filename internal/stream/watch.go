package stream

import (
	"cmp"
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

// Watch asks until ctx ends; wake has it ask at once. What fails is asked again,
// ever less often: without an answer the queues sweep by themselves, and the lanes
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
		woken := false
		select {
		case <-ctx.Done():
			return
		case <-wake:
			woken = true
		case <-timer.C:
		}
		if err := w.ask(ctx, woken); err != nil && ctx.Err() == nil {
			w.failures++
			p.Log.Warn("watching the log failed; will try again", "error", sqlstate.WithHint(err), "failures", w.failures)
			timer.Reset(work.Backoff(w.failures, 50*time.Millisecond, 5*time.Second))
			continue
		}
		w.failures = 0
		timer.Reset(w.pause/2 + rand.N(w.pause))
	}
}

// ask asks once, tells queues and lanes what they have to know, and sets when to
// ask next. woken: somebody has just committed, or says so.
func (w *watcher) ask(ctx context.Context, woken bool) error {
	started := time.Now()
	known := w.seq
	looking := woken || !started.Before(w.lookAt)
	if looking {
		known = nil
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

// tell tells queues and lanes what they have to know.
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

// fetch sends the statement and reads its answer, which is a row about all and
// then, if the first says that they are whole, the rows of the new window, each
// with its subscription.
func (w *watcher) fetch(ctx context.Context, known *int64) (a answer, err error) {
	ctx, cancel := w.bounded(ctx)
	defer cancel()
	a.step.from = w.Feed.current()
	var at *int64
	var slotsFrom, slotsUpto []*int32
	if w.streaming() {
		at = &a.step.from.n
		for _, id := range w.subs {
			var from, upto *int32
			if s := w.byID[id].slots(); s != nil {
				from, upto = &s.from, &s.upto
			}
			slotsFrom, slotsUpto = append(slotsFrom, from), append(slotsUpto, upto)
		}
	}
	rows, err := w.DB.Query(ctx, query.Watch, known, w.subs, w.floors, at, sqlvalue.NullIfZero(a.step.from.h), slotsFrom, slotsUpto)
	if err != nil {
		return a, err
	}
	defer rows.Close()
	var to *int64
	var h string
	var whole bool
	if !rows.Next() {
		return a, cmp.Or(rows.Err(), error(pgx.ErrNoRows))
	}
	rest := make([]any, 12) // columns that only the rows after the first have
	err = rows.Scan(append([]any{&a.seq, &a.ready, &a.streams, &to, &h, &a.step.slots, &a.step.late.low, &a.step.late.xids, &whole}, rest...)...)
	if err != nil {
		return a, err
	}
	if to != nil {
		a.step.to = window{*to, h}
	}
	if whole {
		a.step.rows = map[int]*span{}
		for i, id := range w.subs {
			if slotsFrom[i] != nil {
				a.step.rows[id] = &span{slots: slots{*slotsFrom[i], *slotsUpto[i]}}
			}
		}
	}
	var id int
	before := append(make([]any, 9), &id) // columns that only the first row has, then the subscription
	for rows.Next() {
		var e entry
		if err := e.scan(rows, before...); err != nil {
			return a, err
		}
		e.Topic = w.byID[id].Topic
		a.step.rows[id].entries = append(a.step.rows[id].entries, e)
	}
	return a, rows.Err()
}
