package main

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
)

func newReschedule(a *app) *cobra.Command {
	var who operator
	var text, subscription string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "reschedule ID --at TIME", Short: "Move the time at which a waiting message is due", Args: cobra.ExactArgs(1),
		Long: `Move the time from which on a message that waits is due, by its id or its number: one that was published for later, or
that waits for a retry. What a worker has in hand, what is dead (deed dead redrive), and what waits behind another
message of its key is not touched. The act is in the audit log.`,
		Example: "  deed reschedule 17 --at now\n  deed reschedule 17 --at 2026-12-24T18:00:00Z --reason 'after the freeze'",
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, _, err := admin.ParseRef(args[0])
			if err != nil {
				return err
			}
			var at time.Time
			if text != "now" {
				if at, err = time.Parse(time.RFC3339, text); err != nil {
					return usagef("when? Give --at a time such as 2026-12-24T18:00:00Z, or now")
				}
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				// By its id the message must be the one that has this number now.
				detail, err := c.Message(cmd.Context(), args[0], false)
				if err != nil {
					return err
				}
				n, err := c.Reschedule(cmd.Context(), seq, at, subscription, who.act(a))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"seq": fmt.Sprint(seq), "id": detail.ID, "subscriptions": n})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "message %d is rescheduled, for %s\n", seq, many(n, "subscription", "subscriptions"))
				return err
			})
		},
	}
	who.add(cmd, "why, for the audit log")
	cmd.Flags().StringVar(&text, "at", "", "when it is due, as 2026-12-24T18:00:00Z, or now")
	cmd.Flags().StringVar(&subscription, "subscription", "", "only for this subscription (default: all for which it waits)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
