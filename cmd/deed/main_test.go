package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed/internal/pgtest"
)

// The test binary is the command too, under the command's name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "deed" {
		os.Exit(run())
	}
	pgtest.Main(m)
}

// command returns a folder that holds the command, for a PATH.
func command(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "deed")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// eventually polls cond, for things that happen in another process.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if err := await(what, cond); err != nil {
		t.Fatal(err)
	}
}

func await(what string, cond func() bool) error {
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			return &timeoutError{what}
		case <-tick.C:
		}
	}
	return nil
}

type timeoutError struct{ what string }

func (e *timeoutError) Error() string { return "waited 30s for " + e.what }

// get returns the status of a GET, 0 if there is none.
func get(url string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// Every command teaches: what it does, and an example.
func TestHelp_EveryCommandTeaches(t *testing.T) {
	t.Parallel()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			return // cobra's own
		}
		if cmd.Short == "" || cmd.Long == "" || !strings.Contains(cmd.Example, "  deed") {
			t.Errorf("%s: want a line, a paragraph and an example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if len([]rune(line)) > 125 {
				t.Errorf("%s: a line of help has %d characters: %s", cmd.CommandPath(), len([]rune(line)), line)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
}
