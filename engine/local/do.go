package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/runstep"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/run/plan"
)

// askAfter is how long a step may have been in hand until it is asked for whether it may still begin.
const askAfter = 200 * time.Millisecond

// announceAfter is after what time a step that is being done is told of; of a shorter one start and end are told together.
const announceAfter = 200 * time.Millisecond

// maxFacts is how many bytes of what other steps came to the expressions of one may see: it is in memory as many times as there are steps in hand, and
// decoded takes ten times that.
const maxFacts = 4 << 20

// Do does one step. What became of it stands in the item; an error is only told for one that a stop may have cut short.
func (e *Engine) Do(ctx context.Context, items []*item) []error {
	it := items[0]
	defer e.suspects.left(it)
	started := time.Now()
	it.started = started
	err := e.do(ctx, it, started)
	if err != nil && it.end == nil {
		it.end = it.failed(err, started)
		it.end.notDone = it.end.notDone && it.first() // that this attempt did nothing says nothing of one before it
	}
	if err != nil && it.end.outcome == "failed" && errors.Is(context.Cause(ctx), work.ErrLeaseLost) {
		// It was cut short by the engine, as by a stop. The claim may be its own all the same: who had its row locked, so that its lease was not
		// renewed, may have undone all.
		it.end = it.back(0, it.end.notDone)
	}
	return []error{err}
}

func (e *Engine) do(ctx context.Context, it *item, started time.Time) error {
	if it.verdict != "" {
		// The store says what became of it, whatever is said here.
		it.end = it.failed(&run.Failure{Category: "infrastructure", Code: it.verdict, Final: true, Err: errors.New(it.verdict)}, started)
		return nil
	}
	p, st, err := e.stepOf(ctx, it)
	if err != nil {
		return err
	}
	data, err := e.facts(ctx, it, st)
	if _, ok := errors.AsType[*plan.ConditionError](err); ok {
		return err
	} else if err != nil {
		it.end = it.unbegun(time.Second)
		return err
	}
	if !it.parked {
		if holds, err := st.Holds(p, data); err != nil {
			return err
		} else if !holds {
			it.end = it.skippedFor("its condition does not hold: " + st.When)
			return nil
		}
	}
	switch st.Kind {
	case plan.Go:
		return e.call(ctx, it, p, st, data, started)
	case plan.Sleep:
		return it.sleep(p, st, data, started)
	case plan.Publish:
		return it.publish(p, st, data, started)
	case plan.HTTP:
		return e.request(ctx, it, p, st, data, started)
	case plan.Deliver:
		return it.deliver(p, st, data, started)
	case plan.External:
		return it.offer(p, st, data)
	}
	return &run.Failure{Category: "infrastructure", Code: "KIND_NOT_SUPPORTED", Final: true, NotDone: true, Err: fmt.Errorf("this engine does no steps of kind %s", st.Kind)}
}

// offer has workers in other languages do the step, with what it comes to here; its secrets stay references.
func (it *item) offer(p *plan.Plan, st *plan.Step, data plan.Data) error {
	input, err := st.Resolve(p, "with", data)
	if err != nil {
		return err
	}
	if input == nil {
		input = it.input
	}
	it.end = &ending{it: it, outcome: "offered", data: map[string]any{"queue": st.Queue, "input": input, "key": it.key()}}
	if len(st.Secrets) > 0 {
		it.end.data["secrets"] = st.Secrets
	}
	if st.Timeout > 0 {
		it.end.data["timeout"] = st.Timeout.Seconds()
	}
	return nil
}

// stepOf is the step in its plan. Where the plan is not what it was, the step fails for good.
func (e *Engine) stepOf(ctx context.Context, it *item) (*plan.Plan, *plan.Step, error) {
	bounded, cancel := context.WithTimeout(ctx, e.opts.Deadline)
	defer cancel()
	p, err := e.plans.get(bounded, e.pool, it)
	switch {
	case errors.Is(err, plan.ErrIntegrity):
		e.about(it).Error("a plan is not what was stored; both hashes are in the audit log", "code", plan.ErrIntegrity.Error(), "plan", it.plan, "version", it.version)
		return nil, nil, &run.Failure{Category: "infrastructure", Code: plan.ErrIntegrity.Error(), Final: true, NotDone: true, Err: err}
	case deed.CodeOf(err) == deed.Invalid || deed.CodeOf(err) == deed.NotFound:
		return nil, nil, &run.Failure{Category: "infrastructure", Code: "PLAN_INVALID", Final: true, NotDone: true, Err: err}
	case err != nil:
		it.end = it.unbegun(time.Second)
		return nil, nil, err
	}
	st := p.Step(it.step)
	if st == nil {
		return nil, nil, &run.Failure{Category: "infrastructure", Code: "PLAN_INVALID", Final: true, NotDone: true, Err: fmt.Errorf("the plan has no step %q", it.step)}
	}
	return p, st, nil
}

