package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run"
)

func newRun(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "run", Short: "Start, watch, show and operate runs of workflow plans",
		Long: `Runs of workflow plans: what each is, what it was at any moment, and the events that say so; and what a person does
with one. Runs of campaigns are another thing.`,
		Example: "  deed run start ship-order --input '{\"order\": \"o7\"}' --wait 1m\n  deed run list --status FAILED\n  deed run show 01a1fe76-14ee-7f1b-b119-532699ab7d4c --at-seq 7",
	}
	cmd.AddCommand(newRunStart(a), newRunList(a), newRunWorkers(a), newRunShow(a), newRunSteps(a), newRunWatch(a), newRunEvents(a))
	cmd.AddCommand(newRunApprove(a), newRunRetry(a), newRunCancel(a), newRunRebuild(a), newRunExport(a), newRunRedact(a))
	return cmd
}

func newRunList(a *app) *cobra.Command {
	var f run.Filter
	var owner tenantFlag
	var status string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List runs, newest first", Args: cobra.NoArgs,
		Long: `List runs, newest first. Those that miss an event are STALE: deed run rebuild says what is missing. --unserved lists
those with a step that is due and that no worker serves, as of a version of a Go function that no program has any more;
deed run workers says what each serves.`,
		Example: "  deed run list --plan nightly-load --status FAILED --since 7d\n  deed run list --unserved",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			f.Status = run.Status(strings.ToUpper(status))
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				list, err := run.List(cmd.Context(), pool, f)
				if err == nil && len(list.Items) == 0 {
					err = cmp.Or(knownTenant(cmd.Context(), pool, f.Tenant), knownPlan(cmd.Context(), pool, f.Tenant, f.Plan))
				}
				if err != nil {
					return err
				}
				header := []string{"ID", "STATUS", "PLAN", "VERSION", "PROJECT", "ENVIRONMENT", "CREATED", "ENDED"}
				return printPage(cmd, asJSON, "runs", list, header, func(r run.Run) []string {
					return []string{r.ID, statusOfRun(r), r.Plan, r.Version, r.Project, r.Environment, when(r.CreatedAt), instant(r.FinishedAt)}
				})
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&status, "status", "", "only these: PENDING, APPROVED, RUNNING, PAUSED, COMPLETED, FAILED, CANCELLED")
	fl.StringVar(&f.Plan, "plan", "", "only runs of this plan")
	fl.StringVar(&f.Project, "project", "", "only this project's")
	fl.StringVar(&f.Environment, "environment", "", "only those in this environment")
	fl.BoolVar(&f.Stale, "stale", false, "only those that miss an event")
	fl.BoolVar(&f.Unserved, "unserved", false, "only those with a step that is due and that no worker serves")
	durationVar(cmd, &f.Since, "since", 0, "only those asked for at most this long ago")
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

// statusOfRun is a run's status, and whether an event of it is missing.
func statusOfRun(r run.Run) string {
	if r.StaleSince != nil {
		return string(r.Status) + " STALE"
	}
	return string(r.Status)
}

func newRunShow(a *app) *cobra.Command {
	var seq int64
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a run as it is, or was after an event", Args: cobra.ExactArgs(1),
		Long: `Show a run and its steps, as its events say: after the newest one, or with --at-seq as it was after that one. It is never
behind: what the newest snapshot lacks is read from the log.`,
		Example: "  deed run show 01a1fe76-14ee-7f1b-b119-532699ab7d4c --at-seq 7 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("at-seq") && seq < 1 {
				return usagef("--at-seq %d is below 1", seq)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				s, err := run.Show(cmd.Context(), pool, args[0], seq)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"run": s.Run, "snapshot": s.Snapshot})
				}
				return showRun(cmd.OutOrStdout(), s)
			})
		},
	}
	cmd.Flags().Int64Var(&seq, "at-seq", 0, "as it was after the event of this number")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func showRun(w io.Writer, s run.Shown) error {
	cause := ""
	if c := s.Snapshot.RootCause; c != nil && c.Error != nil {
		cause = strings.TrimSpace(c.Step + " " + c.Error.Code + ": " + c.Error.Message)
	}
	took := ""
	if ms := s.Snapshot.TotalDurationMs; ms != nil {
		took = (time.Duration(*ms) * time.Millisecond).String()
	}
	for _, line := range [][2]string{
		{"id", s.ID},
		{"status", string(s.Snapshot.Status)},
		{"after event", fmt.Sprint(s.Snapshot.LastEventSeq)},
		{"stale since", instant(s.StaleSince)},
		{"plan", s.Plan + " " + s.Version},
		{"project", s.Project},
		{"environment", s.Run.Environment},
		{"engine", s.Engine},
		{"created", when(s.CreatedAt)},
		{"started", instant(s.Snapshot.StartedAt)},
		{"ended", instant(s.Snapshot.CompletedAt)},
		{"took", took},
		{"failed because", cause},
		{"does again", s.Original},
		{"sub-run of", strings.TrimSpace(s.Parent + " " + s.ParentStep)},
		{"redacted", instant(s.RedactedAt)},
		{"tenant", s.Tenant.String()},
	} {
		detail(w, 16, line[0], line[1])
	}
	rows := make([][]string, len(s.Snapshot.Steps))
	for i, step := range s.Snapshot.Steps {
		said := step.Reason
		if step.Error != nil {
			said = step.Error.Code + ": " + step.Error.Message
		}
		rows[i] = []string{step.ID, string(step.Status), fmt.Sprint(step.Attempt), instant(step.StartedAt), instant(step.CompletedAt), cmp.Or(said, "-")}
	}
	return table(w, []string{"STEP", "STATUS", "ATTEMPT", "STARTED", "ENDED", "SAID"}, rows)
}

