package doctor

import (
	"context"
	"strings"

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

// checkSteps finds steps that are due and that no worker serves.
func checkSteps(ctx context.Context, e *exam) error {
	return e.query(ctx, query.UnservedSteps, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var queue string
		var steps int64
		var seconds float64
		if err := row.Scan(&queue, &steps, &seconds); err != nil {
			return err
		}
		remedy := "start a relay with runs: {enabled: true}, or a program that has an engine"
		if name, ok := strings.CutPrefix(queue, "go:"); ok {
			remedy = "start a program whose engine has the handler, or the version of the function, " + name
		} else if name, ok := strings.CutPrefix(queue, "external:"); ok {
			remedy = "start a worker that claims from the queue " + name + " (deed.claim_external)"
		}
		e.addf(Warn, "steps-unserved", queue, remedy+"; deed run list --unserved names the runs",
			"%d steps of runs are due that no worker serves, the oldest for %s", steps, ago(seconds))
		return nil
	})
}

// checkStuck finds steps in whose way an end is that was appended behind their engine's back, as could be before migration 0122.
func checkStuck(ctx context.Context, e *exam) error {
	return e.query(ctx, query.StuckSteps, nil, func(row pgx.Rows) error {
		var run, step string
		var attempt int
		if err := row.Scan(&run, &step, &attempt); err != nil {
			return err
		}
		e.addf(Fail, "step-stuck", run, "deed run cancel "+run+" --reason TEXT ends it; ask for it again under another request id",
			"the log has an end of attempt %d of step %s that its engine has not recorded: the step is begun again and again, and the run cannot go on", attempt, step)
		return nil
	})
}

// checkDamaged finds plans that are not what was stored, and runs that have failed for it.
func checkDamaged(ctx context.Context, e *exam) error {
	return e.query(ctx, query.DamagedPlans, nil, func(row pgx.Rows) error {
		var what string
		var step *string // nil: what is a plan, and not a run
		var seconds float64
		if err := row.Scan(&what, &step, &seconds); err != nil {
			return err
		}
		if step == nil {
			e.addf(Fail, "plan-integrity", what, "find out who changed the plan's row, which the audit log and deed verify name, and bring it back",
				"PLAN_INTEGRITY_VALIDATION_FAILED: it is not what was stored, and was refused %s ago", ago(seconds))
			return nil
		}
		e.addf(Fail, "plan-integrity", what,
			"find out who changed the plan's row, which the audit log and deed verify name, and bring it back; ask for the run again under another request id",
			"PLAN_INTEGRITY_VALIDATION_FAILED: step %s has failed %s ago, as its plan is not what was stored", *step, ago(seconds))
		return nil
	})
}
