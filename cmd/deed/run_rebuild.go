package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/run"
)

func newRunRebuild(a *app) *cobra.Command {
	var all, dryRun, asJSON bool
	cmd := &cobra.Command{
		Use: "rebuild ID|--all", Short: "Compute the snapshots of a run anew from its events",
		Long: `Project a run, or all, from the first event on, print where the stored snapshots say something else, and put the
projection in their place; a run that was stale goes on. With --dry-run nothing is changed. Where an event is missing there
is nothing to rebuild from: it is named, and the run stays as it is. The exit code is 3 if anything differs.`,
		Example:     "  deed run rebuild 01a1fe76-14ee-7f1b-b119-532699ab7d4c\n  deed run rebuild --all --dry-run",
		Annotations: map[string]string{takesLong: ""},
		Args:        cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return usagef("give a run's ID, or --all")
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				var list []run.Difference
				runs := 0
				one := func(id string) error {
					runs++
					found, err := run.Rebuild(cmd.Context(), pool, id, dryRun)
					for sqlstate.Again(err) { // it was redacted meanwhile, which happens once
						found, err = run.Rebuild(cmd.Context(), pool, id, dryRun)
					}
					list = append(list, found...)
					return err
				}
				var err error
				if all {
					err = run.Each(cmd.Context(), pool, one)
				} else {
					err = one(args[0])
				}
				if err != nil {
					return err
				}
				return printDifferences(cmd, list, runs, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all runs")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what differs")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printDifferences(cmd *cobra.Command, list []run.Difference, runs int, asJSON bool) error {
	var err error
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), map[string]any{"runs": runs, "differences": orEmpty(list)})
	} else if len(list) == 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, and every snapshot is what the events say\n", many(runs, "run", "runs"))
	} else {
		var rows [][]string
		for _, d := range list {
			rows = append(rows, []string{d.Run, fmt.Sprint(d.Seq), differenceOf(d)})
		}
		err = table(cmd.OutOrStdout(), []string{"RUN", "AFTER EVENT", "DIFFERENCE"}, rows)
	}
	if len(list) > 0 {
		err = errors.Join(err, &exitError{exitPartly, errors.New(many(len(list), "difference", "differences"))})
	}
	return err
}

func differenceOf(d run.Difference) string {
	switch {
	case d.Missing > 0:
		return fmt.Sprintf("event %d is missing: there is nothing to rebuild from", d.Missing)
	case d.Projected == nil:
		return "the log ends before it"
	}
	return "the snapshot is not what the events say; --json prints both"
}

// verifySnapshots adds the snapshots of runs that are not what their events say: what SQL cannot
// compute. That an event is missing deed.verify has said.
func verifySnapshots(ctx context.Context, pool *pgxpool.Pool, violations []admin.Violation) ([]admin.Violation, error) {
	err := run.Each(ctx, pool, func(id string) error {
		found, err := run.Rebuild(ctx, pool, id, true)
		for _, d := range found {
			if d.Missing == 0 && d.Projected != nil {
				violations = append(violations, admin.Violation{Invariant: "snapshot is not what its events say", Detail: fmt.Sprintf("run %s, after event %d", id, d.Seq)})
			}
		}
		if deed.CodeOf(err) == deed.NotFound { // it has gone meanwhile
			return nil
		}
		return err
	})
	return violations, err
}
