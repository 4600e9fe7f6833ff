package deed

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/deedhq/deed/internal/breaker"
	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/tenant"
)

// destination is a subscription's sink, behind its breaker and under its time-out:
// the claim.Destination of queues and streams, and the only caller of sinks. Below
// it nothing knows what a handler is, and above it nothing of rows.
type destination struct {
	sink    Sink
	timeout time.Duration // of a call; 0: none
	breaker *breaker.Breaker
	failing failingTenants
	calls   calls
	removed *removedTenants // the client's; nil: nobody looks
	// answered is a tenant whose probe was answered, where others' messages had failed;
	// nil once it has been favoured.
	answered atomic.Pointer[tenant.ID]
	sub      *claim.Subscription // counts and logs
}

// Limit says how many of n may be attempted now, and if none when to ask again.
func (d *destination) Limit(n int) (int, time.Duration) { return d.breaker.Limit(n) }

// PassOver are the tenants whose messages have failed, while the sink is probed.
func (d *destination) PassOver() []tenant.ID {
	if d.breaker.State() == "closed" {
		return nil
	}
	return d.failing.list()
}

// Forgive forgets those tenants.
func (d *destination) Forgive() { d.failing.clear() }

// Favoured is the tenant for which the sink has just answered, while it failed with
// others'; once.
func (d *destination) Favoured() *tenant.ID { return d.answered.Swap(nil) }

// Deliver hands messages to the sink, unless the breaker is open, and returns
// an outcome each, read; nil means that all were delivered. A panic is the
// caller's business: it is an outcome of what was handed over, and to the breaker an
// answer, as the sink was there to panic.
//
// The sink is given copies of the rows, which share their payloads and headers: what
// it sets in a message reaches nobody else.
//
// What is of a tenant that was removed meanwhile is not handed over.
func (d *destination) Deliver(ctx context.Context, rows []*claim.Message) []error {
	if d.removed == nil {
		return d.deliver(ctx, rows)
	}
	return d.removed.passBy(rows, func(rest []*claim.Message) []error { return d.deliver(ctx, rest) })
}

func (d *destination) deliver(ctx context.Context, rows []*claim.Message) (results []error) {
	round, _, cause := d.breaker.Admit()
	if cause != nil {
		results = make([]error, len(rows))
		for k := range results {
			results[k] = claim.Describe(cause)
		}
		return results
	}
	msgs := make([]Message, len(rows))
	for k, row := range rows {
		msgs[k] = messageOf(row)
	}
	if d.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.timeout)
		defer cancel()
	}
	if len(msgs) == 1 { // a call for several belongs to no publisher's trace
		ctx = WithTrace(ctx, traceOf(msgs[0].Headers))
	}
	started := time.Now()
	// From here on the call shows: in the counters, and in deed status if it is long.
	counters := &d.sub.Counters
	counters.Attempts.Add(int64(len(msgs)))
	counters.InFlight.Add(int64(len(msgs)))
	defer func() { // also after a panic
		counters.InFlight.Add(-int64(len(msgs)))
		counters.Deliver.Observe(time.Since(started))
		d.report(round, msgs, results)
	}()
	n := d.calls.begin(msgs)
	defer d.calls.end(n)
	return read(d.sink.Deliver(ctx, msgs), len(msgs))
}

// read reads what a sink returned for n messages: one outcome each, or nil. It does so
// within the call, while a panic of an error's methods is still the attempt's.
func read(given []error, n int) []error {
	if given == nil {
		return nil
	}
	results := make([]error, n)
	if len(given) != n { // which of them is whose nobody knows
		failed := claim.Describe(fmt.Errorf("the sink returned %d outcomes for %d messages: all of them count as failed", len(given), n))
		for k := range results {
			results[k] = failed
		}
		return results
	}
	for k, err := range given {
		if err != nil {
			results[k] = claim.Describe(err)
		}
	}
	return results
}

// report tells the breaker what a call of a round has come to; those that were begun
// before the breaker's last change it passes over. It counts the sink as down only if all it was given says so, and as up if it
// has taken or refused for good any of it. What fails for its message's sake shows
// nothing: the next probe may be told that the sink is still down. After a probe that failed, of whatever, another tenant's turn comes.
func (d *destination) report(round int, msgs []Message, results []error) {
	var worst error         // an outage only if nothing else was returned; nil: the sink is up
	var failing []tenant.ID // whose messages failed for their own sake
	for k, err := range results {
		failed, ok := err.(*claim.Failed)
		if !ok || failed.Outcome.Kind == claim.Discard {
			worst = nil
			break
		}
		if failed.Outcome.Kind != claim.Outage {
			failing = append(failing, msgs[k].Tenant)
		}
		// A failure for a message's own sake says more than an outage beside it: the
		// sink was reached.
		if worst == nil || failed.Outcome.Kind != claim.Outage {
			worst = failed.Err
		}
	}
	switch {
	case worst == nil: // whoever failed before may have failed for the sink's sake
		effect := d.breaker.Up(round)
		if effect == breaker.Closed && d.failing.hasOthers(msgs[0].Tenant) {
			d.answered.Store(&msgs[0].Tenant)
		}
		if effect != breaker.Stale {
			d.failing.clear()
		}
		if effect == breaker.Closed {
			d.sub.Log.Info("the sink answers again; the subscription goes on")
			d.sub.Wake()
		}
	case !IsUnavailable(worst):
		if d.breaker.Nothing(round) != breaker.Stale {
			d.failing.add(failing)
		}
	default:
		switch effect, _ := d.breaker.Down(round, worst, pauseAsked(worst)); effect {
		case breaker.Opened:
			d.sub.Log.Warn("the sink is unavailable; the subscription pauses", "error", worst)
		case breaker.StillDown: // it may say so of these messages alone, of which there may be many
			for _, m := range msgs {
				failing = append(failing, m.Tenant)
			}
			d.failing.add(failing)
		}
	}
}

// messageOf is a row as sinks see it: with the id that it has outside the database.
func messageOf(row *claim.Message) Message {
	return Message{
		Topic: row.Topic, Key: row.Key, Type: row.Type, Payload: row.Payload, ContentType: row.ContentType,
		Headers: row.Headers, Tenant: row.Tenant,
		ID: NewID(row.CreatedAt, row.Seq), Seq: row.Seq, CreatedAt: row.CreatedAt, Attempt: row.Attempt,
	}
}

// logAttributes are what a log line says of a row: nothing of its content but what
// the publisher gave to be found again by.
func logAttributes(row *claim.Message) []any {
	return []any{
		"message_id", NewID(row.CreatedAt, row.Seq), "seq", row.Seq, "tenant", row.Tenant,
		"correlation_id", row.Headers[headerCorrelation],
	}
}
