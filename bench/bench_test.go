package main

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgembed"
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
		"--crowd", "500", "--burst", "3000", "--later", "3000", "--idle", "500ms", "--pages", "400", "--members", "1200",
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

// What goes through the network takes a round trip, however much it is, and ends with
// it.
func TestNetwork(t *testing.T) {
	t.Parallel()
	cluster, err := pgembed.Start(t.Context(), pgtest.Options())
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Stop(context.Background())
	const roundTrip = 20 * time.Millisecond
	n, err := newNetwork(t.Context(), cluster.URL("postgres"), roundTrip)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(cluster.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = n.address(), "sslmode=disable"
	conn, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	long := strings.Repeat("0123456789", 100_000)
	for _, text := range []string{"a", long} {
		began, got := time.Now(), ""
		if err := conn.QueryRow(t.Context(), `select $1::text`, pgx.QueryExecModeExec, text).Scan(&got); err != nil || got != text {
			t.Fatalf("%d bytes came as %d: %v", len(text), len(got), err)
		}
		if took := time.Since(began); took < roundTrip {
			t.Errorf("%d bytes took %s", len(text), took)
		}
	}
	n.close()
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a closed network carries")
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
