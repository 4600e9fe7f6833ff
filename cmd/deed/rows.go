package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
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

// kindOf is the kind of rows that a text begins with, where each is an object: lines of JSON
// begin with a bracket, and names of columns do not.
func kindOf(text *bufio.Reader) string {
	for n := 1; ; n++ {
		begins, err := text.Peek(n)
		if err != nil {
			return "ndjson"
		}
		switch begins[n-1] {
		case ' ', '\t', '\r', '\n', 0xef, 0xbb, 0xbf: // a byte order mark, too
		case '{', '[':
			return "ndjson"
		default:
			return "csv"
		}
	}
}

// mostPayload bounds a payload that is read from a file: no installation takes more.
const mostPayload = 256 << 20

// textOf is what a flag such as --payload names: @FILE is that file's content, - standard input's;
// else it is the text itself, which as JSON begins with neither.
func textOf(cmd *cobra.Command, flag, text string) (string, error) {
	in := cmd.InOrStdin()
	if path, is := strings.CutPrefix(text, "@"); is {
		file, err := os.Open(path)
		if err != nil {
			return "", usagef("--%s: %w", flag, err)
		}
		defer func() { _ = file.Close() }() // it was only read
		in = file
	} else if text != "-" {
		return text, nil
	}
	content, err := io.ReadAll(io.LimitReader(in, mostPayload+1))
	if err != nil {
		return "", usagef("--%s %s: %w", flag, text, err)
	}
	if len(content) > mostPayload {
		return "", usagef("--%s %s: it is over %d MiB", flag, text, mostPayload>>20)
	}
	if len(bytes.TrimSpace(content)) == 0 {
		return "", usagef("--%s %s: it is empty", flag, text)
	}
	return string(content), nil
}

// progress tells how a file's rows fare: a terminal all the time, others now and then.
type progress struct {
	cmd   *cobra.Command
	on    bool
	file  string
	again string // what a second run does, for who has seen too many named
	shown time.Time
	named int
}

func newProgress(cmd *cobra.Command, file, again string) *progress {
	return &progress{cmd: cmd, on: terminalWidth(cmd.ErrOrStderr()) > 0, file: file, again: again, shown: time.Now()}
}

// quietProgress is how often a log is told.
const quietProgress = 10 * time.Second

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
	if !p.on {
		if !last && time.Since(p.shown) >= quietProgress {
			p.shown = time.Now()
			fmt.Fprintln(p.cmd.ErrOrStderr(), p.file, fmt.Sprintf(format, args...))
		}
		return
	}
	if !last && time.Since(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(unescaped(p.cmd.ErrOrStderr()), "\r\x1b[K"+format, args...)
	switch {
	case last && terminalWidth(p.cmd.OutOrStdout()) > 0: // which is told the end of it
		fmt.Fprint(unescaped(p.cmd.ErrOrStderr()), "\r\x1b[K")
	case last:
		fmt.Fprintln(p.cmd.ErrOrStderr())
	}
}
