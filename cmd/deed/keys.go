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
	var topic string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "blocked", Short: "List the keys that wait, the longest wait first", Args: cobra.NoArgs,
		Long: `List the keys that wait for one of their messages, the longest wait first: which message it is, how old, how many
stand behind it (counted up to 10,000), and why. A message that is retried has its next attempt under NEXT; a dead one
waits for you: see deed dead --help.`,
		Example: "  deed keys blocked --topic orders\n  deed keys blocked --limit 10 --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usagef("--limit %d is below 1", limit)
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				keys, err := c.BlockedKeys(cmd.Context(), topic, limit)
				if err != nil {
					return err
				}
				if len(keys) == 0 {
					if err := knownTopic(cmd.Context(), c, topic); err != nil {
						return err
					}
				}
				header := []string{"TOPIC", "SUBSCRIPTION", "KEY", "WAITS FOR", "AGE", "BEHIND", "ATTEMPTS", "NEXT", "REASON"}
				return printList(cmd, asJSON, "keys", keys, header, func(k admin.BlockedKey) []string {
					next := "dead"
					if k.DueAt != nil {
						next = when(*k.DueAt)
					}
					reason := k.LastError
					if reason == "" {
						reason = "not tried yet"
					}
					return []string{
						k.Topic, k.Subscription, k.Key, fmt.Sprint(k.Seq), seconds(k.Age), counted(k.Behind, k.Behind >= 10000),
						fmt.Sprint(k.Attempts), next, reason,
					}
				})
			})
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "only this topic")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
