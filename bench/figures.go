package main

import (
	"slices"
	"strings"
)

// A series is one figure, a value a run.
type series struct {
	Measure string    `json:"measure"`
	Metric  string    `json:"metric"`
	Unit    string    `json:"unit"`
	Peer    string    `json:"peer"`
	Values  []float64 `json:"values"`
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
}

// figures are all series, in the order in which they came up.
type figures struct{ list []*series }

func (f *figures) add(measure, metric, unit, peer string, value float64) {
	s := f.get(measure, metric, peer)
	if s == nil {
		s = &series{Measure: measure, Metric: metric, Unit: unit, Peer: peer}
		f.list = append(f.list, s)
	}
	s.Values = append(s.Values, value)
	s.Median, s.Min, s.Max = spread(s.Values)
}

func (f *figures) get(measure, metric, peer string) *series {
	for _, s := range f.list {
		if s.Measure == measure && s.Metric == metric && s.Peer == peer {
			return s
		}
	}
	return nil
}

// ratio divides two peers' figures run by run: the turns of one run were taken
// next to each other.
func (f *figures) ratio(measure, metric, of, by string) *series {
	a, b := f.get(measure, metric, of), f.get(measure, metric, by)
	if a == nil || b == nil {
		return nil
	}
	r := &series{Measure: measure, Metric: metric, Unit: "times", Peer: of + " / " + by}
	for i := range min(len(a.Values), len(b.Values)) {
		if b.Values[i] == 0 {
			return nil
		}
		r.Values = append(r.Values, a.Values[i]/b.Values[i])
	}
	r.Median, r.Min, r.Max = spread(r.Values)
	return r
}

func spread(values []float64) (median, least, most float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]
}

// A goal is what deed wants to reach; missing one fails nothing.
type goal struct {
	Measure string  `json:"measure"`
	Metric  string  `json:"metric"`
	Of      string  `json:"of,omitempty"` // whose figure; deed's if empty
	By      string  `json:"by,omitempty"` // it is divided by this peer's
	AtLeast float64 `json:"at_least,omitempty"`
	Below   float64 `json:"below,omitempty"`
	Figure  float64 `json:"figure"`
	Reached bool    `json:"reached"`
}

