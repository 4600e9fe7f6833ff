package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

func newRunStart(a *app) *cobra.Command {
	var req run.Request
	var owner tenantFlag
	var input string
	var wait time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use: "start PLAN", Short: "Start a run of a plan", Args: cobra.ExactArgs(1),
		Long: `Start a run of a plan that is stored, or of a Go function that a program has registered: of the version that was stored
last, or the newest of the function that a worker serves, unless --version names one. The same --request-id starts one
run, however often it is asked, and says which; with another input it is refused. Without one each call starts a run.
With --wait it waits so long for the run's end: the exit status is 1 where it has failed or was cancelled, and 3 where it
has not ended by then. Who does its steps is an engine's affair: deed run steps says what waits.`,
		Example: `  deed run start ship-order --input '{"order": "o7"}' --request-id o7
  deed run start nightly-load --version 3 --input @day.json --wait 10m --json`,
		Annotations: map[string]string{takesLong: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			if wait < 0 {
				return usagef("--wait %s is below 0", wait)
			}
			req.Plan, req.ID = args[0], cmp.Or(req.ID, uuid.New().String())
			if cmd.Flags().Changed("input") {
				text, err := textOf(cmd, "input", input)
				if err != nil {
					return err
				}
				req.Input = json.RawMessage(text)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				started, err := startRun(cmd.Context(), pool, id, req)
				if err != nil && started.ID != "" {
					return fmt.Errorf("run %s may be started (--request-id %q), as its commit has no answer: %w", started.ID, req.ID, err)
				} else if err != nil {
					return err
				}
				if wait == 0 {
					return printStarted(cmd.OutOrStdout(), started, asJSON)
				}
				s, err := awaitRun(cmd.Context(), pool, id, started.ID, wait)
				if err != nil {
					err = fmt.Errorf("run %s is started (--request-id %q), and goes on: %w", started.ID, req.ID, err)
					if cmd.Context().Err() != nil {
						err = &exitError{exitPartly, err}
					}
					return err
				}
				return printAwaited(cmd.OutOrStdout(), started, s, wait, asJSON)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&req.Version, "version", "", "this version; without it the one that was stored last, or the newest that a worker serves")
	fl.StringVar(&req.ID, "request-id", "", "your name for this request; the same one starts one run (default: a new one)")
	fl.StringVar(&input, "input", "", "the run's input, a JSON object of at most 64 KiB; @FILE: what the file has, -: standard input (default {})")
	fl.StringVar(&req.Project, "project", "", "the project that it is of (default default)")
	fl.StringVar(&req.Environment, "environment", "", "the environment that it is of (default default)")
	durationVar(cmd, &wait, "wait", 0, "wait so long for its end (default: do not)")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "whose run it is, a UUID")
	return cmd
}

func startRun(ctx context.Context, pool *pgxpool.Pool, owner *tenant.ID, req run.Request) (s run.Started, err error) {
	err = inTenant(ctx, pool, owner, func(tx pgx.Tx) error {
		s, err = run.Start(ctx, tx, req)
		return err
	})
	return s, err
}

// startedRun is what deed run start prints.
type startedRun struct {
	ID       string        `json:"run_id"`
	New      bool          `json:"created"`
	Status   run.Status    `json:"status"`
	Snapshot *run.Snapshot `json:"snapshot,omitempty"` // after --wait
}

func printStarted(w io.Writer, s run.Started, asJSON bool) error {
	if asJSON {
		return printJSON(w, startedRun{ID: s.ID, New: s.New, Status: s.Status})
	}
	note := ""
	if !s.New {
		note = "  (started before)"
	}
	if s.Status == run.Pending {
		note += "  (it waits for a person: deed run approve)"
	}
	_, err := fmt.Fprintf(w, "%s  %s%s\n", s.ID, s.Status, note)
	return err
}

// awaitRun returns a run of a tenant's when it has ended, or after wait.
func awaitRun(ctx context.Context, pool *pgxpool.Pool, owner *tenant.ID, id string, wait time.Duration) (run.Shown, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	s, err := followRun(waiting, pool, owner, id, func(run.Shown) error { return nil })
	if err == nil && s.Snapshot.Status.Final() || err != nil && waiting.Err() == nil {
		return s, err
	}
	return lookAtRun(ctx, pool, owner, id)
}

