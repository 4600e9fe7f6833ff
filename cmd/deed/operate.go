package main

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/tenant"
)

func newTenant(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tenant", Short: "Register and list tenants",
		Long:    "From the first registered tenant on the installation is no longer single-tenant: a login that sets no tenant sees nothing.",
		Example: "  deed tenant add acme\n  deed tenant list",
	}
	var text string
	var addJSON, listJSON bool
	add := &cobra.Command{
		Use: "add NAME", Short: "Register a tenant and print its id", Args: cobra.ExactArgs(1),
		Long: `Register a tenant and print its id, a new one unless --id gives it. The same id and name again change nothing.
Messages carry a tenant's id whether or not it is registered.`,
		Example: "  deed tenant add acme\n  deed tenant add acme --id 6f1c2d3e-0000-4000-8000-000000000001",
		RunE: func(cmd *cobra.Command, args []string) error {
			id := newTenantID()
			if text != "" {
				var err error
				if id, err = tenant.Parse(text); err != nil {
					return &exitError{exitUsage, err}
				}
			}
			if args[0] == "" || len(args[0]) > 200 {
				return usagef("a tenant's name has 1 to 200 characters")
			}
			return a.withClient(cmd.Context(), func(_ *deed.Client, pool *pgxpool.Pool) error {
				if err := tenant.Add(cmd.Context(), pool, id, args[0]); err != nil {
					return err
				}
				if addJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"id": id, "name": args[0]})
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), id)
				return err
			})
		},
	}
	add.Flags().StringVar(&text, "id", "", "its id, a UUID (default: a new one)")
	add.Flags().BoolVar(&addJSON, "json", false, "print JSON")
	list := &cobra.Command{
		Use: "list", Short: "List tenants", Args: cobra.NoArgs,
		Long:    "List the registered tenants by name.",
		Example: "  deed tenant list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(_ *deed.Client, pool *pgxpool.Pool) error {
				tenants, err := tenant.List(cmd.Context(), pool)
				if err != nil {
					return err
				}
				if listJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"tenants": tenants})
				}
				rows := make([][]string, len(tenants))
				for i, t := range tenants {
					rows[i] = []string{t.ID.String(), t.Name, when(t.CreatedAt)}
				}
				return table(cmd.OutOrStdout(), []string{"ID", "NAME", "SINCE"}, rows)
			})
		},
	}
	list.Flags().BoolVar(&listJSON, "json", false, "print JSON")
	cmd.AddCommand(add, list)
	return cmd
}

// newTenantID is a UUIDv7.
func newTenantID() tenant.ID {
	var id tenant.ID
	rand.Read(id[:])
	ms := time.Now().UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

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
			return a.withClient(cmd.Context(), func(c *deed.Client, _ *pgxpool.Pool) error {
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
					{"dedup-window", s.DedupWindow.String()},
					{"retention", s.Retention.String()},
					{"single tenant", fmt.Sprint(s.SingleTenant)},
					{"installation", s.Installation},
				})
			})
		},
	}
	cmd.RunE = show.RunE
	for _, c := range []*cobra.Command{cmd, show} {
		c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	}
	var strict bool
	var payload int
	var window, retention time.Duration
	set := &cobra.Command{
		Use: "set", Short: "Change settings", Args: cobra.NoArgs,
		Long:    "Change the settings that are given; they take effect at once.",
		Example: "  deed settings set --strict-topics --max-payload 262144 --dedup-window 720h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var change deed.SettingsChange
			changed := cmd.Flags().Changed
			if changed("strict-topics") {
				change.StrictTopics = &strict
			}
			if changed("max-payload") {
				change.MaxPayload = &payload
			}
			if changed("dedup-window") {
				change.DedupWindow = &window
			}
			if changed("retention") {
				change.Retention = &retention
			}
			if change == (deed.SettingsChange{}) {
				return usagef("nothing to change; see deed settings set --help")
			}
			return a.withClient(cmd.Context(), func(c *deed.Client, _ *pgxpool.Pool) error {
				return c.SetSettings(cmd.Context(), change)
			})
		},
	}
	set.Flags().BoolVar(&strict, "strict-topics", false, "publish to declared topics only")
	set.Flags().IntVar(&payload, "max-payload", 0, "the largest payload, in bytes")
	set.Flags().DurationVar(&window, "dedup-window", 0, "how long an idempotency key is remembered, at least")
	set.Flags().DurationVar(&retention, "retention", 0, "how long finished messages of topics that nobody declared are kept")
	cmd.AddCommand(show, set)
	return cmd
}
