package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// The processes that drain are this program once more.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// All measures, small: the figures mean nothing, the counts have to be right.
func TestRun_CountsAddUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	if dir := pgtest.Options().TempDir; dir != "" {
		t.Setenv("TMPDIR", dir) // counts need no disk, on which each run's database takes seconds to make
	}
	err := run(t.Context(), []string{
		"--runs", "1", "--messages", "250", "--batch", "100", "--clients", "2",
		"--business", "100ms", "--steady", "200ms", "--rate", "100", "--json", file,
		"--crowd", "500", "--burst", "3000", "--later", "3000", "--idle", "500ms", "--pages", "400",
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var f facts
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	judged := len(goals)
	if runtime.GOOS != "linux" {
		judged-- // the processor's time is known there only
	}
	if len(f.Goals) != judged {
		t.Errorf("judged %d goals of %d", len(f.Goals), judged)
	}
	seen := map[string]bool{}
	for _, s := range f.Figures {
		seen[s.Measure+" "+s.Peer] = true
		if len(s.Values) != 1 {
			t.Errorf("%+v: want one value", s)
		}
	}
	for _, m := range measures {
		for _, p := range m.contestants() {
			if !seen[m.name+" "+p.name()] {
				t.Errorf("measure %s has no figure of %s", m.name, p.name())
			}
		}
	}
}

func TestExpect_AWrongCountFailsTheReport(t *testing.T) {
	t.Parallel()
	e := &env{bench: &bench{}, peer: deedPeer{}, measure: "drain"}
	e.expect("calls of the handler", 3, 3)
	e.expect("calls of the handler", 2, 3)
	if len(e.wrong) != 1 || e.wrong[0] != "drain: deed: calls of the handler: 2, want 3" {
		t.Errorf("got %q", e.wrong)
	}
	if err := e.report(); err != errCounts {
		t.Errorf("report returned %v, want %v", err, errCounts)
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	var f figures
	for i, deed := range []float64{40, 60, 50} {
		f.add("drain", "drained", "messages/s", "deed", deed)
		f.add("drain", "drained", "messages/s", "river", []float64{10, 30, 10}[i])
	}
	s := f.get("drain", "drained", "deed")
	if s.Median != 50 || s.Min != 40 || s.Max != 60 {
		t.Errorf("got %+v", s)
	}
	// Run by run: 4, 2 and 5.
	r := f.ratio("drain", "drained", "deed", "river")
	if r.Median != 4 || r.Min != 2 || r.Max != 5 {
		t.Errorf("got %+v", r)
	}
	judged := f.judged()
	if len(judged) != 1 || !judged[0].Reached || judged[0].Figure != 4 {
		t.Errorf("got %+v", judged)
	}
	if median, _, _ := spread([]float64{4, 1, 3, 2}); median != 2.5 {
		t.Errorf("the median of an even number is %v", median)
	}
}

func TestParse_ErrNamesAllProblems(t *testing.T) {
	t.Parallel()
	_, err := parse([]string{"--runs", "0", "--only", "drain,dran", "--backlog", "10000,1", "extra"})
	for _, want := range []string{"--runs 0", `"dran"`, `"extra"`, `--backlog "1"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
}