// facts are what the step's expressions see. Errors: [plan.ConditionError] for more than they may.
func (e *Engine) facts(ctx context.Context, it *item, st *plan.Step) (plan.Data, error) {
	data := plan.Data{Input: it.input, Steps: map[string]plan.Result{}}.Once()
	if len(st.Uses) == 0 || it.parked && st.Kind != plan.Go { // what has come is only looked at
		return data, nil
	}
	names, outputs, errs := make([]string, len(st.Uses)), make([]bool, len(st.Uses)), make([]bool, len(st.Uses))
	for i, u := range st.Uses {
		names[i], outputs[i], errs[i] = u.Step, u.Output, u.Error
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.Deadline)
	defer cancel()
	rows, err := e.pool.Query(ctx, query.Results, it.run, names, outputs, errs)
	if err != nil {
		return data, err
	}
	var name, event string
	var output, failure []byte
	size := 0
	_, err = pgx.ForEachRow(rows, []any{&name, &event, &output, &failure}, func() error {
		if size += len(output) + len(failure); size > maxFacts {
			return nil // it is only counted
		}
		r := plan.Result{Status: map[string]string{"StepCompleted": "SUCCESS", "StepFailed": "FAILED", "StepSkipped": "SKIPPED"}[event]}
		r.Output, r.Error = append(json.RawMessage(nil), output...), append(json.RawMessage(nil), failure...)
		data.Steps[name] = r
		return nil
	})
	if err == nil && size > maxFacts {
		err = &plan.ConditionError{Err: fmt.Errorf("what it asks for of other steps came to %d bytes, and at most %d are possible: "+
			"ask for less, as for steps.NAME.status alone, or have them keep artifacts", size, maxFacts)}
	}
	return data, err
}

// call has a handler do the step.
func (e *Engine) call(ctx context.Context, it *item, p *plan.Plan, st *plan.Step, data plan.Data, started time.Time) error {
	h, ok := e.handlers[st.Handler]
	if !ok {
		it.end = it.unbegun(time.Second)
		return fmt.Errorf("there is no handler %q here", st.Handler)
	}
	input, err := st.Resolve(p, "with", data)
	if err != nil {
		return err
	}
	if input == nil {
		input = it.input
	}
	if may, err := e.mayBegin(ctx, it); !may || err != nil {
		it.end = it.unbegun(time.Second)
		return err
	}
	inner, err := e.begin(ctx, it)
	if err != nil {
		it.end = it.unbegun(time.Second)
		return err
	}
	if it.guard, err = e.secrets(ctx, it, st); err != nil {
		if it.end == nil {
			it.end = it.failed(err, started)
			it.end.notDone = it.first()
		}
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(st.Timeout, e.opts.Timeout))
	defer cancel()
	defer e.announcing(it).Stop()
	crash.Point("calling")
	known := e.known(it, it.step, it.attempt, it.key())
	ctx = runstep.With(ctx, known)
	it.called = true
	cut := true // unless it returns; a panic that tells a secret is an error by then
	output, err := it.guard.call(func() (json.RawMessage, error) {
		output, err := h.do(runstep.WithCode(ctx, inner.root), input)
		cut = err != nil && cutOff(err, inner.mayBeDone())
		return output, err
	})
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	crash.Point("called")
	if end, over := inner.ended(); end != nil {
		if it.once && end.outcome == "released" {
			// An inner step says what it has not done itself. Of all else, as of what a branch beside it has, the code's own word holds.
			end.notDone = end.notDone && err != nil && it.failed(err, started).notDone
		}
		it.end = end
		_, err = it.guard.checked(nil, over)
		return err
	}
	if err == nil {
		it.end = it.completed(output, started)
		known.Artifacts.(*artifacts).into(it.end.data)
		return nil
	}
	if reason, ok := run.Skipped(err); ok {
		it.end = it.skippedFor(reason)
		return nil
	}
	if deed.IsUnavailable(err) {
		pause, _ := deed.RetryAfter(err)
		// What must not be repeated is only begun again if its code knows that nothing was done.
		it.end = it.back(cmp.Or(pause, work.Backoff(it.engine, time.Second, time.Minute)), !it.once || it.failed(err, started).notDone)
		return err
	}
	it.end = it.failedCode(err, started, cut, late, inner.mayBeDone())
	return err
}

