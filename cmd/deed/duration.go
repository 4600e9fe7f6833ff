package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed/internal/duration"
)

// durationFlag is a duration as deed.yaml has it, with days: 7d, 1d12h. No flag
// takes a negative one.
type durationFlag time.Duration

// durationVar gives a command a flag for a duration.
func durationVar(cmd *cobra.Command, d *time.Duration, name string, otherwise time.Duration, usage string) {
	*d = otherwise
	cmd.Flags().Var((*durationFlag)(d), name, usage)
}

// String is empty for 0, which help leaves out.
func (d *durationFlag) String() string {
	if *d == 0 {
		return ""
	}
	return duration.Format(time.Duration(*d))
}

func (d *durationFlag) Type() string { return "duration" }

func (d *durationFlag) Set(text string) error {
	v, err := duration.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a duration such as 30s, 1h30m or 7d", text)
	case v < 0:
		return errors.New("it is negative")
	}
	*d = durationFlag(v)
	return nil
}
