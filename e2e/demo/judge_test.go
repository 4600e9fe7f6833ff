package main

import (
	"testing"
	"time"
)

// The report's numbers come from judge: each kind of trouble is counted as what
// it is.
func TestJudge(t *testing.T) {
	t.Parallel()
	zero := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
	from := func(seconds float64, relay string) arrival {
		return arrival{message: "m", at: at(seconds), relay: relay, body: "b"}
	}
	other := from(12, "2")
	other.message = "n"
	taken := func(seconds float64, relay string) arrival {
		return arrival{message: "taken", at: at(seconds), relay: relay, body: "b"}
	}
	changed := from(1, "1")
	changed.body = "c"
	f := facts{
		committed: map[string]bool{"f": true},
		commits:   map[string]time.Time{"f": at(0.5)},
		bodies:    map[string]string{"f": "b", "g": "b"},
		events: []event{
			{what: "relay", relay: "1", at: at(10), back: at(10.5)},
			{what: "server", at: at(30), back: at(32)},
		},
	}
	type counts struct{ delivered, lost, ghosts, altered, repeats, reissued, lapsed, unexplained int }
	for name, c := range map[string]struct {
		seen map[string][]arrival
		want counts
	}{
		"delivered":                {map[string][]arrival{"f": {from(1, "1")}}, counts{delivered: 1}},
		"lost":                     {nil, counts{lost: 1}},
		"never committed":          {map[string][]arrival{"f": {from(1, "1")}, "g": {from(1, "1")}}, counts{delivered: 1, ghosts: 1}},
		"altered":                  {map[string][]arrival{"f": {changed}}, counts{delivered: 1, altered: 1}},
		"repeat after the kill":    {map[string][]arrival{"f": {from(9.9, "1"), from(12, "2")}}, counts{delivered: 1, repeats: 1}},
		"out of order in the file": {map[string][]arrival{"f": {from(12, "2"), from(9.9, "1")}}, counts{delivered: 1, repeats: 1}},
		"under another id":         {map[string][]arrival{"f": {from(9.9, "1"), other}}, counts{delivered: 1, repeats: 1, reissued: 1}},
		"by the one not killed":    {map[string][]arrival{"f": {from(9.9, "2"), from(12, "2")}}, counts{delivered: 1, repeats: 1, unexplained: 1}},
		"long before the kill":     {map[string][]arrival{"f": {from(7, "1"), from(12, "2")}}, counts{delivered: 1, repeats: 1, unexplained: 1}},
		"long after the kill":      {map[string][]arrival{"f": {from(9.9, "1"), from(16, "2")}}, counts{delivered: 1, repeats: 1, unexplained: 1}},
		"without any kill":         {map[string][]arrival{"f": {from(1, "1"), from(2, "2")}}, counts{delivered: 1, repeats: 1, unexplained: 1}},
		"the lease had run out":    {map[string][]arrival{"f": {taken(1, "1"), taken(5, "2")}}, counts{delivered: 1, repeats: 1, lapsed: 1}},
		"taken over after a kill":  {map[string][]arrival{"f": {taken(9.9, "1"), taken(12, "2")}}, counts{delivered: 1, repeats: 1}},
		"while the server is away": {map[string][]arrival{"f": {from(31, "2"), from(33, "1")}}, counts{delivered: 1, repeats: 1}},
		"twice, once unexplained":  {map[string][]arrival{"f": {from(9.9, "1"), from(12, "2"), from(20, "2")}}, counts{delivered: 1, repeats: 2, unexplained: 1}},
	} {
		v := f.judge(c.seen, map[string]bool{"taken": true})
		got := counts{v.delivered, v.lost, v.ghosts, v.altered, v.repeats, v.reissued, v.lapsed, v.unexplained}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	v := f.judge(map[string][]arrival{"f": {from(1, "1")}}, nil)
	if len(v.quiet) != 1 || v.quiet[0] != 500*time.Millisecond {
		t.Errorf("away from the kills: %v, want 500ms", v.quiet)
	}
	if v = f.judge(map[string][]arrival{"f": {from(11, "1")}}, nil); len(v.quiet) != 0 || len(v.all) != 1 {
		t.Errorf("near a kill: %v counts as away from it; all: %v", v.quiet, v.all)
	}
	var sorted []time.Duration
	for n := range 200 {
		sorted = append(sorted, time.Duration(n+1))
	}
	for p, want := range map[int]time.Duration{50: 100, 95: 190, 99: 198, 100: 200} {
		if got := percentile(sorted, p); got != want {
			t.Errorf("p%d of 1 to 200 is %d, want %d", p, got, want)
		}
	}
}
