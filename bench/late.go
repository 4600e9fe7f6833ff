package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
)

// lateMessages are published by the transaction that stays open.
const lateMessages = 1000

// late measures what a stream makes of long transactions: of one that publishes
// very many messages, and of one that commits after very many of others have
// been read. A worker runs all the time, so both are read as late rows.
func late(ctx context.Context, e *env) error {
	pool, err := e.pool(ctx, workerConns)
	if err != nil {
		return err
	}
	if err := e.drainBurst(ctx, pool); err != nil {
		return fmt.Errorf("one transaction: %w", err)
	}
	if err := e.drainBesideOpen(ctx, pool); err != nil {
		return fmt.Errorf("one left open: %w", err)
	}
	return e.expectStored(ctx, 0, e.opts.burst+lateMessages+e.opts.later)
}

// drainBurst measures from the commit of the transaction until all its messages
// are finished, and by how much the heap grows meanwhile.
func (e *env) drainBurst(ctx context.Context, pool *pgxpool.Pool) error {
	n := e.opts.burst
	h := newHands(n)
	w, err := e.work(ctx, pool, h.handle)
	if err != nil {
		return err
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		return errors.Join(err, w.stop())
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing after a commit
	if err := publishIn(ctx, tx, 0, n, e.opts.batch); err != nil {
		return errors.Join(err, w.stop())
	}
	e.expect("messages that came before the commit", int(h.calls.Load()), 0)
	heap := watchHeap()
	started := time.Now()
	if err := tx.Commit(ctx); err != nil {
		return errors.Join(err, w.stop())
	}
	err = h.wait(ctx, w)
	took := time.Since(started)
	grown := heap()
	if err := errors.Join(err, w.stop()); err != nil {
		return err
	}
	e.record("one transaction", "messages/s", float64(n)/took.Seconds())
	e.record("one transaction: heap", "MB", grown)
	h.expectAll(e)
	return nil
}

// drainBesideOpen measures how fast messages are drained beside a transaction
// that has published and stays open, and then how soon its own come.
func (e *env) drainBesideOpen(ctx context.Context, pool *pgxpool.Pool) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing after a commit
	if err := publishIn(ctx, tx, 0, lateMessages, e.opts.batch); err != nil {
		return err
	}
	if _, err := e.fillFrom(ctx, lateMessages, e.opts.later); err != nil {
		return err
	}
	own, others := newHands(lateMessages), newHands(e.opts.later)
	started := time.Now()
	w, err := e.work(ctx, pool, func(n int) {
		if n < lateMessages {
			own.handle(n)
		} else {
			others.handle(n - lateMessages)
		}
	})
	if err != nil {
		return err
	}
	err = others.wait(ctx, w)
	took := time.Since(started)
	e.expect("messages that came before the commit", int(own.calls.Load()), 0)
	if err == nil {
		started = time.Now()
		err = tx.Commit(ctx)
	}
	if err == nil {
		err = own.wait(ctx, w)
	}
	if err := errors.Join(err, w.stop()); err != nil {
		return err
	}
	e.record("beside one open", "messages/s", float64(e.opts.later)/took.Seconds())
	e.record("its own, after its commit", "ms", float64(own.last().Sub(started).Microseconds())/1e3)
	own.expectAll(e)
	others.expectAll(e)
	return nil
}

// publishIn publishes count messages in tx, so many a call.
func publishIn(ctx context.Context, tx pgx.Tx, from, count, batch int) error {
	for upto := from + count; from < upto; from += batch {
		msgs := make([]deed.Message, min(batch, upto-from))
		for i := range msgs {
			msgs[i] = deedMessage(from + i)
		}
		if _, err := deed.Publish(ctx, tx, msgs...); err != nil {
			return err
		}
	}
	return nil
}

// watchHeap samples this program's heap until the function that it returns is
// called, which says by how many megabytes it had grown at the most.
func watchHeap() (stop func() float64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	base, peak := m.HeapAlloc, m.HeapAlloc
	quit := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
		}
	})
	return func() float64 {
		close(quit)
		sampling.Wait()
		return float64(peak-base) / 1e6
	}
}
