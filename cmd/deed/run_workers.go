package main

import (
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/run"
)

func newRunWorkers(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "workers", Short: "List the workers that do steps of runs, and what each serves", Args: cobra.NoArgs,
		Long: `List the workers that do steps of runs, as they say themselves every few seconds, and the queues that each claims from:
go:NAME@VERSION is a version of a Go function, go:HANDLER a handler, external:NAME a queue of workers in other languages,
deed all else. What no worker serves waits: deed run list --unserved.`,
		Example: "  deed run workers --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				list, err := run.Workers(cmd.Context(), pool)
				if err != nil {
					return err
				}
				return printList(cmd, asJSON, "workers", list, []string{"WORKER", "STARTED", "SEEN UNTIL", "QUEUES"}, func(w run.Worker) []string {
					return []string{w.Name, when(w.StartedAt), when(w.SeenUntil), strings.Join(w.Queues, " ")}
				})
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
