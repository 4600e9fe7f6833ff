package main

import (
	"errors"
	"testing"

	"github.com/spf13/cobra"
)

// What cobra says of flags, in the words of this program; a new version of it that says
// otherwise is seen here.
func TestOfFlags_SaysWhichFlags(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"give --to": {"--a", "x"},
		"give one of --a, --b and --c, and not --a and --b at once": {"--to", "x", "--a", "x", "--b", "x"},
		"give --a, --b or --c": {"--to", "x"},
		"":                     {"--to", "x", "--c", "x"},
	} {
		cmd := &cobra.Command{RunE: func(*cobra.Command, []string) error { return errors.New("ran") }, SilenceErrors: true, SilenceUsage: true}
		for _, name := range []string{"to", "a", "b", "c"} {
			cmd.Flags().String(name, "", "")
		}
		if err := cmd.MarkFlagRequired("to"); err != nil {
			t.Fatal(err)
		}
		cmd.MarkFlagsOneRequired("a", "b", "c")
		cmd.MarkFlagsMutuallyExclusive("a", "b", "c")
		cmd.SetArgs(args)
		if got := ofFlags(cmd.Execute()); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}
