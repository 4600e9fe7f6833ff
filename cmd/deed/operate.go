package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/duration"
)

func newSettings(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "settings", Short: "Show and change what holds for the whole installation",
		Long:    "These settings live in the database and hold for every program that uses it. Without a command they are shown.",
		Example: "  deed settings\n  deed settings set --strict-topics",
	}
	var asJSON bool
	show := &cobra.Command{
		Use: "show", Short: "Show the settings", Args: cobra.NoArgs,
		Long:    "Show the settings of the installation.",
		Example: "  deed settings show --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				s, err := c.Settings(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), s)
				}
				return table(cmd.OutOrStdout(), []string{"SETTING", "VALUE"}, [][]string{
					{"strict-topics", fmt.Sprint(s.StrictTopics)},
					{"max-payload", fmt.Sprint(s.MaxPayload)},
					{"max-delivery", fmt.Sprint(s.MaxDelivery)},
					{"dedup-window", duration.Format(time.Duration(s.DedupWindow))},
					{"retention", duration.Format(time.Duration(s.Retention))},
					{"single tenant", fmt.Sprint(s.SingleTenant)},
					{"installation", s.Installation},
					{"environment", cmp.Or(s.Environment, "-")},
				})
			})
		},
	}
	cmd.RunE = show.RunE
	for _, c := range []*cobra.Command{cmd, show} {
		c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	}
	var strict bool
	var payload, most int
	var window, retention time.Duration
	set := &cobra.Command{
		Use: "set", Short: "Change settings", Args: cobra.NoArgs,
		Long:    "Change the settings that are given; they take effect at once.",
		Example: "  deed settings set --strict-topics --max-payload 262144 --dedup-window 30d",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var change admin.SettingsChange
			changed := cmd.Flags().Changed
			if changed("strict-topics") {
				change.StrictTopics = &strict
			}
			if changed("max-payload") {
				change.MaxPayload = &payload
			}
			if changed("max-delivery") {
				change.MaxDelivery = &most
			}
			if changed("dedup-window") {
				change.DedupWindow = &window
			}
			if changed("retention") {
				change.Retention = &retention
			}
			if change == (admin.SettingsChange{}) {
				return usagef("nothing to change; see deed settings set --help")
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				return c.SetSettings(cmd.Context(), change)
			})
		},
	}
	set.Flags().BoolVar(&strict, "strict-topics", false, "publish to declared topics only")
	set.Flags().IntVar(&payload, "max-payload", 0, "the largest payload of a message, in bytes")
	set.Flags().IntVar(&most, "max-delivery", 0, "the largest payload of a delivery, in bytes")
	durationVar(set, &window, "dedup-window", 0, "how long an idempotency key is remembered, at least")
	durationVar(set, &retention, "retention", 0, "how long finished messages of topics that nobody declared are kept")
	cmd.AddCommand(show, set)
	return cmd
}
