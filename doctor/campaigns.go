package doctor

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// checkPausedRuns finds runs of campaigns that have paused themselves, and wait for a person.
func checkPausedRuns(ctx context.Context, e *exam) error {
	return e.query(ctx, query.PausedRuns, nil, func(row pgx.Rows) error {
		var run, name, why string
		var seconds float64
		if err := row.Scan(&run, &name, &why, &seconds); err != nil {
			return err
		}
		e.addf(Warn, "run-paused-itself", run,
			"deed campaign report "+run+" says what failed; then deed campaign resume "+run+", or cancel",
			"a run of the campaign %s has paused itself, and has been so for %s; %s", name, ago(seconds), why)
		return nil
	})
}

// checkJobs finds runs of campaigns whose jobs nobody expands.
func checkJobs(ctx context.Context, e *exam) error {
	return e.query(ctx, query.WaitingJobs, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var run, name string
		var jobs int64
		var seconds float64
		if err := row.Scan(&run, &name, &jobs, &seconds); err != nil {
			return err
		}
		e.addf(Warn, "campaign-unexpanded", run,
			"run a relay with campaigns: {enabled: true} in its deed.yaml, or see in its log why it expands none",
			"nobody expands a run of the campaign %s: jobs of it that have been due for up to %s: %d", name, ago(seconds), jobs)
		return nil
	})
}

// checkAudiences finds audiences whose load has begun and was never finished.
func checkAudiences(ctx context.Context, e *exam) error {
	return e.query(ctx, query.LoadingAudiences, nil, func(row pgx.Rows) error {
		var name, channel string
		var members int64
		var seconds float64
		if err := row.Scan(&name, &channel, &members, &seconds); err != nil {
			return err
		}
		e.addf(Warn, "audience-unfinished", name,
			"give the same command, with the same file and people, again: it goes on where it was; or deed campaign audiences says its id, and deed campaign audiences remove ID removes it; nobody gets anything by an audience that is not finished",
			"an audience for %s has been loading for %s, and has %d members", channel, ago(seconds), members)
		return nil
	})
}

// checkSeals finds rows of the audit log that were to be sealed long ago, where somebody has sealed it.
func checkSeals(ctx context.Context, e *exam) error {
	return e.query(ctx, query.Unsealed, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var upto int64
		var seconds, behind float64
		if err := row.Scan(&upto, &seconds, &behind); err != nil {
			return err
		}
		e.addf(Warn, "audit-unsealed", "",
			"start a relay with audit.key in its deed.yaml, or see in its log why it does not seal (deed audit seal does it once); a transaction that has written to the audit log and stays open holds up what is behind it",
			"seals of the audit log stand still: the last one, up to row %d, is %s old, and the first row behind it %s", upto, ago(seconds), ago(behind))
		return nil
	})
}
