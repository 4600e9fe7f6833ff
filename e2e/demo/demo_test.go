package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "demo-test-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "demo")
	out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
	if err != nil {
		return dir, errors.New(string(out))
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := program(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func demo(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	dir, err := program()
	if err != nil {
		t.Fatalf("go build: %v", err)
	}
	cmd := exec.Command(filepath.Join(dir, "demo"), append([]string{"--input", "../../examples/flights.ndjson", "--airports", "../../examples/airports.csv"}, args...)...)
	text, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(text), exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return string(text), 0
}

// numbers returns the two numbers of a row of the report.
func numbers(t *testing.T, out, row string) []string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(row) + `\s+(\d+)\s+(\d+)$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("the table has no row %q:\n%s", row, out)
	}
	return m[1:]
}

func TestDemo_LosesNothing(t *testing.T) {
	t.Parallel()
	out, code := demo(t, "--flights", "400", "--pace", "6s", "--members", "600")
	if code != 0 {
		t.Fatalf("exit status %d:\n%s", code, out)
	}
	for row, want := range map[string]string{
		"committed (rows of the flights table)": "380", "rolled back on purpose": "20",
		"delivered (flights in the far end's own record)": "380",
		"airports on the list":                            "600", "reached, by the far end's own file": "600", "reached by nothing": "0", "reached twice": "0", "deed campaign verify: findings": "0",
		"lost": "0", "never committed, yet delivered": "0", "explained by neither": "0",
	} {
		if got := numbers(t, out, row); got[0] != want || got[1] != want {
			t.Errorf("%s: %v, want %s", row, got, want)
		}
	}
	if n := strings.Count(out, ", back in "); n != 4 {
		t.Errorf("%d kills, want 4:\n%s", n, out)
	}
	// A kill shows something where there is work left: in the first act the first kill, for which no other one is waited,
	// and the one in the campaigns.
	for kill, all := range map[string]int{
		`SIGKILL to relay 1 .* after (\d+) of 400 flights`:          400,
		`SIGKILL to relay 1 .* after (\d+) e-mails and (\d+) posts`: 2 * 600,
	} {
		m := regexp.MustCompile(kill).FindStringSubmatch(out)
		if m == nil {
			t.Errorf("nothing is said of a kill as in %s:\n%s", kill, out)
			continue
		}
		done := 0
		for _, text := range m[1:] {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Error(err)
			}
			done += n
		}
		if done >= all {
			t.Errorf("%q came when all %d were done:\n%s", m[0], all, out)
		}
	}
}

// The demo can fail: with sinks that acknowledge before they deliver it finds
// what was lost and says so.
func TestDemo_SabotageIsFound(t *testing.T) {
	t.Parallel()
	out, code := demo(t, "--flights", "400", "--pace", "6s", "--members", "300", "--sabotage")
	if missed := numbers(t, out, "reached by nothing"); missed[0] == "0" || missed[1] == "0" {
		t.Errorf("the campaigns missed %v:\n%s", missed, out)
	}
	lost := numbers(t, out, "lost")
	if code != 1 || lost[0] == "0" || lost[1] == "0" {
		t.Errorf("exit status %d, lost %v:\n%s", code, lost, out)
	}
}

func TestDemo_BadInput(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"{\"id\": \"1\"}\nnot JSON\n":      "flights:2: not a JSON object",
		"{\"id\": \"1\"}\n{\"id\": \"1\"}": "flights:2: the id \"1\" is on line 1 too",
		"":                                 "no flights in it",
	} {
		bad := filepath.Join(t.TempDir(), "flights")
		if err := os.WriteFile(bad, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, code := demo(t, "--input", bad); code != 2 || !strings.Contains(out, want) {
			t.Errorf("exit status %d: %s, want %s", code, out, want)
		}
	}
}
