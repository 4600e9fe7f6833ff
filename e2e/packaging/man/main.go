// Command man writes a manual page for a program and each of its commands from
// what they print for --help: man PROGRAM DIRECTORY.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: man PROGRAM DIRECTORY")
		os.Exit(2)
	}
	if err := page(os.Args[1], os.Args[2], nil, "reliable side effects on PostgreSQL"); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// A command in the list of --help.
var command = regexp.MustCompile(`^  ([a-z-]+) {2,}(.*)$`)

// page writes the page of program's command args, and those of its own
// commands.
func page(program, dir string, args []string, short string) error {
	help, err := exec.Command(program, append(args[:len(args):len(args)], "--help")...).Output()
	if err != nil {
		return fmt.Errorf("%s --help: %w", strings.Join(args, " "), err)
	}
	name := strings.Join(append([]string{filepath.Base(program)}, args...), "-")
	var body strings.Builder
	fmt.Fprintf(&body, ".TH %s 1\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n", strings.ToUpper(name), escape(name), escape(short))
	section := ""
	for line := range strings.Lines(string(help)) {
		line = strings.TrimRight(line, "\n")
		if title, ok := strings.CutSuffix(line, ":"); ok && title != "" && !strings.HasPrefix(title, " ") {
			section = title
			fmt.Fprintf(&body, ".fi\n.SH %s\n.nf\n", strings.ToUpper(escape(title)))
			continue
		}
		fmt.Fprintln(&body, escape(line))
		if m := command.FindStringSubmatch(line); m != nil && section == "Available Commands" && m[1] != "help" && m[1] != "completion" {
			if err := page(program, dir, append(args[:len(args):len(args)], m[1]), m[2]); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(&body, ".fi")
	return os.WriteFile(filepath.Join(dir, name+".1"), []byte(body.String()), 0o644)
}

// escape keeps roff from reading text as its own.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
