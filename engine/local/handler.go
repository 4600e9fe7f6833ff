package local

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/deedhq/deed/run"
)

// Handler is what does steps of kind go that name it, or a function that a run calls. [Step] and [Func] make one.
type Handler struct {
	name string
	do   func(ctx context.Context, input json.RawMessage) (json.RawMessage, error)

	// Of a function.
	function string
	version  int
	policy   *Policy
}

// Step is the handler of that name: what a plan's steps of kind go call. in is what the step's with says, or the
// run's input without one, as JSON decodes it; what do returns is the step's output, at most 16 KiB as
// JSON, which later steps see.
//
// An error fails the attempt, and whether there is another the plan says. [run.Failure] says more of it, [deed.Permanent]
// that there is no other; [run.Skip] skips the step; [deed.Unavailable] gives it back, to be begun again later, and
// counts nothing; of a step that must not be repeated only within [run.NotDone], else nobody knows whether it was
// done. ctx ends when the step's time is over, when its claim is lost, or when the engine stops.
func Step[In, Out any](name string, do func(ctx context.Context, in In) (Out, error)) Handler {
	return Handler{name: name, do: func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
		var in In
		if err := json.Unmarshal(input, &in); err != nil {
			return nil, &run.Failure{Code: "INPUT_INVALID", Final: true, NotDone: true, Err: fmt.Errorf("handler %s: its input: %w", name, err)}
		}
		out, err := do(ctx, in)
		if err != nil {
			return nil, err
		}
		output, err := json.Marshal(out)
		if err != nil {
			return nil, &run.Failure{Code: "OUTPUT_INVALID", Final: true, Err: fmt.Errorf("handler %s: its output: %w", name, err)}
		}
		return output, nil
	}}
}
