package main

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/campaign"
)

// retriedCampaign is what deed campaign retry prints.
type retriedCampaign struct {
	Run     string `json:"run_id"`
	RetryOf string `json:"retry_of"`
	Created bool   `json:"created"`
	Members int64  `json:"members"`
}

func newCampaignRetry(a *app) *cobra.Command {
	var who operator
	var opts campaign.RetryOptions
	var asJSON bool
	var owner campaignOwner
	cmd := &cobra.Command{
		Use: "retry RUN", Short: "Try again what failed of a run, as a new one", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Make a run that tries again what failed of one that has ended, and begins at once: whose delivery is dead, or failed for
another reason than a bad address, or whose job is dead. Never who was sent to, who was skipped for a reason, or of whom
it is not known whether it was done. The old run stays as it was. Given again it is the same run; what fails of the
retry is tried again by retrying that one.`,
		Example: "  deed campaign retry 01a1fe76-14ee-7f1b-b119-532699ab7d4c --reason 'the account was blocked'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return owner.with(cmd, a, args[0], func(pool *pgxpool.Pool) error {
				old, err := campaign.Find(cmd.Context(), pool, args[0])
				if err != nil {
					return err
				}
				r, err := campaign.Retry(cmd.Context(), pool, campaign.Scope{Tenant: &old.Tenant}, old.ID, opts, who.act(a))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), retriedCampaign{r.Run, old.ID, r.New, r.Members})
				}
				did := "deployed"
				if !r.New {
					did = "was deployed before, by the same request"
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s; it tries %s of %s again\n", r.Run, did, many(r.Members, "member", "members"), old.ID)
				return err
			})
		},
	}
	who.add(cmd, "why; it is in the audit log")
	cmd.Flags().StringVar(&opts.RequestID, "request-id", "", "the request's own id: the same one is the same run (default: made of the run)")
	cmd.Flags().BoolVar(&opts.Missed, "missed", false, "also who was skipped since the run was cancelled or had expired")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd)
	return cmd
}
