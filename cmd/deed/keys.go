package main

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
)

func newKeys(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Short: "Show the keys of streams that wait for a message",
		Long: `In a stream that keeps order, a message that fails holds back the others of its key, and no other key, until it is
delivered, or dead and then redriven or discarded by you.`,
		Example: "  deed keys blocked --topic orders",
	}
	cmd.AddCommand(newKeysBlocked(a))
	return cmd
}

func newKeysBlocked(a *app) *cobra.Command {
	var f admin.BlockedFilter
	var asJSON bool
	cmd := &cobra.Command{
		Use: "blocked", Short: "List the keys that wait, the longest wait first", Args: cobra.NoArgs,
		Long: `List the keys that wait for one of their messages, the longest wait first: which message it is, how old, how many
stand behind it (with + where counting stopped), and why. A message that is retried has its next attempt under NEXT; a
dead one waits for you: see deed dead --help.`,
		Example: "  deed keys blocked --topic orders\n  deed keys blocked --limit 10 --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				page, err := c.BlockedKeys(cmd.Context(), f)
				if err != nil {
					return err
				}
				if len(page.Items) == 0 {
					if err := knownTopic(cmd.Context(), c, f.Topic); err != nil {
						return err
					}
				}
				header := []string{"TOPIC", "SUBSCRIPTION", "KEY", "WAITS FOR", "AGE", "BEHIND", "ATTEMPTS", "NEXT", "REASON"}
				return printPage(cmd, asJSON, "keys", page, header, func(k admin.BlockedKey) []string {
					next := "dead"
					if k.DueAt != nil {
						next = when(*k.DueAt)
					}
					reason := k.LastError
					if reason == "" {
						reason = "not tried yet"
					}
					return []string{
						k.Topic, k.Subscription, k.Key, fmt.Sprint(k.Seq), seconds(k.Age), counted(k.Behind, k.AtLeast),
						fmt.Sprint(k.Attempts), next, reason,
					}
				})
			})
		},
	}
	cmd.Flags().StringVar(&f.Topic, "topic", "", "only this topic")
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