// followEvery is how often the log is asked for more.
const followEvery = time.Second

func newRunEvents(a *app) *cobra.Command {
	var after int64
	var limit int
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use: "events ID", Short: "Show the events of a run", Args: cobra.ExactArgs(1),
		Long: `Show the events of a run, in order. With --follow it goes on with what is appended, until the run has ended or Ctrl-C;
the exit status is 3 where it has not ended within --timeout, if that is given. --json prints an event a line, spelled as
on the topic deed.run_events.`,
		Example:     "  deed run events 01a1fe76-14ee-7f1b-b119-532699ab7d4c --after 40 --follow",
		Annotations: map[string]string{takesLong: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return usagef("--limit %d is below 1", limit)
			} else if after < 0 {
				return usagef("--after %d is below 0", after)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				if _, err := run.Find(cmd.Context(), pool, args[0]); err != nil {
					return err
				}
				err := printEvents(cmd, pool, args[0], after, limit, follow, asJSON)
				if over := cmd.Context().Err(); err != nil && follow && over != nil {
					return notEnded(over, args[0])
				}
				return err
			})
		},
	}
	cmd.Flags().Int64Var(&after, "after", 0, "only those that come after this number")
	cmd.Flags().IntVar(&limit, "limit", 1000, "how many at the most, or with --follow at once")
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with what is appended")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object a line")
	return cmd
}

func printEvents(cmd *cobra.Command, pool *pgxpool.Pool, id string, after int64, limit int, follow, asJSON bool) error {
	ctx := cmd.Context()
	for {
		ended := false
		if follow {
			r, err := run.Find(ctx, pool, id) // before the events: what comes after its end is read, too
			if err != nil {
				return err
			}
			ended = r.FinishedAt != nil
		}
		events, err := run.Events(ctx, pool, id, after, limit)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := printEvent(cmd.OutOrStdout(), e, asJSON); err != nil {
				return err
			}
			after = e.Seq
		}
		switch {
		case !follow && len(events) == limit:
			fmt.Fprintf(cmd.ErrOrStderr(), "there may be more: --after %d\n", after)
			return nil
		case !follow || ended && len(events) < limit:
			return nil
		case len(events) < limit && !work.Sleep(ctx, followEvery):
			return ctx.Err()
		}
	}
}

func printEvent(w io.Writer, e run.Event, asJSON bool) error {
	if asJSON {
		return printJSON(w, e)
	}
	step := "-"
	if e.Step != "" {
		step = fmt.Sprintf("%s#%d", e.Step, e.Attempt)
	}
	_, err := fmt.Fprintf(w, "%6d  %s  %-14s  %s  %s\n", e.Seq, when(e.EmittedAt), e.Type, clip(step, 60), clip(string(e.Data), 100))
	return err
}

func newRunExport(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "export ID", Short: "Write the events of a run, one JSON object a line", Args: cobra.ExactArgs(1),
		Long: `Write all events of a run as NDJSON, spelled as on the topic deed.run_events: what run.Project makes a snapshot of. A
file that is there is not overwritten.`,
		Example:     "  deed run export 01a1fe76-14ee-7f1b-b119-532699ab7d4c --out run.ndjson",
		Annotations: map[string]string{takesLong: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) (err error) {
				if _, err := run.Find(cmd.Context(), pool, args[0]); err != nil {
					return err
				}
				w := cmd.OutOrStdout()
				if out != "" {
					f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
					if errors.Is(err, fs.ErrExist) {
						return usagef("--out %s: the file is there, and is not overwritten; give another name", out)
					} else if err != nil {
						return &exitError{exitUsage, err}
					}
					defer func() {
						if err = errors.Join(err, f.Close()); err != nil {
							err = errors.Join(err, os.Remove(out)) // else it would be in the way of the next try
						}
					}()
					w = f
				}
				return exportRun(cmd.Context(), pool, args[0], w)
			})
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the file; standard output without it")
	return cmd
}

func exportRun(ctx context.Context, pool *pgxpool.Pool, id string, w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for after := int64(0); ; {
		events, err := run.Events(ctx, pool, id, after, 1000)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			if err := enc.Encode(e); err != nil {
				return err
			}
			after = e.Seq
		}
	}
}
