package main

import (
	"cmp"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed/audit"
)

// operator is who acts and why, for the audit log: the same flags for every
// command that records it.
type operator struct{ by, reason string }

func (o *operator) add(cmd *cobra.Command, reason string) {
	o.addBy(cmd)
	cmd.Flags().StringVar(&o.reason, "reason", "", reason)
}

// addBy is add for a command that asks for something new, of which nobody asks why.
func (o *operator) addBy(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.by, "by", "", "who does it, for the audit log; also DEED_ACTOR (default: the user of this machine)")
}

// act is what is recorded.
func (o *operator) act(a *app) audit.Act { return audit.Act{By: o.actor(a), Reason: o.reason} }

// actor is who acts: who is named, else who became root, else the user of this
// machine, else the database's login.
func (o *operator) actor(a *app) string {
	who := cmp.Or(o.by, os.Getenv("DEED_ACTOR"), os.Getenv("SUDO_USER"), os.Getenv("USER"))
	if who != "" {
		return who
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	url, err := a.database()
	if err != nil {
		return ""
	}
	cfg, err := parseDatabase(url, "")
	if err != nil {
		return ""
	}
	return cfg.ConnConfig.User
}
