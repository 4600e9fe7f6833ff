package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// openRows opens a file of rows; - is standard input, which is NDJSON unless format
// says what it is. hint is what somebody may have meant who types rows.
func openRows(cmd *cobra.Command, name, format, hint string) (in io.Reader, kind string, stop func(), err error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, "", nil, &exitError{exitUsage, err}
		}
		return f, format, func() { _ = f.Close() }, nil
	}
	in = cmd.InOrStdin()
	if in == os.Stdin && terminalWidth(os.Stdin) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "reading rows from the terminal until Ctrl-D; "+hint)
	}
	return in, cmp.Or(format, "ndjson"), func() {}, nil
}

// progress tells a terminal how a file's rows fare.
type progress struct {
	cmd   *cobra.Command
	on    bool
	file  string
	again string // what a second run does, for who has seen too many named
	shown time.Time
	named int
}

func newProgress(cmd *cobra.Command, file, again string) *progress {
	return &progress{cmd: cmd, on: terminalWidth(cmd.ErrOrStderr()) > 0, file: file, again: again}
}

// mostNamed is how many lines that are left out a terminal is told of.
const mostNamed = 100

// reject names a line that is left out.
func (p *progress) reject(line int, why string) {
	p.named++
	if p.on && p.named > mostNamed {
		if p.named == mostNamed+1 {
			fmt.Fprintf(p.cmd.ErrOrStderr(), "%s: more than %d lines are rejected; from here on they are only counted. %s\n", p.file, mostNamed, p.again)
		}
		return
	}
	if p.on {
		fmt.Fprint(unescaped(p.cmd.ErrOrStderr()), "\r\x1b[K")
	}
	fmt.Fprintf(p.cmd.ErrOrStderr(), "%s:%d: %s\n", p.file, line, why)
}

// report shows the figures, a few times a second.
func (p *progress) report(last bool, format string, args ...any) {
	if !p.on || (!last && time.Since(p.shown) < 200*time.Millisecond) {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(unescaped(p.cmd.ErrOrStderr()), "\r"+format, args...)
	if last {
		fmt.Fprintln(p.cmd.ErrOrStderr())
	}
}
