package doctor

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// checkCalls names the calls of sinks that do not return.
func checkCalls(ctx context.Context, e *exam) error {
	return e.query(ctx, query.Calls, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var subscription, worker string
		var id int64
		var seconds float64
		if err := row.Scan(&subscription, &id, &worker, &seconds); err != nil {
			return err
		}
		e.addf(Warn, "call-running", subscription,
			"see what the function or the destination waits for; a function must return when its context ends (Timeout); if it never does, restart that worker",
			"a call with message %d has been running for %s, by worker %s; of a stream its lane waits", id, ago(seconds), worker)
		return nil
	})
}
