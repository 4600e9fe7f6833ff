package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
)

func newCampaign(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "campaign", Short: "Check and deploy campaigns; look at, pause, cancel and verify their runs",
		Long: `Campaigns, as files say them (docs/campaigns.md), and their runs: where each is, what became of its members, and why. Runs
of workflow plans are another thing.`,
		Example: "  deed campaign deploy spring.yaml --csv people.csv\n  deed campaign list --status running\n  deed campaign pause 01a1fe76-14ee-7f1b-b119-532699ab7d4c --reason 'the wrong price'",
	}
	cmd.AddCommand(newCampaignCheck(a), newCampaignDeploy(a), newCampaignPreview(a), newCampaignTest(a), newCampaignList(a), newCampaignShow(a), newCampaignTrace(a),
		newCampaignWatch(a), newCampaignReport(a), newCampaignExport(a), newCampaignVerify(a), newCampaignPause(a), newCampaignResume(a), newCampaignCancel(a), newCampaignRetry(a), newCampaignWinner(a), newCampaignAudiences(a))
	return cmd
}

func newCampaignList(a *app) *cobra.Command {
	var f campaign.Filter
	var owner tenantFlag
	var status string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List runs of campaigns, newest first", Args: cobra.NoArgs,
		Long:    "List runs of campaigns, newest first. One that is paused or cancelled and has not ended yet says so.",
		Example: "  deed campaign list --campaign spring --status partial",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			f.Status = campaign.Status(status)
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				list, err := campaign.List(cmd.Context(), pool, f)
				if err == nil && len(list.Items) == 0 {
					err = cmp.Or(knownTenant(cmd.Context(), pool, f.Tenant), knownCampaign(cmd.Context(), pool, f))
				}
				if err != nil {
					return err
				}
				header := []string{"RUN", "STATUS", "CAMPAIGN", "CHANNEL", "PROVIDER", "MEMBERS", "BEGINS", "ENDED"}
				return printPage(cmd, asJSON, "runs", list, header, func(r campaign.Run) []string {
					return []string{r.ID, statusOfCampaign(r), r.Name, string(r.Channel), r.Provider, fmt.Sprint(r.Members), when(r.ScheduledFor), instant(r.FinishedAt)}
				})
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&status, "status", "", "only these: queued, running, completed, partial, failed")
	fl.StringVar(&f.Campaign, "campaign", "", "only runs of the campaign of this name")
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

// statusOfCampaign is a run's status and, until it has ended, what a person or the run itself has done to it.
func statusOfCampaign(r campaign.Run) string {
	switch {
	case r.FinishedAt != nil:
		return string(r.Status)
	case r.CancelledAt != nil:
		return string(r.Status) + ", cancelled"
	case r.PausedWhy != "":
		return string(r.Status) + ", paused itself"
	case r.PausedAt != nil:
		return string(r.Status) + ", paused"
	}
	return string(r.Status)
}

// unbegun says that no relay has begun a run that was to begin a while ago; "": one has, or it is too early to say so.
func unbegun(r campaign.Run) string {
	if r.Status != campaign.Queued || time.Since(r.ScheduledFor) < time.Minute || time.Since(r.CreatedAt) < time.Minute {
		return ""
	}
	return "no relay has begun it: run one with campaigns: {enabled: true}"
}

func newCampaignShow(a *app) *cobra.Command {
	var asJSON bool
	var owner campaignOwner
	cmd := &cobra.Command{
		Use: "show RUN", Short: "Show a run of a campaign, and what became of its members", Args: cobra.ExactArgs(1),
		Long:    "Show a run of a campaign: where it is, what became of its members so far, and why of those that did not get it, and what it\nwaits for.",
		Example: "  deed campaign show 01a1fe76-14ee-7f1b-b119-532699ab7d4c --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return owner.with(cmd, a, args[0], func(pool *pgxpool.Pool) error {
				s, err := campaign.Show(cmd.Context(), pool, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), s)
				}
				return showCampaign(cmd.OutOrStdout(), s)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd)
	return cmd
}

