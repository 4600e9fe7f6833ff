package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestDetailed_FitsATerminal(t *testing.T) {
	t.Parallel()
	const hash = "sha256:3cb2bb7d9279eb5720cd224481318e39d5104236a5d6f549abb686b770b529da"
	for _, test := range []struct {
		width      int
		text, want string
	}{
		{40, "short", "request      short"},
		{0, strings.Repeat("long ", 20) + "end", "request      " + strings.Repeat("long ", 20) + "end"},
		{40, "between one and two, of email and phone", "request      between one and two, of\n             email and phone"},
		{40, "長い理由 長い理由 長い理由 長い理由", "request      長い理由 長い理由 長い理由\n             長い理由"},
		{80, "file " + hash, "request\n  file " + hash},
		{40, "file " + hash, "request\n  file\n  " + hash}, // the terminal breaks it, and it can be copied
	} {
		if got := detailed(test.width, "request      ", test.text); got != test.want {
			t.Errorf("%d: got\n%s\nwant\n%s", test.width, got, test.want)
		}
	}
}

// What help says is broken anew for a terminal of eighty columns; only what is to be typed is
// longer.
func TestHelp_FitsATerminal(t *testing.T) {
	t.Parallel()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		text := reflowed(80, cmd.Long) + "\n" + fitFlags(80, cmd.LocalFlags().FlagUsages()+cmd.InheritedFlags().FlagUsages())
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); cells(line) > 80 {
				t.Errorf("%s: %d places: %s", cmd.CommandPath(), cells(line), line)
			}
		}
		if flags := cmd.LocalFlags().FlagUsages(); len(strings.Fields(reflowed(80, cmd.Long))) != len(strings.Fields(cmd.Long)) || len(strings.Fields(fitFlags(80, flags))) != len(strings.Fields(flags)) {
			t.Errorf("%s: words are lost", cmd.CommandPath())
		}
	}
	visit(newRoot())
}
