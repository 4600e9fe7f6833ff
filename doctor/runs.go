package doctor

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// projectorLag is for how many seconds snapshots of runs may be behind.
const projectorLag = 5

// checkRuns finds runs that miss an event or cannot be projected, and a projector that is behind.
func checkRuns(ctx context.Context, e *exam) error {
	err := e.query(ctx, query.StaleRuns, nil, func(row pgx.Rows) error {
		var run string
		var expected int64
		var there bool
		var seconds float64
		if err := row.Scan(&run, &expected, &there, &seconds); err != nil {
			return err
		}
		if there {
			e.addf(Fail, "projector-gap", run, "the relay's log says why; deed run rebuild "+run+" computes its snapshots anew",
				"PROJECTOR_RUN_HALTED: its snapshot, or its events from %d on, cannot be read, since %s", expected, ago(seconds))
			return nil
		}
		e.addf(Fail, "projector-gap", run,
			"events are never skipped: find out who deleted it, and bring the row back; where a snapshot is ahead of the log, deed run rebuild "+run,
			"PROJECTOR_GAP_DETECTED: event %d is missing, since %s; what the run is is known up to there", expected, ago(seconds))
		return nil
	})
	if err != nil {
		return err
	}
	return e.query(ctx, query.ProjectorLag, []any{projectorLag}, func(row pgx.Rows) error {
		var behind int64
		var seconds float64
		if err := row.Scan(&behind, &seconds); err != nil {
			return err
		}
		e.addf(Warn, "projector-lag", "deed.run_events/projector",
			"start a relay whose configuration has runs:, or see in its log why it is slow; deed run show is never behind",
			"PROJECTOR_LAG_HIGH: snapshots of runs are behind by %d events, the oldest of %s ago", behind, ago(seconds))
		return nil
	})
}
