package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// detail prints a line of what is known of one thing, its name before it; nothing where there
// is nothing to say. On a terminal what is too long for a line goes on below, between words.
// A word that is longer than a line stays whole, so that it can be copied.
func detail(w io.Writer, names int, name, value string) {
	if value == "" || value == "-" {
		return
	}
	fmt.Fprintln(w, detailed(terminalWidth(w), fmt.Sprintf("%-*s ", names, name), clip(value, 0)))
}

// below is how far what does not fit beside its name stands from the margin.
const below = "  "

// detailed is text after the name of what it is, in lines of at most width places; 0 is no limit.
func detailed(width int, name, text string) string {
	if width < 1 || cells(name)+cells(text) <= width {
		return name + text
	}
	words := strings.Split(text, " ") // several blanks stay
	line, indent := name, strings.Repeat(" ", len(name))
	var b strings.Builder
	for _, word := range words {
		if cells(indent)+cells(word) > width { // it has a line of its own
			b.WriteString(strings.TrimRight(name, " ") + "\n")
			line, indent = below, below
			break
		}
	}
	for i, word := range words {
		switch {
		case i > 0 && cells(line)+1+cells(word) > width:
			b.WriteString(line + "\n")
			line = indent
		case i > 0:
			line += " "
		}
		line += word
	}
	return b.String() + line
}

// fitHelp has help fit a terminal that is narrower than the text was written for: paragraphs are
// broken anew, and what flags mean; commands that are shown as they are typed are not.
func fitHelp(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		width := terminalWidth(cmd.OutOrStdout())
		text := strings.TrimRight(cmd.Long, " \n")
		if text == "" {
			text = cmd.Short
		}
		usage := cmd.UsageString()
		if width > 0 {
			text = reflowed(width, text)
			for _, flags := range []string{cmd.LocalFlags().FlagUsages(), cmd.InheritedFlags().FlagUsages()} {
				if flags = strings.TrimRight(flags, " \n"); flags != "" {
					usage = strings.Replace(usage, flags, fitFlags(width, flags), 1)
				}
			}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", text, usage)
	})
}

// aFlag is a line of what help says of flags: a flag, blanks, and what it means.
var aFlag = regexp.MustCompile(`^( +(?:-\w, )?--\S+(?: \S+)? {2,})(.*)$`)

// fitFlags breaks what flags mean; below the flags, where their names leave little place beside them.
func fitFlags(width int, flags string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(flags, "\n") {
		m := aFlag.FindStringSubmatch(line)
		switch {
		case m == nil || cells(line) <= width:
			b.WriteString(line + "\n")
		case len(m[1]) <= width/2:
			b.WriteString(indented(width, m[1], m[2]))
		default:
			b.WriteString(strings.TrimRight(m[1], " ") + "\n" + indented(width, "          ", m[2]))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// aRow is a line of a table in a text: what it is of, if that stands there, and what it says.
var aRow = regexp.MustCompile(`^( +(?:\S+(?: \S+)* {2,})?)(\S.*)$`)

// reflowed breaks the paragraphs of text anew, and the lines of tables, which begin with a blank.
func reflowed(width int, text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") && !strings.Contains(p, "\n ") {
			paragraphs[i] = strings.TrimSuffix(indented(width, "", p), "\n")
			continue
		}
		var b strings.Builder
		for line := range strings.SplitSeq(p, "\n") {
			if m := aRow.FindStringSubmatch(line); m != nil && cells(line) > width {
				line = strings.TrimSuffix(indented(width, m[1], m[2]), "\n")
			} else if cells(line) > width {
				line = strings.TrimSuffix(indented(width, "", line), "\n")
			}
			b.WriteString(line + "\n")
		}
		paragraphs[i] = strings.TrimSuffix(b.String(), "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}
