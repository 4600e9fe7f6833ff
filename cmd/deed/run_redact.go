package main

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/run"
)

func newRunRedact(a *app) *cobra.Command {
	var who operator
	var asJSON bool
	cmd := &cobra.Command{
		Use: "redact ID --reason TEXT", Short: "Take away what people have put into a run", Args: cobra.ExactArgs(1),
		Long: `Empty the input of a run that has ended, and the data of its events but for what the run is by them: hashes, times, types
and numbers stay, so everything about it can still be proved. It cannot be undone, and is in the audit log. Messages of the
run on deed.run_events go with that topic's retention.`,
		Example: "  deed run redact 01a1fe76-14ee-7f1b-b119-532699ab7d4c --reason 'a customer asked for it'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if who.reason == "" {
				return usagef("why? Give --reason")
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				n, err := run.Redact(cmd.Context(), pool, args[0], who.act(a))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"run_id": args[0], "events": n})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: the input is gone, and the data of %s\n", args[0], many(n, "event", "events"))
				return err
			})
		},
	}
	who.add(cmd, "why; required")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
