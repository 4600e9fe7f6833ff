package deed

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/deedhq/deed/internal/work"
)

const (
	watchBusy = 2 * time.Millisecond   // between questions while messages come
	watchIdle = 300 * time.Millisecond // when none has come for a while
	watchLook = time.Second            // between looks while the log stands still, at the most
	watchDeep = 50 * time.Millisecond  // between looks below the floors, at the least
)

// watcher asks for news on behalf of all subscriptions of a process: one cheap
// statement, often while messages come and seldom when they do not. A message
// takes its number before it commits, so after the log has moved the watcher
// looks again at growing intervals.
type watcher struct {
	seq        *int64
	pause      time.Duration // until the next question
	movedAt    time.Time
	look       time.Duration // until the next look whether or not the log moved
	lookAt     time.Time
	deepAt     time.Time // from when on a look goes below the floors
	subs       []int
	floors     []pgtype.Timestamptz
	bySub      map[int]*source
	failures   int
	beginnings []pgtype.Timestamptz
}

func (c *Client) watch(ctx context.Context) {
	w := &watcher{pause: watchBusy, look: watchBusy, bySub: map[int]*source{}}
	for _, s := range c.sources {
		id := int(s.id.Load())
		w.subs = append(w.subs, id)
		w.bySub[id] = s
		w.beginnings = append(w.beginnings, pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true})
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
			c.opts.Logger.Warn("watching the log failed; will try again", "error", withHint(err), "failures", w.failures)
			timer.Reset(work.Backoff(w.failures, 50*time.Millisecond, 5*time.Second))
			continue
		}
		w.failures = 0
		timer.Reset(w.pause/2 + rand.N(w.pause))
	}
}

func (c *Client) ask(ctx context.Context, w *watcher, woken bool) error {
	started := time.Now()
	known := w.seq
	looking := woken || !started.Before(w.lookAt)
	if looking {
		known = nil
	}
	deep := looking && !started.Before(w.deepAt)
	floors := w.beginnings
	if !deep {
		floors = w.floors
		for i, id := range w.subs {
			floors[i] = w.bySub[id].watchFloor()
		}
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	var seq int64
	var ready, streams []int
	var at, to *int64
	var h string
	step := news{from: c.windows.current()}
	if c.streaming() {
		at = &step.from.n
	}
	err := c.workers.QueryRow(ctx, query["watch"], known, w.subs, floors, at, nullIfZero(step.from.h)).
		Scan(&seq, &ready, &streams, &to, &h, &step.slots, &step.low, &step.late)
	now := time.Now()
	if deep {
		// Below the floors there may be many finished entries to step over.
		w.deepAt = now.Add(min(max(watchDeep, 20*now.Sub(started)), 30*time.Second))
	}
	if err != nil {
		return err
	}
	if to != nil && (window{*to, h}) != step.from {
		step.to = window{*to, h}
		c.windows.publish(step)
	}
	for _, id := range streams {
		w.bySub[id].becomeStream()
	}
	for _, id := range ready {
		w.bySub[id].poke()
	}
	switch {
	case w.seq == nil || seq != *w.seq || woken:
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
	w.seq = &seq
	return nil
}
