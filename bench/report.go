package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// facts say what was measured with what.
type facts struct {
	Deed       string            `json:"deed"`
	River      string            `json:"river"`
	PostgreSQL string            `json:"postgresql"`
	Go         string            `json:"go"`
	CPUs       int               `json:"cpus"`
	System     string            `json:"system"`
	Settings   map[string]string `json:"settings"`
	Workers    map[string]string `json:"workers"`
	Runs       int               `json:"runs"`
	Began      time.Time         `json:"began"`
	Took       float64           `json:"took_seconds"`
	Figures    []*series         `json:"figures"`
	Goals      []goal            `json:"goals"`
	Wrong      []string          `json:"wrong"`
}

func (b *bench) facts() facts {
	f := facts{
		Deed: version, River: riverVersion(), PostgreSQL: b.postgres, Go: runtime.Version(),
		CPUs: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Settings: serverSettings, Workers: map[string]string{}, Runs: b.opts.runs,
		Began: b.began, Took: time.Since(b.began).Seconds(),
		Figures: b.figures.list, Goals: b.figures.judged(), Wrong: b.wrong,
	}
	for _, p := range allPeers() {
		if p.tuning() != "" { // the faces' workers are the measure itself
			f.Workers[p.name()] = p.tuning()
		}
	}
	return f
}

func riverVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "github.com/riverqueue/river" {
				return dep.Version
			}
		}
	}
	return "unknown"
}

// report prints everything, and fails if a count was wrong.
func (b *bench) report() error {
	f := b.facts()
	if b.opts.json != "" {
		text, err := json.MarshalIndent(f, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(b.opts.json, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("deed %s, River %s, PostgreSQL %s, %s, %s, %d CPUs\n", f.Deed, f.River, f.PostgreSQL, f.Go, f.System, f.CPUs)
	settings := []string{"fsync on", "full_page_writes on", "synchronous_commit on"}
	for _, name := range slices.Sorted(maps.Keys(serverSettings)) {
		settings = append(settings, name+" "+serverSettings[name])
	}
	fmt.Printf("%s\n", strings.Join(settings, ", "))
	for _, name := range slices.Sorted(maps.Keys(f.Workers)) {
		fmt.Printf("%s's worker: %s, at most %d connections\n", name, f.Workers[name], workerConns)
	}
	fmt.Printf("%d runs each, taken in turns; ratios are of the same run; %.0f s in all\n", f.Runs, f.Took)
	for _, m := range measures {
		b.printMeasure(m)
	}
	printGoals(f.Goals)
	fmt.Println()
	if len(b.wrong) > 0 {
		fmt.Println("WRONG COUNTS")
		for _, w := range b.wrong {
			fmt.Println("  " + w)
		}
		return errCounts
	}
	fmt.Println("Every message that was published was handled and finished exactly once, by every count.")
	return nil
}

func (b *bench) printMeasure(m measure) {
	var metrics []string
	for _, s := range b.figures.list {
		if s.Measure == m.name && !slices.Contains(metrics, s.Metric) {
			metrics = append(metrics, s.Metric)
		}
	}
	if metrics == nil {
		return
	}
	fmt.Printf("\n%s\n", m.title(b.opts))
	fmt.Printf("  %-30s%-32s%9s%9s%9s\n", "", "", "median", "min", "max")
	for _, metric := range metrics {
		label := ""
		var first string
		for _, p := range m.contestants() {
			s := b.figures.get(m.name, metric, p.name())
			if s == nil {
				continue
			}
			if first == "" {
				first, label = p.name(), metric+", "+s.Unit
			} else {
				label = " "
			}
			printSeries(label, s)
		}
		for _, p := range m.contestants() {
			if r := b.figures.ratio(m.name, metric, first, p.name()); r != nil && p.name() != first {
				printSeries("", r)
			}
		}
	}
}

func printSeries(label string, s *series) {
	fmt.Printf("  %-30s%-32s%9s%9s%9s\n", label, s.Peer, number(s.Median), number(s.Min), number(s.Max))
}

// number shows three digits that mean something.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.4f", v)
	}
}

func printGoals(list []goal) {
	if len(list) == 0 {
		return
	}
	fmt.Printf("\nGoals\n")
	for _, g := range list {
		what := fmt.Sprintf("%s: %s", g.Measure, g.Metric)
		if g.By != "" {
			what += ", by " + g.By
		}
		want := "below " + number(g.Below)
		if g.AtLeast > 0 {
			want = "at least " + number(g.AtLeast)
		}
		verdict := "not reached"
		if g.Reached {
			verdict = "reached"
		}
		fmt.Printf("  %-52s%10s   %-15s%s\n", what, number(g.Figure), want, verdict)
	}
}
