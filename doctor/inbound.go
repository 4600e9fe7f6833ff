package doctor

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// checkInbound finds messages that people wrote to us and that nobody does anything
// about.
func checkInbound(ctx context.Context, e *exam) error {
	err := e.query(ctx, query.HeldMessages, nil, func(row pgx.Rows) error {
		var source string
		var n int64
		if err := row.Scan(&source, &n); err != nil {
			return err
		}
		e.addf(Warn, "inbound-held", source,
			"deed inbound list --held --source "+source+" says why; deed inbound retry runs them again",
			"has %d messages that have failed too often and wait for a person", n)
		return nil
	})
	if err != nil {
		return err
	}
	err = e.query(ctx, query.FailedMessages, []any{12 * e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var source string
		var n int64
		var seconds float64
		if err := row.Scan(&source, &n, &seconds); err != nil {
			return err
		}
		e.addf(Warn, "inbound-failed", source,
			"deed inbound list --status dispatch_failed --source "+source+" says why; deed inbound retry runs them again, if the platform does not repeat them any more",
			"has %d messages that have failed and that their platform has not repeated since, the oldest %s ago", n, ago(seconds))
		return nil
	})
	if err != nil {
		return err
	}
	return e.query(ctx, query.WaitingMessages, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var source string
		var n int64
		var seconds float64
		if err := row.Scan(&source, &n, &seconds); err != nil {
			return err
		}
		e.addf(Warn, "inbound-unattended", source,
			"start a relay whose configuration has this source",
			"has %d messages that are due, the oldest for %s, and that nobody takes", n, ago(seconds))
		return nil
	})
}
