package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/tenant"
)

func newTenant(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tenant", Short: "Register, list and remove tenants, and bind logins to them",
		Long: `From the first registered tenant on the installation is no longer single-tenant: a login that sets no tenant sees
nothing. A login of the application is trusted to set its tenant; one that others run SQL with is bound to its own.`,
		Example: "  deed tenant add acme\n  deed tenant list\n  deed tenant bind acme_reports 6f1c2d3e-0000-4000-8000-000000000001 --reason 'their own login'",
	}
	var text string
	var addJSON, listJSON bool
	var cursor string
	var limit int
	add := &cobra.Command{
		Use: "add NAME", Short: "Register a tenant and print its id", Args: cobra.ExactArgs(1),
		Long: `Register a tenant and print its id, a new one unless --id gives it. The same id and name again change nothing.
Messages carry a tenant's id whether or not it is registered.`,
		Example: "  deed tenant add acme\n  deed tenant add acme --id 6f1c2d3e-0000-4000-8000-000000000001",
		RunE: func(cmd *cobra.Command, args []string) error {
			id := tenant.ID(uuid.New())
			if text != "" {
				var err error
				if id, err = tenant.Parse(text); err != nil {
					return &exitError{exitUsage, err}
				}
			}
			if args[0] == "" || utf8.RuneCountInString(args[0]) > 200 {
				return usagef("a tenant's name has 1 to 200 characters")
			}
			return a.withOperator(cmd.Context(), func(_ *admin.Client, pool *pgxpool.Pool) error {
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
			return a.withOperator(cmd.Context(), func(_ *admin.Client, pool *pgxpool.Pool) error {
				if limit < 1 {
					return usagef("--limit %d is below 1", limit)
				}
				tenants, err := tenant.List(cmd.Context(), pool, cursor, limit)
				if err != nil {
					return err
				}
				return printPage(cmd, listJSON, "tenants", tenants, []string{"ID", "NAME", "SINCE"}, func(t tenant.Tenant) []string {
					return []string{t.ID.String(), t.Name, when(t.CreatedAt)}
				})
			})
		},
	}
	pageFlags(list, &cursor, &limit, 1000)
	list.Flags().BoolVar(&listJSON, "json", false, "print JSON")
	cmd.AddCommand(add, list, newTenantBind(a, false), newTenantBind(a, true), newTenantLogins(a), newTenantRemove(a), newTenantRemovals(a))
	return cmd
}

func newTenantBind(a *app, free bool) *cobra.Command {
	var who operator
	var asJSON bool
	cmd := &cobra.Command{
		Use: "bind LOGIN TENANT… --reason TEXT", Short: "Hold a login to tenants", Args: cobra.MinimumNArgs(2),
		Long: `Hold a login of PostgreSQL to these tenants, in place of those that it was bound to. It sees and publishes theirs only,
whatever it sets, from its next statement on; with one tenant it need set none. A login that is not bound is trusted:
who runs SQL with it chooses the tenant.`,
		Example: "  deed tenant bind acme_reports 6f1c2d3e-0000-4000-8000-000000000001 --reason 'their own login'",
	}
	if free {
		cmd.Use, cmd.Short, cmd.Args = "unbind LOGIN --reason TEXT", "Trust a login to set its tenant again", cobra.ExactArgs(1)
		cmd.Long = "Hold a login to no tenant any more: it is trusted to set the one that it acts for."
		cmd.Example = "  deed tenant unbind acme_reports --reason 'the service sets it now'"
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids := make([]tenant.ID, len(args)-1)
		for i, text := range args[1:] {
			var err error
			if ids[i], err = tenant.Parse(text); err != nil {
				return &exitError{exitUsage, err}
			}
		}
		if who.reason == "" {
			return usagef("--reason is required: it stands in the audit log")
		}
		return a.withOperator(cmd.Context(), func(_ *admin.Client, pool *pgxpool.Pool) error {
			changed, err := tenant.Bind(cmd.Context(), pool, args[0], ids, who.act(a))
			if errors.Is(err, tenant.ErrCannotBind) {
				return &exitError{exitUsage, err}
			}
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"login": args[0], "tenants": ids, "changed": changed})
			}
			verb := map[bool]string{true: "is trusted to set its tenant", false: fmt.Sprintf("is held to %d of the tenants", len(ids))}[free]
			if !changed {
				verb += ", as before"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", args[0], verb)
			return err
		})
	}
	who.add(cmd, "why (required)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newTenantLogins(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "logins", Short: "List the logins that are bound", Args: cobra.NoArgs,
		Long: "List the logins that are held to tenants. All other logins of the application are trusted to set theirs. One without a\n" +
			"tenant sees nothing: the last one that it was held to was removed. Bind it to another, or unbind it.",
		Example: "  deed tenant logins --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withOperator(cmd.Context(), func(_ *admin.Client, pool *pgxpool.Pool) error {
				list, err := tenant.Bindings(cmd.Context(), pool)
				if err != nil {
					return err
				}
				header := []string{"LOGIN", "TENANTS"}
				return printList(cmd, asJSON, "logins", list, header, func(b tenant.Binding) []string {
					texts := make([]string, len(b.Tenants))
					for j, id := range b.Tenants {
						texts[j] = id.String()
					}
					return []string{b.Login, cmp.Or(strings.Join(texts, " "), "none")}
				})
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
