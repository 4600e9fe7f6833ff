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

func newDead(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dead",
		Short:   "List, show and redrive dead letters",
		Long:    "Dead letters are messages that exhausted their attempts, or that the sink refused for good. They are kept until you act.",
		Example: "  deed dead list --topic orders\n  deed dead redrive --topic orders --dry-run",
	}
	cmd.AddCommand(newDeadList(a), newDeadShow(a), newDeadRedrive(a))
	return cmd
}

func newDeadList(a *app) *cobra.Command {
	var f deed.DeadFilter
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, newest first", Args: cobra.NoArgs,
		Long:    "List dead letters with their last error, newest first. Their contents are shown by deed dead show ID --payload.",
		Example: "  deed dead list --topic orders",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withClient(cmd.Context(), func(c *deed.Client, _ *pgxpool.Pool) error {
				list, err := c.Dead(cmd.Context(), f)
				if err != nil {
					return err
				}
				if asJSON {
					if list == nil {
						list = []deed.DeadMessage{}
					}
					return printJSON(cmd.OutOrStdout(), map[string]any{"dead": list})
				}
				rows := make([][]string, len(list))
				for i, d := range list {
					rows[i] = []string{fmt.Sprint(d.Seq), d.ID.String(), d.Topic, d.Subscription, d.Key, fmt.Sprint(d.Attempts), when(d.DeadAt), d.LastError}
				}
				return table(cmd.OutOrStdout(), []string{"SEQ", "ID", "TOPIC", "SUBSCRIPTION", "KEY", "ATTEMPTS", "DEAD SINCE", "LAST ERROR"}, rows)
			})
		},
	}
	cmd.Flags().StringVar(&f.Topic, "topic", "", "only this topic")
	cmd.Flags().StringVar(&f.Subscription, "subscription", "", "only this subscription")
	cmd.Flags().IntVar(&f.Limit, "limit", 100, "how many")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

func newDeadShow(a *app) *cobra.Command {
	var payload, asJSON bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a dead letter", Args: cobra.ExactArgs(1),
		Long:    "Show a message, by its id or its number, and how each subscription stands with it. Its content only with --payload.",
		Example: "  deed dead show 17 --payload",
		RunE:    func(cmd *cobra.Command, args []string) error { return showMessage(cmd, a, args[0], payload, asJSON) },
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "show the content")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newDeadRedrive(a *app) *cobra.Command {
	var r deed.Redrive
	var owner tenantFlag
	var refs []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "redrive --topic TOPIC", Short: "Put dead letters back, oldest first", Args: cobra.NoArgs,
		Long:    "Put dead letters back, oldest first, with their attempts at 0. With --dry-run nothing changes and the number is printed.",
		Example: "  deed dead redrive --topic orders --limit 100 --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if r.Topic == "" {
				return usagef("which topic? Give --topic")
			}
			if r.Limit < 0 || (cmd.Flags().Changed("limit") && r.Limit == 0) {
				return usagef("--limit %d is below 1", r.Limit)
			}
			if r.Tenant, err = owner.id(); err != nil {
				return err
			}
			for _, ref := range refs {
				seq, _, err := deed.ParseRef(ref)
				if err != nil {
					return err
				}
				r.Seqs = append(r.Seqs, seq)
			}
			return a.withClient(cmd.Context(), func(c *deed.Client, _ *pgxpool.Pool) error {
				n, err := c.Redrive(cmd.Context(), r)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"redriven": n, "dry_run": r.DryRun})
				}
				verb := "redriven"
				if r.DryRun {
					verb = "would be redriven"
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d messages %s\n", n, verb)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&r.Topic, "topic", "", "the topic (required)")
	cmd.Flags().StringVar(&r.Subscription, "subscription", "", "only this subscription")
	cmd.Flags().StringArrayVar(&refs, "id", nil, "only this message, by its id or number; may be repeated")
	cmd.Flags().IntVar(&r.Limit, "limit", 0, "how many at the most (default: all)")
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "only count")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

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

func newTopic(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "topic", Short: "List topics, and change their settings online",
		Long:    "Topics and their subscriptions are made by the first relay whose deed.yaml names them.",
		Example: "  deed topic list\n  deed topic set orders --max-attempts 8",
	}
	var asJSON bool
	list := &cobra.Command{
		Use: "list", Short: "List declared topics and their subscriptions", Args: cobra.NoArgs,
		Long:    "List what the database has of every declared topic: its subscriptions, with their settings.",
		Example: "  deed topic list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *deed.Client, _ *pgxpool.Pool) error {
				topics, err := c.Topics(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					if topics == nil {
						topics = []deed.Declared{}
					}
					return printJSON(cmd.OutOrStdout(), map[string]any{"topics": topics})
				}
				rows := make([][]string, len(topics))
				for i, t := range topics {
					attempts := fmt.Sprint(t.MaxAttempts)
					if t.MaxAttempts == 0 {
						attempts = "unlimited"
					}
					rows[i] = []string{t.Topic, t.Subscription, attempts, t.Lease.String(), string(t.From), fmt.Sprint(t.Backfilled), when(t.CreatedAt)}
				}
				return table(cmd.OutOrStdout(), []string{"TOPIC", "SUBSCRIPTION", "MAX ATTEMPTS", "LEASE", "FROM", "BACKFILLED", "SINCE"}, rows)
			})
		},
	}
	list.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(list, newTopicSet(a))
	return cmd
}

func newTopicSet(a *app) *cobra.Command {
	var name string
	var attempts int
	var lease time.Duration
	cmd := &cobra.Command{
		Use: "set TOPIC", Short: "Change what is stored of a topic's subscriptions", Args: cobra.ExactArgs(1),
		Long: `Change what is stored of a topic's subscriptions: all of them, or the one that is named. The
number of attempts holds at once, a lease for relays that start from now on. Change deed.yaml too: a relay whose file
says something else refuses to start.`,
		Example: "  deed topic set orders --subscription shop-hook --max-attempts 8 --lease 1m",
		RunE: func(cmd *cobra.Command, args []string) error {
			changed := cmd.Flags().Changed
			if !changed("max-attempts") && !changed("lease") {
				return usagef("nothing to change: give --max-attempts or --lease")
			}
			if (changed("max-attempts") && attempts < 1) || (changed("lease") && lease <= 0) {
				return usagef("--max-attempts and --lease must be above 0")
			}
			return a.withClient(cmd.Context(), func(c *deed.Client, _ *pgxpool.Pool) error {
				return c.SetSubscription(cmd.Context(), args[0], name, attempts, lease)
			})
		},
	}
	cmd.Flags().StringVar(&name, "subscription", "", "only this subscription (default: all of the topic's)")
	cmd.Flags().IntVar(&attempts, "max-attempts", 0, "failed attempts before a message is dead")
	cmd.Flags().DurationVar(&lease, "lease", 0, "how long a claim lasts unless renewed")
	return cmd
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
