package main

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// completions are the statements that know what a flag or an argument of that
// name may be, for the shell: names that were registered, at most a thousand.
var completions = map[string]string{
	"topic":    `select topic from deed.topics order by 1 limit 1000`,
	"provider": `select name from deed.providers order by 1 limit 1000`,
}

// complete has the shell complete flags and arguments of those names from the
// database. A database that does not answer in time, or that nobody named,
// completes nothing.
func complete(a *app, cmd *cobra.Command) {
	for name, statement := range completions {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, a.completer(statement)) // fails for a flag that has one
		}
	}
	_, first, _ := strings.Cut(cmd.Use, " ")
	switch {
	case strings.HasPrefix(first, "TOPIC"):
		cmd.ValidArgsFunction = a.completer(completions["topic"])
	case strings.HasPrefix(first, "NAME") && cmd.Parent().Name() == "providers":
		cmd.ValidArgsFunction = a.completer(completions["provider"])
	}
	for _, sub := range cmd.Commands() {
		complete(a, sub)
	}
}

func (a *app) completer(statement string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		var names []string
		err := a.withConn(ctx, func(conn *pgx.Conn) error {
			rows, err := conn.Query(ctx, statement)
			if err != nil {
				return err
			}
			names, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
