package main

import (
	"regexp"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// Every flag that takes a duration takes it as deed.yaml does, and none a
// negative one.
func TestDuration_OneParserForAllFlags(t *testing.T) {
	t.Parallel()
	flags := 0
	check := func(cmd *cobra.Command, name string) {
		flags++
		f := cmd.LocalFlags().Lookup(name)
		for text, want := range map[string]time.Duration{"7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "90s": 90 * time.Second, "0": 0} {
			if err := f.Value.Set(text); err != nil {
				t.Errorf("%s --%s %s: %v", cmd.CommandPath(), name, text, err)
			} else if d, ok := f.Value.(*durationFlag); !ok || time.Duration(*d) != want {
				t.Errorf("%s --%s %s: %v", cmd.CommandPath(), name, text, f.Value)
			}
		}
		for _, text := range []string{"-1s", "-7d", "7", "1w", "12h1d", ""} {
			if f.Value.Set(text) == nil {
				t.Errorf("%s --%s takes %q", cmd.CommandPath(), name, text)
			}
		}
	}
	ofDurations := regexp.MustCompile(`--([a-z-]+) duration `)
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, m := range ofDurations.FindAllStringSubmatch(cmd.LocalFlags().FlagUsages(), -1) {
			check(cmd, m[1])
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
	if flags < 15 {
		t.Errorf("%d flags take a duration; there are more", flags)
	}
}
