package local

import (
	"context"
	"time"

	"github.com/deedhq/deed"
)

// Drained reports whether nothing is left that this engine would do: no step of its kinds is due or being done, or will
// be within a minute, and none waits for a delivery that has ended. What waits for a person, for a later time or for a
// delivery that is on its way is not waited for.
func (e *Engine) Drained(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opts.Deadline)
	defer cancel()
	var run *string
	var place *int
	for {
		var woken int
		if err := e.pool.QueryRow(ctx, query.Wake, run, place).Scan(&woken, &run, &place); err != nil {
			return false, deed.WrapError("look for steps of runs", err)
		}
		if woken > 0 {
			e.Wake()
			return false, nil
		}
		if run == nil {
			break
		}
	}
	var unfinished bool
	err := e.pool.QueryRow(ctx, query.Unfinished, e.queues, time.Minute.Seconds()).Scan(&unfinished)
	return !unfinished, deed.WrapError("look for steps of runs", err)
}
