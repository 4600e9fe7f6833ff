package main

import (
	"testing"

	"github.com/spf13/cobra"
)

// What takes as long as what it is given is not cut off after ten minutes: a redrive at a rate, a verification at night
// (whose status 1 is a violation), what cron starts, what is removed in steps.
func TestTimeout_NotOfWhatTakesLong(t *testing.T) {
	t.Parallel()
	long := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		_, long[cmd.CommandPath()] = cmd.Annotations[takesLong]
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
	for _, name := range []string{
		"dead redrive", "deliveries retry", "verify", "retention run", "topic remove", "subscription remove", "tenant remove",
		"contacts import", "contacts export", "suppressions import", "inbox purge", "audit export", "campaign deploy", "campaign watch", "run watch",
	} {
		if !long["deed "+name] {
			t.Errorf("deed %s gives up after ten minutes, whatever it is given", name)
		}
	}
	for _, name := range []string{"status", "messages", "dead list", "deliveries list", "campaign list"} {
		if long["deed "+name] {
			t.Errorf("deed %s, which only looks, never gives up", name)
		}
	}
}
