package main

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/inbox"
)

func newInbox(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "inbox", Short: "Process messages exactly once in a consumer's PostgreSQL",
		Long: `The inbox notes which messages a consumer has processed, in the transaction of their effects, so that a repeat finds it.
It lives in the schema deed_inbox of the consumer's database (--database-url), which needs nothing else of deed.`,
		Example: "  deed inbox install --database-url postgres://localhost/billing --grant billing_app\n  deed inbox purge --older-than 30d",
	}
	var roles []string
	install := &cobra.Command{
		Use: "install", Short: "Make the inbox in the consumer's database", Args: cobra.NoArgs,
		Long:    "Make the schema deed_inbox, with one table and two functions, or bring it up to date. Safe to run again.",
		Example: "  deed inbox install --database-url postgres://localhost/billing --grant billing_app",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withConn(cmd.Context(), func(conn *pgx.Conn) error {
				if err := inbox.Install(cmd.Context(), conn, roles...); err != nil {
					return err
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "the inbox is installed")
				return err
			})
		},
	}
	install.Flags().StringArrayVar(&roles, "grant", nil, "a role that may use it; may be repeated")
	text := &cobra.Command{
		Use: "sql", Short: "Print what install runs, for psql", Args: cobra.NoArgs,
		Long:    "Print what deed inbox install runs, but for its grants.",
		Example: "  deed inbox sql | psql -v ON_ERROR_STOP=1 -1 postgres://localhost/billing",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), inbox.SQL())
			return err
		},
	}
	var horizon time.Duration
	var asJSON bool
	purge := &cobra.Command{
		Use: "purge", Short: "Forget what was processed long ago", Args: cobra.NoArgs,
		Long: `Forget, in batches, which messages were processed longer ago than --older-than. One that comes again after that is
processed again: it must be longer than a message can take to come again.`,
		Example:     "  deed inbox purge --database-url postgres://localhost/billing --older-than 30d",
		Annotations: map[string]string{takesLong: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if horizon <= 0 {
				return usagef("--older-than %s is not above 0", horizon)
			}
			return a.withConn(cmd.Context(), func(conn *pgx.Conn) error {
				n, err := inbox.Purge(cmd.Context(), conn, horizon)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"purged": n})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s forgotten\n", many(n, "message", "messages"))
				return err
			})
		},
	}
	durationVar(purge, &horizon, "older-than", inbox.Horizon, "how long a message is remembered")
	purge.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(install, text, purge)
	return cmd
}
