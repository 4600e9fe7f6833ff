// Command conformance runs the tests that show deed's contracts, those whose
// names begin with TestContract_, and prints the register (docs/contracts.md) as
// a table: what passed, what failed, what is still to come. It is started in the
// repository's root; its arguments go to "go test".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// clause is a row of the register.
type clause struct {
	name, promise, status, seed string
	tests                       []string
}

// results are how tests ended: pass, fail or skip.
type results map[string]string

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	text, err := os.ReadFile("docs/contracts.md")
	if err != nil {
		return err
	}
	clauses := parse(string(text))
	if len(clauses) == 0 {
		return fmt.Errorf("docs/contracts.md has no clauses")
	}
	cmd := exec.Command("go", append([]string{"test", "-json", "-count=1", "-timeout=20m", "-run=^TestContract_"}, append(args, "./...")...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	got, err := read(out, os.Stderr)
	if ending := cmd.Wait(); err == nil {
		err = ending
	}
	wrong := report(os.Stdout, clauses, got)
	switch {
	case wrong > 0:
		return fmt.Errorf("%d clauses are not kept", wrong)
	case err != nil:
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

var (
	rowPattern  = regexp.MustCompile(`(?m)^\| ([ODCR]\d+) \| (.*?) \| (.*?) \| (.*?) ?\| ([^|]*) \|$`)
	testPattern = regexp.MustCompile("`(TestContract_\\w+)`")
)

// parse reads the register's rows.
func parse(text string) []clause {
	var list []clause
	for _, m := range rowPattern.FindAllStringSubmatch(text, -1) {
		c := clause{name: m[1], promise: m[2], status: m[3], seed: m[5]}
		for _, t := range testPattern.FindAllStringSubmatch(m[4], -1) {
			c.tests = append(c.tests, t[1])
		}
		list = append(list, c)
	}
	return list
}

// read collects how each test ended, and copies what failed tests said.
func read(in io.Reader, failures io.Writer) (results, error) {
	got := results{}
	said := map[string]*strings.Builder{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct{ Action, Package, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("go test said %q: %w", lines.Text(), err)
		}
		id := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			if said[id] == nil {
				said[id] = &strings.Builder{}
			}
			said[id].WriteString(e.Output)
		case "pass", "fail", "skip":
			// A test of the same name in another package must hold as well.
			if e.Test != "" && got[e.Test] != "fail" {
				got[e.Test] = e.Action
			}
			if e.Action == "fail" && said[id] != nil {
				fmt.Fprint(failures, said[id].String())
			}
			delete(said, id)
		}
	}
	return got, lines.Err()
}

// verdict is how a clause stands, and which of its tests say otherwise.
func (c clause) verdict(got results) (word string, bad []string) {
	for _, t := range c.tests {
		switch got[t] {
		case "pass":
		case "":
			bad = append(bad, t+" (did not run)")
		default:
			bad = append(bad, t)
		}
	}
	switch {
	case len(bad) > 0:
		return "FAIL", bad
	case strings.HasPrefix(c.status, "kept"):
		return "pass", nil
	case strings.HasPrefix(c.status, "partly"):
		return "partly", nil
	default:
		return "to come", nil
	}
}

// report prints the table and returns how many clauses failed.
func report(out io.Writer, clauses []clause, got results) (wrong int) {
	count := map[string]int{}
	fmt.Fprintf(out, "%-7s%-9s%-7s%-34.34s%s\n", "CLAUSE", "VERDICT", "TESTS", "SEED", "PROMISE")
	for _, c := range clauses {
		word, bad := c.verdict(got)
		count[word]++
		fmt.Fprintf(out, "%-7s%-9s%-7d%-34s%s\n", c.name, word, len(c.tests), clip(c.seed, 32), clip(c.promise, 90))
		for _, t := range bad {
			fmt.Fprintf(out, "%-16s%s\n", "", t)
		}
	}
	fmt.Fprintf(out, "\n%d clauses pass, %d partly, %d to come, %d fail\n", count["pass"], count["partly"], count["to come"], count["FAIL"])
	return count["FAIL"]
}

func clip(s string, n int) string {
	s = strings.ReplaceAll(s, "`", "")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