// printAwaited prints what a run is that has been waited for, and says by the exit status what became of it.
func printAwaited(w io.Writer, started run.Started, s run.Shown, wait time.Duration, asJSON bool) (err error) {
	if asJSON {
		err = printJSON(w, startedRun{ID: s.ID, New: started.New, Status: s.Snapshot.Status, Snapshot: &s.Snapshot})
	} else {
		err = showRun(w, s)
	}
	if !s.Snapshot.Status.Final() {
		return errors.Join(err, &exitError{exitPartly, fmt.Errorf("run %s has not ended within --wait %s; it goes on: deed run watch %s", s.ID, wait, s.ID)})
	}
	return errors.Join(err, endOfRun(s))
}

// endOfRun is the exit status of a run that has ended.
func endOfRun(s run.Shown) error {
	switch s.Snapshot.Status {
	case run.Failed:
		return fmt.Errorf("run %s has failed", s.ID)
	case run.Cancelled:
		return fmt.Errorf("run %s was cancelled", s.ID)
	}
	return nil
}

// lookAtRun is a run as it is now. Without its tenant a login of the application does not see it, where there are several.
func lookAtRun(ctx context.Context, pool *pgxpool.Pool, owner *tenant.ID, id string) (s run.Shown, err error) {
	err = inTenant(ctx, pool, owner, func(tx pgx.Tx) error {
		s, err = run.Show(ctx, tx, id, 0)
		return err
	})
	return s, err
}

// followRun has each see a run as it is, and again whenever it has moved, until it has ended or ctx has.
func followRun(ctx context.Context, pool *pgxpool.Pool, owner *tenant.ID, id string, each func(run.Shown) error) (run.Shown, error) {
	for last := int64(-1); ; {
		s, err := lookAtRun(ctx, pool, owner, id)
		if err != nil {
			return s, err
		}
		if s.Snapshot.LastEventSeq > last {
			last = s.Snapshot.LastEventSeq
			if err := each(s); err != nil {
				return s, err
			}
		}
		if s.Snapshot.Status.Final() || !work.Sleep(ctx, followEvery) {
			return s, nil
		}
	}
}

func newRunWatch(a *app) *cobra.Command {
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "watch ID", Short: "Watch a run until it has ended", Args: cobra.ExactArgs(1),
		Long: `Watch a run: print what becomes of it and of its steps as it happens, until it has ended or Ctrl-C. The exit status is 1
where it has failed or was cancelled, and 3 where it has not ended within --timeout, if that is given. --json prints the
run's snapshot, a line whenever it has moved.`,
		Example:     "  deed run watch 01a1fe76-14ee-7f1b-b119-532699ab7d4c",
		Annotations: map[string]string{takesLong: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				var before run.Shown
				s, err := followRun(cmd.Context(), pool, id, args[0], func(s run.Shown) error {
					defer func() { before = s }()
					if asJSON {
						return printJSON(cmd.OutOrStdout(), s.Snapshot)
					}
					return printMoves(cmd.OutOrStdout(), before.Snapshot, s.Snapshot)
				})
				if over := cmd.Context().Err(); over != nil && !s.Snapshot.Status.Final() {
					return notEnded(over, args[0])
				}
				return errors.Join(err, endOfRun(s))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object a line")
	owner.add(cmd, "whose run it is, a UUID")
	return cmd
}

// notEnded is how a command ends that follows a run, where over has stopped it: Ctrl-C as well as may be, its --timeout not.
func notEnded(over error, id string) error {
	if errors.Is(over, context.Canceled) {
		return nil
	}
	return &exitError{exitPartly, fmt.Errorf("run %s has not ended; it goes on", id)}
}

// printMoves says in what a run has moved.
func printMoves(w io.Writer, before, s run.Snapshot) error {
	was := map[string]run.StepSnapshot{}
	for _, step := range before.Steps {
		was[step.ID] = step
	}
	for _, step := range s.Steps {
		old := was[step.ID]
		if old.Status == step.Status && old.Attempt == step.Attempt || step.Status == run.StepPending {
			continue
		}
		at, said := cmp.Or(step.CompletedAt, step.StartedAt), step.Reason
		if step.Error != nil {
			said = step.Error.Code + ": " + step.Error.Message
		}
		if _, err := fmt.Fprintf(w, "%-20s  %-9s  %s  %s\n", instant(at), step.Status, clip(fmt.Sprintf("%s#%d", step.ID, step.Attempt), 60), clip(said, 100)); err != nil {
			return err
		}
	}
	if before.Status == s.Status {
		return nil
	}
	at := s.StartedAt
	if s.CompletedAt != nil {
		at = s.CompletedAt
	}
	_, err := fmt.Fprintf(w, "%-20s  %-9s  the run\n", instant(at), s.Status)
	return err
}