// known is what the code of a step, or of an inner one, knows of it.
func (e *Engine) known(it *item, name string, attempt int, key string) runstep.Step {
	return runstep.Step{Run: it.run, Name: name, Attempt: attempt, EngineAttempt: it.engine, Key: key, Secrets: it.guard.values, Log: e.discreet(it), Artifacts: &artifacts{e: e, it: it, name: name}}
}

// discreet is as about, without the values of secrets.
func (e *Engine) discreet(it *item) *slog.Logger {
	log := e.about(it)
	if len(it.guard.values) > 0 {
		log = slog.New(masked{log.Handler(), it.guard})
	}
	return log
}

// announcing has it told of if it is still being done after a while.
func (e *Engine) announcing(it *item) *time.Timer {
	return time.AfterFunc(announceAfter, func() {
		select {
		case e.slow <- it:
		default: // it is told of with its end
		}
	})
}

// mayBegin asks whether the step may still begin: what must not be repeated always, what has waited in hand for a while.
func (e *Engine) mayBegin(ctx context.Context, it *item) (bool, error) {
	if !it.once && time.Since(it.at) < askAfter {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.Deadline)
	defer cancel()
	var why string
	err := e.pool.QueryRow(ctx, query.Begin, it.run, it.place, it.claim).Scan(&why)
	if err == nil && why != "" {
		e.about(it).Info("a step is not begun any more", "why", why)
	}
	return err == nil && why == "", err
}

// sleep waits in the database, not here.
func (it *item) sleep(p *plan.Plan, st *plan.Step, data plan.Data, started time.Time) error {
	if it.parked {
		it.end = it.completed(nil, started)
		if it.begun != nil {
			it.end.started = *it.begun
		}
		return nil
	}
	it.end = &ending{it: it, outcome: "waiting", started: started}
	if st.For > 0 {
		seconds := st.For.Seconds()
		it.end.again = &seconds
		return nil
	}
	text, err := it.text(p, st, data, "until")
	if err == nil {
		var until time.Time
		if until, err = time.Parse(time.RFC3339, text); err == nil && (until.Year() < 1970 || until.Year() > 9999) {
			err = errors.New("it is not of the years 1970 to 9999")
		}
		if err != nil {
			err = &plan.ConditionError{Err: fmt.Errorf("until: %w", err)}
		}
		it.end.until = &until
	}
	if err != nil {
		it.end = nil
	}
	return err
}

// publish makes the message, which is published in the transaction that records the end.
func (it *item) publish(p *plan.Plan, st *plan.Step, data plan.Data, started time.Time) (err error) {
	m := deed.Message{Topic: st.Topic, Tenant: it.tenant, IdempotencyKey: it.key()}
	payload, err := st.Resolve(p, "payload", data)
	if err != nil {
		return err
	}
	m.Payload = payload
	if m.Key, err = it.text(p, st, data, "key"); err != nil {
		return err
	}
	if m.Type, err = it.text(p, st, data, "type"); err != nil {
		return err
	}
	if m.Headers, err = it.headers(p, st, data); err != nil {
		return err
	}
	it.end = it.completed(nil, started)
	it.end.message = &m
	return nil
}

// headers are those of a message or a request, each a text; nil without some.
func (it *item) headers(p *plan.Plan, st *plan.Step, data plan.Data) (map[string]string, error) {
	value, err := st.Resolve(p, "headers", data)
	if err != nil || value == nil {
		return nil, err
	}
	var computed map[string]json.RawMessage
	if err := json.Unmarshal(value, &computed); err != nil {
		return nil, &plan.ConditionError{Err: fmt.Errorf("headers: %w", err)}
	}
	headers := map[string]string{}
	for name, v := range computed {
		headers[name] = textOf(v)
	}
	return headers, nil
}

// text is what stands under a key, which is a text; "" without one.
func (it *item) text(p *plan.Plan, st *plan.Step, data plan.Data, key string) (string, error) {
	value, err := st.Resolve(p, key, data)
	if err != nil || value == nil {
		return "", err
	}
	return textOf(value), nil
}

// textOf is a value as a text: one as it is, null as an empty one, and all else, a number, say, as its JSON.
func textOf(value json.RawMessage) string {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return string(value)
	}
	return text
}
