package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/runstep"
)

// Option says more of an inner step.
type Option func(*runstep.Ask)

// Was is what an inner step was called before: where that is recorded, it is this one.
func Was(name string) Option { return func(a *runstep.Ask) { a.Was = name } }

// Named is the name of one inner step of several of a name, as in a loop: id, which is UTF-8, tells it from the others, and is the same
// when the code runs again.
func Named(name, id string) string {
	return name + "[" + strings.NewReplacer("%", "%25", "/", "%2F", "[", "%5B", "]", "%5D").Replace(id) + "]"
}

var errNoCode = errors.New("the context is not the one that an engine has given to the code of a step")

func asked(ctx context.Context, op, name string, opts []Option) (runstep.Code, runstep.Ask, error) {
	ask := runstep.Ask{Name: name}
	for _, o := range opts {
		o(&ask)
	}
	c := runstep.CodeFrom(ctx)
	if c == nil {
		return nil, ask, invalidf(op, "%w", errNoCode)
	}
	return c, ask, nil
}

// Step does an inner step of a step's code, and remembers what it returns: when the code runs again, after a crash say, it
// gets that and do is not called. What do returns is stored as JSON of at most 16 KiB, and the caller gets what that
// reads as, each time. How it is spelled is not kept: what a [json.RawMessage] or a [json.Number] has may be in other bytes
// when the code runs again, and means the same.
//
// Inner steps are known by name: letters, digits, _ . : and -, of at most 100 characters, each used once ([Named]). What the code
// does between them it does again, so it must come to the same steps again.
//
// A crash after do has done its work and before that is recorded calls it again, with the same [Key]: so calls to the
// outside give that as their idempotency key. ctx is do's own: it has the inner step's key and attempt, and no inner steps.
//
// An error fails the inner step's attempt. The caller gets what is recorded of it, a [*Failure] with the code and the text, not
// do's own error: when the code runs again it is the same. If the caller returns it, its own attempt has failed, and in the next
// one, if the plan's retry has one, the inner step is tried again; what has succeeded is not. A failure after which the code has
// gone on to other steps stands. What [Skip] returns is recorded and returned as it is.
func Step[Out any](ctx context.Context, name string, do func(ctx context.Context) (Out, error), opts ...Option) (out Out, err error) {
	c, ask, err := asked(ctx, "step", name, opts)
	if err != nil {
		return out, err
	}
	text, err := c.Step(ctx, ask, func(ctx context.Context) (json.RawMessage, error) {
		out, err := do(ctx)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(out)
		if err != nil {
			return nil, &Failure{Code: "OUTPUT_INVALID", Final: true, Err: fmt.Errorf("its output: %w", err)}
		}
		return text, nil
	})
	if err != nil || len(text) == 0 {
		return out, err
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, &Failure{Code: "OUTPUT_INVALID", Final: true, Err: fmt.Errorf("step %s: what is recorded of it: %w", name, err)}
	}
	return out, nil
}

// Tx does an inner step in a transaction that commits together with the record of its end: what do does through tx is done
// exactly once. The transaction is READ COMMITTED, on the engine's pool, and has set the run's tenant; do neither commits it
// nor rolls it back, and an error rolls it back. Where the database undoes it for now, as for a lock, or it
// is lost before its commit is sent, do is called again. All else
// is as [Step] has it.
func Tx(ctx context.Context, name string, do func(ctx context.Context, tx pgx.Tx) error, opts ...Option) error {
	c, ask, err := asked(ctx, "transaction", name, opts)
	if err != nil {
		return err
	}
	return c.Tx(ctx, ask, do)
}

// Sleep waits for d, of at most ten years, which counts from when it is first asked for, crash or not. A wait longer than a second returns an
// error, which the code passes up: the code ends, nothing of it stays in memory, and it runs again when the time has
// come; so it does if the error was swallowed. Until then no inner step of the branch is done.
func Sleep(ctx context.Context, name string, d time.Duration, opts ...Option) error {
	c, ask, err := asked(ctx, "sleep", name, opts)
	if err != nil {
		return err
	}
	return c.Sleep(ctx, ask, d)
}

// Branch is one of those that [Parallel] does at the same time. The inner steps of Do are the branch's own: steps of two
// branches may have the same name. Do uses the context that it is given.
type Branch struct {
	Name string
	Was  string // what it was called before
	Do   func(ctx context.Context) error
}

// Parallel does branches at the same time, each with a name as [Step] has it, and returns when all have ended. The error
// joins theirs; where one has failed, without those that were skipped. A branch that sleeps keeps no other from ending, and then the code ends until the time has come.
//
// Inner steps that are done by goroutines of the code's own have no order, and are not told from a code that has changed: it
// has to be Parallel.
func Parallel(ctx context.Context, branches ...Branch) error {
	c := runstep.CodeFrom(ctx)
	if c == nil {
		return &deed.Error{Op: "parallel", Code: deed.Invalid, Err: errNoCode}
	}
	list := make([]runstep.Branch, len(branches))
	for i, b := range branches {
		list[i] = runstep.Branch{Ask: runstep.Ask{Name: b.Name, Was: b.Was}, Do: b.Do}
	}
	return c.Parallel(ctx, list)
}
