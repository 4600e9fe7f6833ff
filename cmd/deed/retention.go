package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
)

func newRetention(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "retention", Short: "Show what of the log is kept and why, and remove what may go",
		Long: `Show the partitions of the log: the numbers they hold, their size, how long ago the next one was opened, and what keeps
them. Those that nothing keeps are removed by any relay within minutes; deed retention run does it now.`,
		Example: "  deed retention\n  deed retention run",
		Args:    cobra.NoArgs,
	}
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
			list, err := c.Partitions(cmd.Context())
			if err != nil {
				return err
			}
			header := []string{"PARTITION", "FROM SEQ", "STATE", "SIZE", "AGE", "UNFINISHED", "KEPT BY"}
			return printList(cmd, asJSON, "partitions", list, header, partitionRow)
		})
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(newRetentionRun(a))
	return cmd
}

func partitionRow(p admin.Partition) []string {
	age := ""
	if p.ClosedAt != nil {
		age = time.Since(*p.ClosedAt).Round(time.Minute).String()
	}
	kept := strings.Join(p.KeptBy, "; ")
	switch {
	case p.State == "empty" && p.TriedAt != nil:
		kept = "transactions that use the log, or what stands on its table, when last tried"
	case p.State == "in use":
		kept = ""
	}
	return []string{
		fmt.Sprint(p.N), fmt.Sprint(p.FromSeq), p.State, fmt.Sprintf("%.1f MB", float64(p.Bytes)/1e6), age, fmt.Sprint(p.Unfinished), kept,
	}
}

func newRetentionRun(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "run", Short: "Remove what is finished and old enough, now", Args: cobra.NoArgs,
		Annotations: map[string]string{takesLong: ""},
		Long: `Remove what is finished and old enough, in small steps, and print each. Messages that are not finished are moved out of
partitions that go. Beside relays and other runs it is safe. As the owner of the schema it can remove the table of a
partition while others use the log; other logins find a moment for it.`,
		Example: "  deed retention run\n  deed retention run --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				var printed error
				waits := false
				err := c.Retain(cmd.Context(), func(s admin.RetentionStep) {
					waits = waits || s.Did == "waits"
					if asJSON {
						printed = errors.Join(printed, printJSON(cmd.OutOrStdout(), s))
						return
					}
					_, err := fmt.Fprintln(cmd.OutOrStdout(), stepText(s))
					printed = errors.Join(printed, err)
				})
				if err == nil && waits && !asJSON {
					fmt.Fprintln(cmd.ErrOrStderr(), "transactions use a partition that is to go; it is tried again in a minute")
				}
				return errors.Join(err, printed)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, a line for each step")
	return cmd
}

func stepText(s admin.RetentionStep) string {
	if s.Partition == nil {
		return fmt.Sprintf("%s: %d", s.Did, s.Count)
	}
	switch s.Did {
	case "moved":
		return fmt.Sprintf("partition %d: moved out %d messages that are not finished", *s.Partition, s.Count)
	case "began":
		return fmt.Sprintf("partition %d: is old enough to go", *s.Partition)
	}
	return fmt.Sprintf("partition %d: %s", *s.Partition, s.Did)
}
