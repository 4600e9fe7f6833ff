package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// warmUp is published before what counts.
const warmUp = time.Second

// publishers is how many connections keep the pace of the latency measure.
const publishers = 4

// latency measures the time from the return of a publisher's commit to the
// call of the handler, at a steady pace. A handler that is called before the
// publisher has heard of its commit counts as 0.
func latency(ctx context.Context, e *env) error {
	n := int(float64(e.opts.rate) * (e.opts.steady + warmUp).Seconds())
	publishing, err := e.pool(ctx, publishers)
	if err != nil {
		return err
	}
	working, err := e.pool(ctx, workerConns)
	if err != nil {
		return err
	}
	p, err := e.publisher(publishing)
	if err != nil {
		return err
	}
	h := newHands(n)
	w, err := e.work(ctx, working, h.handle)
	if err != nil {
		return err
	}
	committed := make([]time.Duration, n) // since the hands' beginning
	var clients sync.WaitGroup
	errs := make([]error, publishers)
	started := time.Now()
	for c := range publishers {
		clients.Go(func() {
			for i := c; i < n && errs[c] == nil; i += publishers {
				time.Sleep(time.Until(started.Add(time.Duration(i) * time.Second / time.Duration(e.opts.rate))))
				errs[c] = pgx.BeginFunc(ctx, publishing, func(tx pgx.Tx) error { return p.one(ctx, tx, i) })
				committed[i] = time.Since(h.begun)
				if w, ok := w.(waker); ok {
					w.wake()
				}
			}
		})
	}
	clients.Wait()
	published := time.Since(started)
	err = errors.Join(errs...)
	if err == nil {
		err = h.wait(ctx, w)
	}
	if stopping := w.stop(); err == nil {
		err = stopping
	}
	if err != nil {
		return err
	}
	first := int(float64(e.opts.rate) * warmUp.Seconds())
	waits := make([]time.Duration, 0, n-first)
	for i := first; i < n; i++ {
		waits = append(waits, max(0, time.Duration(h.at[i].Load()-1)-committed[i]))
	}
	slices.Sort(waits)
	e.recordQuantiles(waits)
	e.record("achieved rate", "messages/s", float64(n)/published.Seconds())
	e.expect("calls of the handler", int(h.calls.Load()), n)
	return e.expectStored(ctx, 0, n)
}

// recordQuantiles records those of waits, which are sorted.
func (e *env) recordQuantiles(waits []time.Duration) {
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50", 0.50}, {"p95", 0.95}, {"p99", 0.99}, {"max", 1}} {
		e.record(q.name, "ms", waits[int(q.of*float64(len(waits)-1))].Seconds()*1000)
	}
}
