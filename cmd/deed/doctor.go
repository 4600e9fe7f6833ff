package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/doctor"
)

func newDoctor(a *app) *cobra.Command {
	var asJSON, verbose bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong, or will be, and say what to do",
		Long: `Examine the installation and the PostgreSQL under it: the schema, roles and logins, clocks, connections, autovacuum,
partitions ahead, and which session, prepared transaction, slot or standby holds back vacuum's horizon, and for how
long. Every finding comes with what to do; docs/operations.md explains each by its name.

It only reads, is cheap enough to run every minute, and shows no payload and no query. Run it with the relay's own
login, to see what that login may do, or with an operator's; with pg_monitor it sees most. Exit status 1 if something
fails; a warning is no failure.`,
		Example: "  deed doctor\n  deed doctor --verbose\n  deed doctor --json | jq '.findings[] | select(.level != \"ok\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := a.pool(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			on, environment, err := a.newCluster()
			if err != nil {
				return err
			}
			var opts doctor.Options
			if on != deed.Continue && environment != "" || on == deed.Hold {
				opts.Environment = &environment
			}
			findings, err := doctor.Examine(cmd.Context(), pool, opts)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), map[string]any{"findings": findings})
			} else {
				err = printFindings(cmd.OutOrStdout(), terminalWidth(cmd.OutOrStdout()), findings, verbose)
			}
			if err == nil && findings.Worst() == doctor.Fail {
				err = &exitError{exitFailed, nil} // what fails has been printed
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: every check's findings, those that are well too")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "print what is well, too")
	return cmd
}

// printFindings prints a line a finding, and under it, indented and wrapped to
// the width of a terminal, what is so and what to do.
func printFindings(w io.Writer, width int, findings doctor.Findings, verbose bool) error {
	shown := findings.Trouble()
	if verbose {
		shown = findings
	}
	names := 0
	for _, f := range shown {
		names = max(names, len(f.Name))
	}
	var b strings.Builder
	for _, f := range shown {
		line := fmt.Sprintf("%-4s  %-*s  %s", f.Level, names, f.Name, clip(f.Subject, 0))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		b.WriteString(indented(width, "      ", clip(f.Detail, 0)))
		if f.Remedy != "" {
			b.WriteString(indented(width, "      to do: ", clip(f.Remedy, 0)))
		}
	}
	b.WriteString(summary(findings) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// indented breaks text between words into lines of at most width places; 0
// is no limit.
func indented(width int, first, text string) string {
	var b strings.Builder
	line := first
	room := false // line has a word
	for word := range strings.FieldsSeq(text) {
		if room && width > 0 && cells(line)+1+cells(word) > width {
			b.WriteString(line + "\n")
			line, room = strings.Repeat(" ", len(first)), false
		}
		if room {
			line += " "
		}
		line, room = line+word, true
	}
	return b.String() + line + "\n"
}

func summary(findings doctor.Findings) string {
	checks := map[string]bool{}
	levels := map[doctor.Level]int{}
	for _, f := range findings {
		checks[f.Name] = true
		levels[f.Level]++
	}
	if findings.Worst() == doctor.OK {
		return fmt.Sprintf("%d checks, all well", len(checks))
	}
	return fmt.Sprintf("%d checks: %d findings fail, %d warn", len(checks), levels[doctor.Fail], levels[doctor.Warn])
}
