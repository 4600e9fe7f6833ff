package local

import (
	"context"
	"time"

	"github.com/deedhq/deed/internal/runstep"
	"github.com/deedhq/deed/internal/work"
)

// Beside is what a [run.Starter] with e as its Engine knows of it: e takes the first steps of what that starts, while it runs and has room.
func (e *Engine) Beside() runstep.Engine {
	return runstep.Engine{Wake: e.Wake, InHand: e.intake.InHand, Claim: e.claim}
}

// Intake is where the loop gets them from.
func (e *Engine) Intake() *work.Intake[*item] { return &e.intake }

// claim is what e takes of the steps that so many requests start; nil: none.
func (e *Engine) claim(requests int) *runstep.Claim {
	most := e.intake.Promise(requests)
	if most == 0 {
		return nil
	}
	return &runstep.Claim{Queues: e.queues, Worker: e.opts.Worker, Lease: e.opts.Lease, Most: most, Take: func(steps []runstep.Claimed, at time.Time) {
		items := make([]*item, len(steps))
		for i, s := range steps {
			items[i] = &item{
				run: s.Run, place: s.Place, claim: s.Claim, tenant: s.Tenant, step: s.Step, attempt: 1, engine: 1, keyN: 1, once: s.AtMostOnce,
				plan: s.Plan, version: s.Version, hash: s.Hash, input: s.Input, at: at,
			}
		}
		if !e.intake.Give(most, items, at) {
			e.giveBack(items)
		}
	}}
}

// giveBack is for what was claimed as e stopped: nothing of it was begun.
func (e *Engine) giveBack(items []*item) {
	ends := make([]*ending, len(items))
	for i, it := range items {
		ends[i] = it.unbegun(0)
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.opts.Deadline)
	defer cancel()
	said, err := e.finish(ctx, e.pool, ends)
	for n := 1; err != nil && passing(err) && work.Sleep(ctx, work.Backoff(n, 50*time.Millisecond, time.Second)); n++ {
		said, err = e.finish(ctx, e.pool, ends)
	}
	if err != nil {
		e.opts.Logger.Warn("steps that were claimed as the engine stopped could not be given back; they are begun when their leases are over", "error", err, "steps", len(items))
		return
	}
	e.count(ends, said)
}
