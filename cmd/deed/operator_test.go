package main

import (
	"os/user"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Who acts is recorded in one way, whatever the command. (No t.Parallel: it
// sets the environment.)
func TestOperator_OneDefaultForAll(t *testing.T) {
	a := &app{databaseURL: "postgres://login@h/d"}
	machine := "login" // where the machine has no name for its user
	if u, err := user.Current(); err == nil {
		machine = u.Username
	}
	for _, test := range []struct{ by, deedActor, sudo, user, want string }{
		{"ann", "bot", "root's", "u", "ann"},
		{"", "bot", "sue", "root", "bot"},
		{"", "", "sue", "root", "sue"},
		{"", "", "", "u", "u"},
		{"", "", "", "", machine},
	} {
		t.Setenv("DEED_ACTOR", test.deedActor)
		t.Setenv("SUDO_USER", test.sudo)
		t.Setenv("USER", test.user)
		if got := (&operator{by: test.by}).actor(a); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

// Every command that asks why asks who by the same flag; those alone that ask for something new do not ask why.
func TestOperator_OneFlagForAll(t *testing.T) {
	t.Parallel()
	said := ""
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("actor") != nil {
			t.Errorf("%s has --actor; it is --by", cmd.CommandPath())
		}
		by := cmd.Flags().Lookup("by")
		asks := cmd.CommandPath() == "deed campaign deploy" || cmd.CommandPath() == "deed deliver"
		if asks && by == nil {
			t.Errorf("%s has no --by", cmd.CommandPath())
		}
		if !asks && (by == nil) != (cmd.Flags().Lookup("reason") == nil) {
			t.Errorf("%s has one of --by and --reason alone", cmd.CommandPath())
		}
		if by != nil && said == "" {
			said = by.Usage
		}
		if by != nil && (by.Usage != said || !strings.Contains(by.Usage, "DEED_ACTOR")) {
			t.Errorf("%s: --by: %s", cmd.CommandPath(), by.Usage)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
}
