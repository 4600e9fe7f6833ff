package deed

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
	seq      *int64        // the log's number, as the last answer has it
	pause    time.Duration // until the next question
	movedAt  time.Time     // when seq was last seen to move
	look     time.Duration // until the next look whether or not the log moved
	lookAt   time.Time
	deepAt   time.Time            // from when on a look goes below the floors
	subs     []int                // the statement's arguments: the subscriptions,
	floors   []pgtype.Timestamptz // and from when on each is looked at
	bySub    map[int]*source
	failures int
}

// watch asks until ctx ends. What fails is asked again, ever less often: without
// an answer the queues sweep by themselves, and the lanes stand still.
func (c *Client) watch(ctx context.Context) {
	w := &watcher{pause: watchBusy, look: watchBusy, bySub: map[int]*source{}}
	for _, s := range c.sources {
		w.subs = append(w.subs, s.ID)
		w.bySub[s.ID] = s
	}
	w.floors = make([]pgtype.Timestamptz, len(c.sources))
	if len(w.subs) == 0 {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		woken := false
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			woken = true
		case <-timer.C:
		}
		if err := c.ask(ctx, w, woken); err != nil && ctx.Err() == nil {
			w.failures++
			c.opts.Logger.Warn("watching the log failed; will try again", "error", sqlstate.WithHint(err), "failures", w.failures)
			timer.Reset(work.Backoff(w.failures, 50*time.Millisecond, 5*time.Second))
			continue
		}
		w.failures = 0
		timer.Reset(w.pause/2 + rand.N(w.pause))
	}
}

// ask asks once, tells sources and lanes what they have to know, and sets when to
// ask next. woken: somebody has just committed, or says so.
func (c *Client) ask(ctx context.Context, w *watcher, woken bool) error {
	started := time.Now()
	known := w.seq
	looking := woken || !started.Before(w.lookAt)
	if looking {
		known = nil
	}
	deep := looking && !started.Before(w.deepAt)
	for i, id := range w.subs {
		w.floors[i] = w.bySub[id].queue.Floor(deep)
	}
	a, err := c.fetchNews(ctx, w, known, w.floors)
	now := time.Now()
	if deep {
		// Below the floors there may be many finished entries to step over.
		w.deepAt = now.Add(min(max(watchDeep, 20*now.Sub(started)), 30*time.Second))
	}
	if err != nil {
		return err
	}
	if a.step.to != (window{}) && a.step.to != a.step.from {
		c.windows.publish(a.step)
	}
	for _, id := range a.streams {
		w.bySub[id].BecomeStream()
	}
	for _, id := range a.ready {
		w.bySub[id].Wake()
	}
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

// answer is what deed.watch says.
type answer struct {
	seq            int64
	ready, streams []int
	step           windowStep // to nothing, if there is no later window
}

// fetchNews sends the statement and reads its answer, which is a row about all and
// then, if the first says that they are whole, the rows of the new window, each
// with its subscription.
func (c *Client) fetchNews(ctx context.Context, w *watcher, known *int64, floors []pgtype.Timestamptz) (a answer, err error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	a.step.from = c.windows.current()
	var at *int64
	var slotsFrom, slotsUpto []*int32
	if c.streaming() {
		at = &a.step.from.n
		for _, id := range w.subs {
			from, upto := w.bySub[id].slotRange()
			slotsFrom, slotsUpto = append(slotsFrom, from), append(slotsUpto, upto)
		}
	}
	rows, err := c.workers.Query(ctx, query.Watch, known, w.subs, floors, at, sqlvalue.NullIfZero(a.step.from.h), slotsFrom, slotsUpto)
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
	err = rows.Scan(append([]any{&a.seq, &a.ready, &a.streams, &to, &h, &a.step.slots, &a.step.low, &a.step.late, &whole}, rest...)...)
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
				a.step.rows[id] = &span{from: *slotsFrom[i], upto: *slotsUpto[i]}
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
		e.Topic = w.bySub[id].Topic
		a.step.rows[id].entries = append(a.step.rows[id].entries, e)
	}
	return a, rows.Err()
}