var goals = []goal{
	{Measure: "bulk", Metric: "published", By: "river", AtLeast: 1},
	{Measure: "bulk by two", Metric: "published", By: "river", AtLeast: 1},
	{Measure: "business", Metric: "committed", By: "river", AtLeast: 1.4},
	{Measure: "business", Metric: "committed", By: "bare", AtLeast: 0.5},
	{Measure: "business", Metric: "committed", By: "cursor loop", AtLeast: 0.7},
	{Measure: "business", Metric: "committed", Of: "deed in tx", By: "bare", AtLeast: 0.62},
	{Measure: "business", Metric: "committed", Of: "deed pipelined", By: "bare", AtLeast: 0.85},
	{Measure: "business 0.5 ms", Metric: "committed", By: "cursor loop", AtLeast: 0.7},
	{Measure: "business 0.5 ms", Metric: "committed", Of: "deed in tx", By: "bare", AtLeast: 0.62},
	{Measure: "business 0.5 ms", Metric: "committed", Of: "deed pipelined", By: "bare", AtLeast: 0.85},
	{Measure: "business 2 ms", Metric: "committed", By: "cursor loop", AtLeast: 0.7},
	{Measure: "business 2 ms", Metric: "committed", Of: "deed in tx", By: "bare", AtLeast: 0.62},
	{Measure: "business 2 ms", Metric: "committed", Of: "deed pipelined", By: "bare", AtLeast: 0.85},
	{Measure: "drain", Metric: "drained", By: "river", AtLeast: 4},
	{Measure: "latency", Metric: "p50", Below: 3},
	{Measure: "latency", Metric: "p99", Below: 12},
	{Measure: "cost", Metric: "draining: WAL bytes", Below: 450},
	{Measure: "stream drain", Metric: "drained", By: "river", AtLeast: 15},
	{Measure: "stream drain", Metric: "drained", By: "watermill", AtLeast: 2},
	{Measure: "stream drain", Metric: "drained", By: "cursor loop", AtLeast: 0.5},
	{Measure: "stream cost", Metric: "draining: WAL bytes", Below: 2},
	{Measure: "stream business", Metric: "committed", By: "river", AtLeast: 1.7},
	{Measure: "stream business", Metric: "committed", By: "cursor loop", AtLeast: 0.85},
	{Measure: "stream business", Metric: "committed", Of: "deed stream in tx", By: "bare", AtLeast: 0.72},
	{Measure: "stream business", Metric: "committed", Of: "deed stream pipelined", By: "bare", AtLeast: 1},
	{Measure: "stream business 0.5 ms", Metric: "committed", By: "cursor loop", AtLeast: 0.85},
	{Measure: "stream business 0.5 ms", Metric: "committed", Of: "deed stream in tx", By: "bare", AtLeast: 0.72},
	{Measure: "stream business 0.5 ms", Metric: "committed", Of: "deed stream pipelined", By: "bare", AtLeast: 1},
	{Measure: "stream business 2 ms", Metric: "committed", By: "cursor loop", AtLeast: 0.85},
	{Measure: "stream business 2 ms", Metric: "committed", Of: "deed stream in tx", By: "bare", AtLeast: 0.72},
	{Measure: "stream business 2 ms", Metric: "committed", Of: "deed stream pipelined", By: "bare", AtLeast: 1},
	{Measure: "stream bulk", Metric: "published", By: "river", AtLeast: 1},
	{Measure: "stream bulk", Metric: "published", By: "same columns", AtLeast: 0.8},
	{Measure: "stream bulk by two", Metric: "published", By: "same columns", AtLeast: 0.6},
	{Measure: "stream latency", Metric: "p50", Below: 2},
	{Measure: "stream latency", Metric: "p99", Below: 8},
	{Measure: "stream latency", Metric: "p50", Of: "deed stream woken", Below: 2},
	{Measure: "stream latency", Metric: "p99", Of: "deed stream woken", Below: 8},
	{Measure: "stream kafka", Metric: "drained", By: "bare Kafka", AtLeast: 0.5},
	{Measure: "stream nats", Metric: "drained", By: "bare NATS", AtLeast: 0.5},
	{Measure: "stream crowd", Metric: "after the first", Of: "crowded", By: "deed stream", AtLeast: 0.83},
	{Measure: "stream processes", Metric: "drained", Of: "4 processes", By: "1 process", AtLeast: 0.85},
	{Measure: "stream idle", Metric: "statements", Below: 5},
	{Measure: "stream idle", Metric: "processor", Below: 1},
	{Measure: "stream pages", Metric: "the last by the first", Below: 1.5},
	{Measure: "faces", Metric: "10000 pending, 1 conns", By: "seed 004", AtLeast: 1.5},
	{Measure: "faces", Metric: "10000 pending, 4 conns", By: "seed 004", AtLeast: 1.5},
	{Measure: "deliveries", Metric: "reserved", AtLeast: 40_000},
	{Measure: "deliveries", Metric: "made, no-op provider", AtLeast: 5_000},
	{Measure: "deliveries", Metric: "made, SMTP", AtLeast: 1_000},
	{Measure: "deliveries", Metric: "made, SMTP, cost of a limit", Below: 20},
	{Measure: "deliveries", Metric: "made, resend, by 100", AtLeast: 3_000},
	{Measure: "deliveries", Metric: "made, ses", AtLeast: 3_000},
	{Measure: "contacts", Metric: "made in a call", AtLeast: 20_000},
	{Measure: "events", Metric: "by hundreds", AtLeast: 3_000},
	{Measure: "events", Metric: "one by one, at a pace of 300", AtLeast: 297},
	{Measure: "events", Metric: "p99", Below: 50},
	{Measure: "runs", Metric: "by thousands, one connection", AtLeast: 25_000},
	{Measure: "runs", Metric: "server's processor", Below: 45},
	{Measure: "runs", Metric: "WAL, by thousands", Below: 1_450},
	{Measure: "runs", Metric: "table and indexes", Below: 400},
	{Measure: "runs", Metric: "one at a time, 64 callers of an Appender", AtLeast: 4_000},
	{Measure: "runs", Metric: "16 writers of one run", AtLeast: 1_000},
	{Measure: "runs", Metric: "a long run, the last by the first", Below: 1.2},
	{Measure: "runs", Metric: "projected", AtLeast: 16_667},
	{Measure: "runs lag", Metric: "p99", Below: 1000},
	{Measure: "steps", Metric: "64 in flight, 0 inner steps", AtLeast: 5_500},
	{Measure: "steps", Metric: "64 in flight, 1 inner steps", AtLeast: 2_900},
	{Measure: "steps", Metric: "64 in flight, 10 inner steps", AtLeast: 570},
	{Measure: "steps", Metric: "processor, 0 inner steps", Below: 240},
	{Measure: "steps", Metric: "processor, 1 inner steps", Below: 490},
	{Measure: "steps", Metric: "processor, 10 inner steps", Below: 2_500},
	{Measure: "steps", Metric: "processor, an inner step", Below: 200},
	{Measure: "steps", Metric: "draining runs of ten steps", AtLeast: 10_000},
	{Measure: "steps", Metric: "from a step's end to the next one's beginning, p99", Below: 10},
	{Measure: "steps", Metric: "a run beside sleeping ones, by one alone", Below: 1.2},
	{Measure: "campaigns", Metric: "reserved", AtLeast: 25_000},
	{Measure: "campaigns", Metric: "reserved", Of: "snapshot held", By: "deed", AtLeast: 0.8},
	{Measure: "campaigns", Metric: "a password reset behind it, max", Below: 1000},
	{Measure: "campaigns", Metric: "rolling up", Below: 2},
	{Measure: "campaigns", Metric: "a look at it", Below: 10},
	{Measure: "campaigns", Metric: "sent, bodies of 1 KB", AtLeast: 5_000},
	{Measure: "campaigns", Metric: "sent, bodies of 1 KB", Of: "snapshot held", By: "deed", AtLeast: 0.8},
	{Measure: "campaigns", Metric: "sent, bodies of 8 KB", AtLeast: 2_500},
	{Measure: "campaigns smtp", Metric: "mails", By: "bare SMTP", AtLeast: 0.34},
	{Measure: "campaigns smtp", Metric: "lost, the relay killed", Below: 1},
	{Measure: "campaigns smtp", Metric: "twice, the relay killed", Below: 1},
	{Measure: "inbound", Metric: "at a pace of 500", AtLeast: 495},
	{Measure: "inbound", Metric: "p99", Below: 50},
}

// judged returns the goals whose figures were measured.
func (f *figures) judged() []goal {
	var list []goal
	for _, g := range goals {
		of := g.Of
		switch {
		case of != "":
		case strings.HasPrefix(g.Measure, "stream "):
			of = streamPeer{}.name()
		default:
			of = deedPeer{}.name()
		}
		s := f.get(g.Measure, g.Metric, of)
		if g.By != "" {
			s = f.ratio(g.Measure, g.Metric, of, g.By)
		}
		if s == nil {
			continue
		}
		g.Figure = s.Median
		g.Reached = g.AtLeast > 0 && s.Median >= g.AtLeast || g.Below > 0 && s.Median < g.Below
		list = append(list, g)
	}
	return list
}