func showCampaign(w io.Writer, s campaign.Shown) error {
	for _, line := range [][2]string{
		{"run", s.ID},
		{"status", statusOfCampaign(s.Run)},
		{"campaign", s.Name},
		{"channel", string(s.Channel)},
		{"provider", s.Provider},
		{"purpose", s.Purpose},
		{"request", s.RequestID},
		{"audience", s.Audience},
		{"content", s.Content},
		{"begins", begins(s.Run)},
		{"quiet hours", s.QuietHours},
		{"rate", pace(s.Run)},
		{"variants", variants(s.Run)},
		{"test", tested(s.Run)},
		{"winner", winner(s.Run)},
		{"expires", when(s.ExpiresAt)},
		{"started", instant(s.StartedAt)},
		{"pauses on", pausesOn(s.PauseOn)},
		{"paused", strings.TrimSuffix(instant(s.PausedAt)+", "+s.PausedWhy, ", ")},
		{"cancelled", instant(s.CancelledAt)},
		{"ended", instant(s.FinishedAt)},
		{"sealed", instant(s.SealedAt)},
		{"purged", instant(s.PurgedAt)},
		{"retries", s.RetryOf},
		{"tenant", s.Tenant.String()},
	} {
		detail(w, 16, line[0], line[1])
	}
	p := s.Progress
	for _, line := range []struct {
		name string
		n    int64
	}{
		{"members", s.Members},
		{"sent", p.Sent},
		{"skipped", p.Skipped},
		{"missed", p.Missed},
		{"failed", p.Failed},
		{"dead", p.Dead},
		{"sending", p.Sending},
		{"in doubt", p.InDoubt},
		{"for a person", p.Held},
		{"queued", p.Queued},
		{"not expanded", p.Waiting},
		{"lost", p.Lost},
	} {
		if line.n > 0 {
			fmt.Fprintf(w, "%-16s %d\n", line.name, line.n)
		}
	}
	if why := unbegun(s.Run); why != "" {
		fmt.Fprintf(w, "%-16s %s\n", "waits", why)
	}
	for _, wait := range s.Waits {
		if wait.Until != nil || wait.Rate > 0 || wait.Why == "winner" {
			fmt.Fprintf(w, "%-16s %s\n", "waits", clip(waits(wait), 0))
		}
	}
	if len(s.Reasons) == 0 {
		return nil
	}
	rows := make([][]string, len(s.Reasons))
	for i, r := range s.Reasons {
		rows[i] = []string{r.Status, fmt.Sprint(r.Count), clip(r.Reason, 100)}
	}
	fmt.Fprintln(w)
	return table(w, []string{"STATUS", "COUNT", "WHY"}, rows)
}

func newCampaignTrace(a *app) *cobra.Command {
	var cursor string
	var limit int
	var asJSON bool
	var owner campaignOwner
	cmd := &cobra.Command{
		Use: "trace RUN", Short: "Trace a run of a campaign to the provider's message ids", Args: cobra.ExactArgs(1),
		Long: `Trace a run of a campaign: its jobs in the order of the audience, their deliveries, and the provider's message id of
each.`,
		Example: "  deed campaign trace 01a1fe76-14ee-7f1b-b119-532699ab7d4c --limit 1000 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return usagef("--limit %d is below 1", limit)
			}
			return owner.with(cmd, a, args[0], func(pool *pgxpool.Pool) error {
				list, err := campaign.Trace(cmd.Context(), pool, args[0], cursor, limit)
				if err != nil {
					return err
				}
				header := []string{"DELIVERY", "STATUS", "JOB", "PROVIDER ID", "WHY"}
				return printPage(cmd, asJSON, "trace", list, header, func(t campaign.Traced) []string {
					if t.Delivery == "" {
						return []string{"-", cmp.Or(t.Status, "-"), t.JobStatus, "-", t.JobError}
					}
					return []string{t.Delivery, t.Status, t.JobStatus, t.ProviderID, t.Reason}
				})
			})
		},
	}
	pageFlags(cmd, &cursor, &limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd)
	return cmd
}

// decided is what came of an act on a run.
type decided struct {
	Run string `json:"run_id"`
	Did string `json:"did"`
	campaign.UnderWay
}

// newCampaignAct is a command that decides about a run.
func newCampaignAct(a *app, use, short, long, did string, act func(cmd *cobra.Command, pool *pgxpool.Pool, scope campaign.Scope, run string, by audit.Act) (campaign.UnderWay, error)) *cobra.Command {
	var who operator
	var asJSON bool
	var owner campaignOwner
	cmd := &cobra.Command{
		Use: use + " RUN", Short: short, Args: cobra.ExactArgs(1), Long: long,
		Example: "  deed campaign " + use + " 01a1fe76-14ee-7f1b-b119-532699ab7d4c --reason 'the wrong price'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return owner.with(cmd, a, args[0], func(pool *pgxpool.Pool) error {
				r, err := campaign.Find(cmd.Context(), pool, args[0])
				if err != nil {
					return err
				}
				left, err := act(cmd, pool, campaign.Scope{Tenant: &r.Tenant}, r.ID, who.act(a))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), decided{r.ID, did, left})
				}
				text := fmt.Sprintf("%s: %s", r.ID, did)
				if left.Sending > 0 {
					text += fmt.Sprintf("; %s being sent, and not stopped", many(left.Sending, "delivery is", "deliveries are"))
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), text+heldOf(left))
				return err
			})
		},
	}
	who.add(cmd, "why; it is in the audit log")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd)
	return cmd
}

func newCampaignResume(a *app) *cobra.Command {
	return newCampaignAct(a, "resume", "Let a run that is paused go on", "Let a run that is paused go on where it was.", "resumed",
		func(cmd *cobra.Command, pool *pgxpool.Pool, scope campaign.Scope, run string, by audit.Act) (campaign.UnderWay, error) {
			return campaign.UnderWay{}, campaign.Resume(cmd.Context(), pool, scope, run, by)
		})
}
