package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func demo(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "demo")
	if text, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	cmd := exec.Command(binary, append([]string{"--input", "../../examples/flights.ndjson"}, args...)...)
	text, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(text), exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return string(text), 0
}

func numbers(t *testing.T, out, row string) []string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\s*` + row + `\s+(\d+)\s+(\d+)$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("the table has no row %q:\n%s", row, out)
	}
	return m[1:]
}

func TestDemo_LosesNothing(t *testing.T) {
	t.Parallel()
	out, code := demo(t, "--flights", "800", "--pace", "6s")
	if code != 0 {
		t.Fatalf("exit status %d:\n%s", code, out)
	}
	for row, want := range map[string]string{
		`delivered`: "760", `rolled back on purpose`: "40", `lost`: "0", `never committed, yet delivered`: "0",
	} {
		if got := numbers(t, out, row); got[0] != want || got[1] != want {
			t.Errorf("%s: %v, want %s", row, got, want)
		}
	}
	if strings.Count(out, "SIGKILL") != 4 {
		t.Errorf("the demo did not kill what it says it kills:\n%s", out)
	}
}

// The demo can fail: with sinks that acknowledge before they deliver it finds
// what was lost and says so.
func TestDemo_SabotageIsFound(t *testing.T) {
	t.Parallel()
	out, code := demo(t, "--flights", "800", "--pace", "6s", "--sabotage")
	lost := numbers(t, out, `lost`)
	if code != 1 || lost[0] == "0" || lost[1] == "0" {
		t.Errorf("exit status %d, lost %v:\n%s", code, lost, out)
	}
}

func TestDemo_BadInput(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.ndjson")
	if err := os.WriteFile(bad, []byte("{\"id\": \"1\"}\nnot JSON\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, code := demo(t, "--input", bad); code != 1 || !strings.Contains(out, "bad.ndjson:2:") {
		t.Errorf("exit status %d: %s", code, out)
	}
}
