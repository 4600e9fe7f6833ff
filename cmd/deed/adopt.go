package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
)

func newAdopt(a *app) *cobra.Command {
	var yes bool
	var who operator
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Let relays go on that hold on a new cluster",
		Long: `Let the relays of a copied, restored or upgraded installation send.

A copy of production must write to nobody. So relays with deliveries, webhooks, sources, links, campaigns or steps of
runs hold, which means that they send nothing, where they find another server or database than the one that deed knows
(after a restore, pg_upgrade or a cut-over), or another environment than theirs. deed adopt --yes makes this server the
installation's own, and the environment that --environment or deed.yaml names, if any, its environment. All relays then
go on, also those that run, with everything that is owed here. Be sure that nobody else sends it, too.

Without --yes it changes nothing, and prints what holds and what waits. The audit log keeps the reason.`,
		Example: `  deed adopt
  deed adopt --yes --reason 'upgraded to PostgreSQL 18'
  deed adopt --yes --environment staging --reason 'its receivers are test systems'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if yes && strings.TrimSpace(who.reason) == "" {
				return usagef("give a --reason: the audit log keeps it")
			}
			if !yes && (who.reason != "" || who.by != "") {
				return usagef("--reason and --by are for --yes")
			}
			if _, err := a.config(); err != nil { // it may name the environment
				return err
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, pool *pgxpool.Pool) error {
				if yes {
					return adopt(cmd, c, who.act(a))
				}
				return showHeld(cmd, c, pool)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	who.add(cmd, "why (required with --yes)")
	return cmd
}

func adopt(cmd *cobra.Command, c *admin.Client, act audit.Act) error {
	before, err := c.Settings(cmd.Context())
	if err != nil {
		return err
	}
	why, err := c.Adopt(cmd.Context(), act)
	if err != nil {
		return err
	}
	still, err := c.NewCluster(cmd.Context())
	if err != nil {
		return err
	}
	s, err := c.Settings(cmd.Context())
	if err != nil {
		return err
	}
	environment := "no environment"
	if s.Environment != "" {
		environment = fmt.Sprintf("the environment %q", s.Environment)
	}
	out := cmd.OutOrStdout()
	if why == "" && still == "" && s.Environment == before.Environment {
		_, err := io.WriteString(out, "nothing is held here: nothing was changed, and nothing recorded\n")
		return err
	}
	fmt.Fprintf(out, "adopted; held before: %s\nthe installation belongs to this server and %s: what holds goes on, unless it is of another\n", cmp.Or(why, "nothing"), environment)
	if still != "" {
		fmt.Fprintf(out, "still held: %s\n", still)
	}
	return nil
}

// showHeld says what holds and how much waits.
func showHeld(cmd *cobra.Command, c *admin.Client, pool *pgxpool.Pool) error {
	why, err := c.NewCluster(cmd.Context())
	if err != nil {
		return err
	}
	topics, providers, err := owed(cmd.Context(), c, pool, "")
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if why == "" {
		_, err := io.WriteString(out, "nothing is held here\n")
		return err
	}
	fmt.Fprintf(out, "held: %s\n", why)
	var messages, dueMessages, queued, due, doubt int64
	more := ""
	for _, t := range topics {
		messages, dueMessages = messages+t.Pending, dueMessages+t.Due
		if t.AtLeast {
			more = "+"
		}
	}
	waiting := many(messages, "message", "messages")
	if more != "" {
		waiting = fmt.Sprintf("%d+ messages", messages)
	}
	for _, p := range providers {
		queued, due, doubt = queued+p.Queued, due+p.Due, doubt+p.InDoubt
	}
	fmt.Fprintf(out, "waiting: %s (%d%s due), %s (%d due, %d in doubt): see deed status\n",
		waiting, dueMessages, more, many(queued, "delivery", "deliveries"), due, doubt)
	_, err = io.WriteString(out, "if nobody else sends them: deed adopt --yes --reason …\n")
	return err
}
