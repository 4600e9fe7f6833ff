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

// checkSinkPauses names the subscriptions whose sink is unavailable.
func checkSinkPauses(ctx context.Context, e *exam) error {
	return e.query(ctx, query.SinkPauses, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var subscription, why, worker string
		var workers int64
		var seconds float64
		if err := row.Scan(&subscription, &why, &worker, &workers, &seconds); err != nil {
			return err
		}
		e.addf(Warn, "sink-paused", subscription,
			"mend the destination: it is asked again every half minute at the latest; nothing is lost, and no attempt counted, meanwhile",
			"its sink has been unavailable for %s, to %d of the workers, such as %s: %s", ago(seconds), workers, worker, why)
		return nil
	})
}
