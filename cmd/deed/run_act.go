package main

import (
	"cmp"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/run"
)

func newRunSteps(a *app) *cobra.Command {
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "steps ID", Short: "List the steps by which a run goes on", Args: cobra.ExactArgs(1),
		Long: `List the steps by which a run goes on: those that are ready, claimed, or wait for their time; and those that have
failed and are HELD for a person (deed run retry, deed run cancel). One that is READY for long is in a queue that no
engine serves: go:HANDLER of a handler that none has. What has ended, and what waits for other steps, deed run show has.`,
		Example: "  deed run steps 01a1fe76-14ee-7f1b-b119-532699ab7d4c",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				var list []run.DueStep
				err := inTenant(cmd.Context(), pool, id, func(tx pgx.Tx) (err error) {
					list, err = run.Due(cmd.Context(), tx, args[0])
					return err
				})
				if err != nil {
					return err
				}
				header := []string{"STEP", "STATE", "ATTEMPT", "LOST CLAIMS", "QUEUE", "DUE", "CLAIMED BY", "LEASE UNTIL"}
				return printList(cmd, asJSON, "steps", list, header, func(s run.DueStep) []string {
					return []string{
						s.Step, string(s.State), fmt.Sprintf("%d.%d", s.Attempt, s.EngineAttempt), fmt.Sprint(s.LostClaims), s.Queue, instant(s.DueAt),
						cmp.Or(s.ClaimedBy, "-"), instant(s.LeaseUntil),
					}
				})
			})
		},
	}
	owner.add(cmd, "whose run it is, a UUID")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// actedOnRun is what commands print that act on a run.
type actedOnRun struct {
	ID        string `json:"run_id"`
	Approved  bool   `json:"approved,omitempty"`
	Cancelled bool   `json:"cancelled,omitempty"`
	Before    bool   `json:"before,omitempty"` // it was so before
	Step      string `json:"step_id,omitempty"`
	Attempt   int    `json:"logical_attempt,omitempty"`
	said      string
}

// actOnRun is a command that acts on a run, for a reason.
func (a *app) actOnRun(cmd *cobra.Command, who *operator, do func(pool *pgxpool.Pool, args []string) (actedOnRun, error)) *cobra.Command {
	var asJSON bool
	who.add(cmd, "why; required")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if who.reason == "" {
			return usagef("why? Give --reason")
		}
		return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
			acted, err := do(pool, args)
			if err != nil {
				return err
			}
			if acted.ID = args[0]; asJSON {
				return printJSON(cmd.OutOrStdout(), acted)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", args[0], acted.said)
			return err
		})
	}
	return cmd
}

func newRunApprove(a *app) *cobra.Command {
	var who operator
	cmd := &cobra.Command{
		Use: "approve ID --reason TEXT", Short: "Approve a run whose plan wants a person's approval", Args: cobra.ExactArgs(1),
		Long: `Approve a run of a plan that has approval: person: it is PENDING until then, and begins. It is an event of the run, and is
in the audit log.`,
		Example: "  deed run approve 01a1fe76-14ee-7f1b-b119-532699ab7d4c --reason 'the amounts are right'",
	}
	return a.actOnRun(cmd, &who, func(pool *pgxpool.Pool, args []string) (actedOnRun, error) {
		return actedOnRun{Approved: true, said: "approved; it begins"}, run.Approve(cmd.Context(), pool, args[0], who.act(a))
	})
}

func newRunCancel(a *app) *cobra.Command {
	var who operator
	cmd := &cobra.Command{
		Use: "cancel ID --reason TEXT", Short: "Cancel a run: none of its steps begins any more", Args: cobra.ExactArgs(1),
		Long: `Cancel a run: it ends as CANCELLED, and none of its steps begins any more. What is being done is not undone: its worker
hears of it when it renews its lease, and what becomes of it is not recorded. It is in the audit log.`,
		Example: "  deed run cancel 01a1fe76-14ee-7f1b-b119-532699ab7d4c --reason 'the order was withdrawn'",
	}
	return a.actOnRun(cmd, &who, func(pool *pgxpool.Pool, args []string) (actedOnRun, error) {
		did, err := run.Cancel(cmd.Context(), pool, args[0], who.act(a))
		if !did {
			return actedOnRun{Cancelled: true, Before: true, said: "it was cancelled before"}, err
		}
		return actedOnRun{Cancelled: true, said: "cancelled"}, err
	})
}

func newRunRetry(a *app) *cobra.Command {
	var who operator
	var newKey bool
	cmd := &cobra.Command{
		Use: "retry ID STEP --reason TEXT", Short: "Have a step tried again that has failed and is held", Args: cobra.ExactArgs(2),
		Long: `Have a step tried again that has failed and waits for a person (HELD in deed run steps), as of a plan with on_failure:
{hold: …}, or where nobody knows whether it was done (OUTCOME_UNKNOWN). Its effects keep their idempotency key, by which
the other end knows a repeat. With --new-key they are done anew: give it only where you know that nothing was done, or
want it twice. It is in the audit log.`,
		Example: "  deed run retry 01a1fe76-14ee-7f1b-b119-532699ab7d4c charge --reason 'the card was replaced'",
	}
	cmd.Flags().BoolVar(&newKey, "new-key", false, "its effects are done anew, under a key of their own")
	return a.actOnRun(cmd, &who, func(pool *pgxpool.Pool, args []string) (actedOnRun, error) {
		attempt, err := run.RetryStep(cmd.Context(), pool, args[0], args[1], newKey, who.act(a))
		return actedOnRun{Step: args[1], Attempt: attempt, said: fmt.Sprintf("step %s is tried again, as logical attempt %d", args[1], attempt)}, err
	})
}
