package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run/plan"
)

// Policy is what the plan of a function says of its one step. The zero value has one attempt.
type Policy struct {
	// Attempts is how many logical ones there are (R5), from 1 to 100. Default 1.
	Attempts int
	// Backoff is what the second attempt waits, the third twice that, and so on, up to a day. Default 1s.
	Backoff time.Duration
	// Timeout bounds an attempt. Default: [Options.Timeout].
	Timeout time.Duration
	// AtMostOnce: an attempt of which nobody knows whether it was made is not repeated, and a person is asked. What inner steps
	// have recorded does not change that.
	AtMostOnce bool
	// Hold is for how long a run that has failed waits for a person. Default: it fails at once.
	Hold time.Duration
	// Secrets are those that the function gets by [run.Secret]: references, such as secret://psp, by the names that it knows them by.
	// [Options.Secrets] resolves them at each attempt, for the run's tenant and environment. Default: none.
	Secrets map[string]string
}

// Func is a Go function that a run calls: a plan of one step, main, without a file. in is the run's input, as JSON decodes it,
// and what do returns is the step's output; all else is as [Step] has it, inner steps and errors too. name is what
// [run.Start] asks for, and version counts from 1.
//
// [New] registers it, for all tenants and for good: from then on runs may be started in any process, also while no
// worker runs, which then wait. A run keeps the version that it began with, so a function that does other things is a new version, and
// the one of before stays among the handlers until its runs have ended. A run whose version no worker has
// waits, and deed run list --unserved, deed doctor and a metric say so.
func Func[In, Out any](name string, version int, do func(ctx context.Context, in In) (Out, error)) Handler {
	h := Step(name+"@"+strconv.Itoa(version), do)
	h.function, h.version = name, version
	return h
}

// With is the function with other retries, time-out, guarantee or hold, or with secrets. They are part of its version. It is of what [Func] has made.
func (h Handler) With(p Policy) Handler {
	h.policy = &p
	return h
}

// secrets are those of a policy, of which there may be none.
func (p *Policy) secrets() map[string]string {
	if p == nil {
		return nil
	}
	return p.Secrets
}

// plan is that of a function; nil for a handler of plans' steps.
func (h Handler) plan() (*plan.Plan, error) {
	if h.function == "" {
		if h.policy != nil {
			return nil, fmt.Errorf("handler %q: With is of functions; what calls a handler is a plan's step, which says it itself", h.name)
		}
		return nil, nil
	}
	if h.version < 1 || h.version > 1e9 {
		return nil, fmt.Errorf("function %q: version %d is not from 1 to 1000000000", h.function, h.version)
	}
	var p Policy
	if h.policy != nil {
		p = *h.policy
	}
	step := map[string]any{"kind": "go", "handler": h.name}
	if p.Attempts != 0 || p.Backoff != 0 {
		step["retry"] = map[string]any{"attempts": cmp.Or(p.Attempts, 1), "backoff": cmp.Or(p.Backoff, time.Second).String()}
	}
	if p.Timeout != 0 {
		step["timeout"] = p.Timeout.String()
	}
	if p.AtMostOnce {
		step["guarantee"] = "at_most_once"
	}
	if len(p.Secrets) > 0 {
		step["secrets"] = p.Secrets
	}
	whole := map[string]any{"plan": h.function, "version": strconv.Itoa(h.version), "steps": map[string]any{"main": step}}
	if p.Hold != 0 {
		whole["on_failure"] = map[string]any{"hold": p.Hold.String()}
	}
	text, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	made, err := plan.Parse("function "+h.name, text)
	if said, ok := errors.AsType[*deed.Error](err); ok {
		err = said.Err
	}
	return made, err
}

// register has functions be started from now on.
func (e *Engine) register(ctx context.Context) error {
	if len(e.functions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.Deadline)
	defer cancel()
	_, err := e.pool.Exec(ctx, query.Register, e.functions)
	return err
}

// serving says what this engine claims, until ctx ends; again soon where that could not be told: requests without a version go to what is known to be served.
func (e *Engine) serving(ctx context.Context) {
	say := func(ctx context.Context, queues []string) bool {
		bounded, cancel := context.WithTimeout(ctx, e.opts.Deadline)
		defer cancel()
		_, err := e.pool.Exec(bounded, query.Serve, e.opts.Worker, e.instance, queues, e.opts.Lease.Seconds())
		if err != nil && ctx.Err() == nil {
			e.opts.Logger.Warn("what this worker serves was not told; it is told again", "error", err)
		}
		return err == nil
	}
	for failures := 0; ; {
		pause := e.opts.Lease / 3
		if say(ctx, e.queues) {
			failures = 0
		} else {
			failures++
			pause = work.Backoff(failures, 100*time.Millisecond, min(pause, 5*time.Second))
		}
		if !work.Sleep(ctx, pause) {
			break
		}
	}
	say(context.WithoutCancel(ctx), []string{})
}
