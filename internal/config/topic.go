package config

import (
	"slices"
	"time"

	"github.com/deedhq/deed/internal/limits"
)

// Topic is a topic and the settings that its subscriptions share.
type Topic struct {
	Name        string
	Sinks       []string // keys of [Config.Sinks]: at least one, none twice
	Mode        string   // queue or stream
	Lanes       int      // of a stream
	Ordering    string   // of a stream: key or none
	Retention   time.Duration
	MaxAttempts int
	Lease       time.Duration
	Backoff     time.Duration
	From        string // beginning or now
	Concurrency int
	Batch       int
	Line        int // where the topic stands in the file
}

// use is a topic's mention of a sink.
type use struct {
	path string
	line int
	sink string
}

func (s *section) topic(name string) (Topic, []use) {
	if err := limits.Topic(name); err != nil {
		s.problemf(s.line, s.path, "%s", err)
	}
	t := Topic{Name: name, Line: s.line}
	var uses []use
	add := func(path, sink string, line int) {
		if slices.Contains(t.Sinks, sink) {
			s.problemf(line, path, "the sink %q is named twice", sink)
			return
		}
		t.Sinks = append(t.Sinks, sink)
		uses = append(uses, use{path: path, line: line, sink: sink})
	}
	one, many := s.has("sink"), s.has("sinks")
	if n := s.get("sink"); n != nil {
		if v := s.textOf(n, join(s.path, "sink")); v != "" {
			add(join(s.path, "sink"), v, n.line)
		}
	}
	s.texts("sinks", func(v string, line int) { add(join(s.path, "sinks"), v, line) })
	switch e, _ := s.entry("sinks"); {
	case one && many:
		s.keyf("sinks", "the topic has both sink and sinks; keep one of them")
	case !one && !many:
		s.problemf(s.line, s.path, "the topic has no sink; add sink: NAME")
	case many && e.value.kind == list && len(e.value.items) == 0:
		s.keyf("sinks", "the list is empty")
	}
	t.Mode = s.choice("mode", "queue", "stream")
	t.Lanes = s.number("lanes", limits.Lanes.Least, limits.Lanes.Most)
	t.Ordering = s.choice("ordering", "key", "none")
	for _, key := range []string{"lanes", "ordering"} {
		if s.has(key) && t.Mode != "stream" {
			s.keyf(key, "only a stream has %s; add mode: stream", key)
		}
	}
	t.Retention = s.duration("retention", time.Minute, 36500*24*time.Hour)
	t.MaxAttempts = s.number("max_attempts", limits.Attempts.Least, limits.Attempts.Most)
	t.Backoff = s.duration("backoff", limits.Backoff.Least, limits.Backoff.Most)
	t.Lease = s.duration("lease", limits.Lease.Least, limits.Lease.Most)
	t.From = s.choice("from", "beginning", "now")
	t.Concurrency = s.number("concurrency", 1, 1000)
	t.Batch = s.number("batch", 1, 10000)
	s.done()
	return t, uses
}

// match reports the sinks that are named on one side only.
func (s *section) match(uses []use) {
	var defined []entry
	if e, ok := s.node.entry("sinks"); ok {
		if e.value.kind != mapping && e.value.kind != null {
			return // a problem of its own, and nothing to compare with
		}
		defined = e.value.entries
	}
	var names []string
	for _, e := range defined {
		names = append(names, e.key)
	}
	used := map[string]bool{}
	for _, u := range uses {
		used[u.sink] = true
		if !slices.Contains(names, u.sink) {
			s.problemf(u.line, u.path, "no sink is named %q%s", u.sink, didYouMean(u.sink, names))
			// What was most likely meant is not reported as unused as well.
			used[closest(u.sink, names)] = true
		}
	}
	for _, e := range defined {
		if !used[e.key] {
			s.problemf(e.line, join("sinks", e.key), "no topic uses this sink")
		}
	}
}
