package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/deedhq/deed"
	workflow "github.com/deedhq/deed/run"
)

const (
	lagRate  = 2000 // events a second
	lagBatch = 20   // events of a call
)

// timedProjector is a projector that notes which events are in snapshots.
type timedProjector struct {
	*workflow.Projector
	projected func(int)
}

func (p timedProjector) Deliver(ctx context.Context, ms []deed.Message) []error {
	outcomes := p.Projector.Deliver(ctx, ms)
	if outcomes != nil {
		return outcomes
	}
	for i := range ms {
		var e workflow.Event
		var n int
		if err := json.Unmarshal(ms[i].Payload, &e); err != nil {
			return fail(len(ms), err)
		}
		if _, err := fmt.Sscanf(e.Step, "lag-%d", &n); err == nil { // not the beginning of a run
			p.projected(n)
		}
	}
	return nil
}

// lagging measures the time from the return of an append's commit until its events are in
// stored snapshots, at a steady pace, of a thousand runs.
func lagging(ctx context.Context, e *env) error {
	ids, err := e.runningRuns(ctx)
	if err != nil {
		return err
	}
	n := int(float64(lagRate)*(e.opts.steady+warmUp).Seconds()) / lagBatch * lagBatch
	appending, err := e.pool(ctx, publishers)
	if err != nil {
		return err
	}
	working, err := e.pool(ctx, workerConns)
	if err != nil {
		return err
	}
	h := newHands(n)
	p := workflow.NewProjector(working, workflow.ProjectorOptions{})
	w, err := startClient(ctx, working, deed.Options{Subscriptions: []deed.Subscription{{
		Topic: workflow.Topic, Name: workflow.Subscription, Sink: timedProjector{p, h.handle}, From: deed.FromBeginning,
	}}})
	if err != nil {
		return err
	}
	committed := make([]time.Duration, n) // since the hands' beginning
	errs := make([]error, publishers)
	var clients sync.WaitGroup
	started := time.Now()
	for c := range publishers {
		clients.Go(func() {
			for i := c * lagBatch; i < n && errs[c] == nil; i += publishers * lagBatch {
				time.Sleep(time.Until(started.Add(time.Duration(i) * time.Second / lagRate)))
				events := make([]workflow.New, lagBatch)
				for j := range events {
					events[j] = workflow.New{Run: ids[(i+j)%len(ids)], Type: workflow.StepStarted, Step: fmt.Sprint("lag-", i+j), Attempt: 1}
				}
				_, errs[c] = workflow.Append(ctx, appending, "bench/1", events...)
				for j := range events {
					committed[i+j] = time.Since(h.begun)
				}
			}
		})
	}
	clients.Wait()
	took := time.Since(started)
	err = errors.Join(errs...)
	if err == nil {
		err = h.wait(ctx, w)
	}
	if err = errors.Join(err, w.stop()); err != nil {
		return err
	}
	waits := make([]time.Duration, 0, n)
	for i := int(lagRate * warmUp.Seconds()); i < n; i++ {
		waits = append(waits, max(0, time.Duration(h.at[i].Load()-1)-committed[i]))
	}
	slices.Sort(waits)
	e.recordQuantiles(waits)
	e.record("achieved rate", "events/s", float64(n)/took.Seconds())
	h.expectAll(e)
	e.expect("projected events", int(p.Stats().Events), n+2*len(ids))
	return nil
}
