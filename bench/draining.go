package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// drainLimit is when a worker that does not get done is given up.
const drainLimit = 10 * time.Minute

// drain measures how fast a worker finishes what waits for it, from its start
// until the database has everything finished.
func drain(ctx context.Context, e *env) error {
	n := e.opts.messages
	if _, err := e.fill(ctx, n); err != nil {
		return err
	}
	if err := e.settle(ctx); err != nil {
		return err
	}
	pool, err := e.pool(ctx, workerConns)
	if err != nil {
		return err
	}
	took, err := e.drainAll(ctx, pool, n)
	if err != nil {
		return err
	}
	e.record("drained", "messages/s", float64(n)/took.Seconds())
	return e.expectStored(ctx, 0, n)
}

// drainAll starts a worker, waits until it has finished n messages in the
// database, and stops it.
func (e *env) drainAll(ctx context.Context, pool *pgxpool.Pool, n int) (time.Duration, error) {
	return e.drainInto(ctx, pool, newHands(n))
}

func (e *env) drainInto(ctx context.Context, pool *pgxpool.Pool, h *hands) (time.Duration, error) {
	started := time.Now()
	w, err := e.work(ctx, pool, h.handle)
	if err != nil {
		return 0, err
	}
	err = h.wait(ctx, w)
	took := time.Since(started)
	if stopping := w.stop(); err == nil {
		err = stopping
	}
	h.expectAll(e)
	return took, err
}

// hands are a handler that does nothing but note what came, and when.
type hands struct {
	calls   atomic.Int64
	reached atomic.Int64
	at      []atomic.Int64 // nanoseconds since begun, plus 1
	begun   time.Time
	all     chan struct{} // closed when each message has come
}

func newHands(n int) *hands {
	return &hands{at: make([]atomic.Int64, n), begun: time.Now(), all: make(chan struct{})}
}

func (h *hands) handle(n int) {
	h.calls.Add(1)
	if !h.at[n].CompareAndSwap(0, int64(time.Since(h.begun))+1) {
		return
	}
	if h.reached.Add(1) == int64(len(h.at)) {
		close(h.all)
	}
}

// expectAll checks that each message has come, and none twice.
func (h *hands) expectAll(e *env) {
	e.expect("calls of the handler", int(h.calls.Load()), len(h.at))
	e.expect("messages that reached the handler", int(h.reached.Load()), len(h.at))
}

// last is when the last message came for the first time.
func (h *hands) last() time.Time {
	var most int64
	for i := range h.at {
		most = max(most, h.at[i].Load())
	}
	return h.begun.Add(time.Duration(most))
}

// first is when the first message came, since h was made.
func (h *hands) first() time.Duration {
	least := h.at[0].Load()
	for i := range h.at {
		least = min(least, h.at[i].Load())
	}
	return time.Duration(least)
}

// wait returns when each message has come and the database has them finished.
// It asks the database only then, so that asking takes no time from the work.
func (h *hands) wait(ctx context.Context, w worker) error {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	select {
	case <-h.all:
	case <-ctx.Done():
		return fmt.Errorf("%d of %d messages came: %w", h.reached.Load(), len(h.at), ctx.Err())
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := w.drained(ctx)
		if done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("all messages came, but are not finished in the database: %w", ctx.Err())
		}
	}
}
