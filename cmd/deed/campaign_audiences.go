package main

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
)

func newCampaignAudiences(a *app) *cobra.Command {
	var f campaign.AudienceFilter
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "audiences", Short: "List audiences, and remove those that were never finished", Args: cobra.NoArgs,
		Long: `List audiences, newest first. One that is loading is of somebody who is at it, or was interrupted: the same command with the
same people goes on where it was, and deed campaign audiences remove removes what was given up.`,
		Example: "  deed campaign audiences --status loading",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				list, err := campaign.Audiences(cmd.Context(), pool, f)
				if err == nil && len(list.Items) == 0 {
					err = knownTenant(cmd.Context(), pool, f.Tenant)
				}
				if err != nil {
					return err
				}
				header := []string{"AUDIENCE", "STATUS", "CHANNEL", "MEMBERS", "READ", "LEFT OUT", "MADE", "NAME"}
				return printPage(cmd, asJSON, "audiences", list, header, func(o campaign.AudienceInfo) []string {
					return []string{o.ID, o.Status, string(o.Channel), fmt.Sprint(o.Members), fmt.Sprint(o.Read), fmt.Sprint(o.LeftOut), when(o.CreatedAt), o.Name}
				})
			})
		},
	}
	cmd.Flags().StringVar(&f.Status, "status", "", "only these: loading, ready, removing")
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	cmd.AddCommand(newCampaignAudiencesRemove(a))
	return cmd
}

// removedAudience is what deed campaign audiences remove prints.
type removedAudience struct {
	Audience string `json:"audience_id"`
	Members  int64  `json:"members"`
	DryRun   bool   `json:"dry_run"`
}

func newCampaignAudiencesRemove(a *app) *cobra.Command {
	var who operator
	var owner tenantFlag
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use: "remove ID", Short: "Remove an audience that was never finished", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Remove an audience whose load was given up, in small steps: nobody goes on loading it from the first one on, and
interrupted, the same again goes on. Contacts that were made for it stay. One that is ready is never removed: runs are
proved by it.`,
		Example: "  deed campaign audiences remove 01a1fe76-14ee-7f1b-b119-532699ab7d4c --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := owner.id()
			if err != nil {
				return err
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				o, err := campaign.AudienceByID(cmd.Context(), pool, args[0])
				if err == nil && of != nil && o.Tenant != *of {
					err = &deed.Error{Op: "remove audience", Code: deed.NotFound, Err: fmt.Errorf("there is no audience %s of tenant %s", args[0], of)}
				}
				if err == nil && o.Status == "ready" {
					err = &deed.Error{Op: "remove audience", Code: deed.Conflict, Err: fmt.Errorf("the audience %s is ready, and runs are proved by it", o.ID)}
				}
				if err != nil {
					return err
				}
				did, n := "would be removed", o.Members
				if !dry {
					did = "removed"
					if n, err = campaign.RemoveAudience(cmd.Context(), pool, campaign.Scope{Tenant: &o.Tenant}, o.ID, who.act(a)); err != nil {
						return err
					}
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), removedAudience{o.ID, n, dry})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, with %s\n", o.ID, did, many(n, "member", "members"))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would go")
	who.add(cmd, "why; it is in the audit log")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only if it is this tenant's, a UUID")
	return cmd
}
