package config

import (
	"slices"
	"time"

	"github.com/deedhq/deed/internal/document"
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
		s.Problemf(s.Line, s.Path, "%s", err)
	}
	t := Topic{Name: name, Line: s.Line}
	var uses []use
	add := func(path, sink string, line int) {
		if slices.Contains(t.Sinks, sink) {
			s.Problemf(line, path, "the sink %q is named twice", sink)
			return
		}
		t.Sinks = append(t.Sinks, sink)
		uses = append(uses, use{path: path, line: line, sink: sink})
	}
	one, many := s.Has("sink"), s.Has("sinks")
	if n := s.Get("sink"); n != nil {
		if v := s.TextOf(n, document.Join(s.Path, "sink")); v != "" {
			add(document.Join(s.Path, "sink"), v, n.Line)
		}
	}
	s.Texts("sinks", func(v string, line int) { add(document.Join(s.Path, "sinks"), v, line) })
	switch e, _ := s.Entry("sinks"); {
	case one && many:
		s.Keyf("sinks", "the topic has both sink and sinks; keep one of them")
	case !one && !many:
		s.Problemf(s.Line, s.Path, "the topic has no sink; add sink: NAME")
	case many && e.Value.Kind == document.List && len(e.Value.Items) == 0:
		s.Keyf("sinks", "the list is empty")
	}
	t.Mode = s.Choice("mode", "queue", "stream")
	t.Lanes = s.Number("lanes", limits.Lanes.Least, limits.Lanes.Most)
	t.Ordering = s.Choice("ordering", "key", "none")
	for _, key := range []string{"lanes", "ordering"} {
		if s.Has(key) && t.Mode != "stream" {
			s.Keyf(key, "only a stream has %s; add mode: stream", key)
		}
	}
	t.Retention = s.Duration("retention", time.Minute, 36500*24*time.Hour)
	t.MaxAttempts = s.Number("max_attempts", limits.Attempts.Least, limits.Attempts.Most)
	t.Backoff = s.Duration("backoff", limits.Backoff.Least, limits.Backoff.Most)
	t.Lease = s.Duration("lease", limits.Lease.Least, limits.Lease.Most)
	t.From = s.Choice("from", "beginning", "now")
	t.Concurrency = s.Number("concurrency", 1, 1000)
	t.Batch = s.Number("batch", 1, 10000)
	s.Done()
	return t, uses
}

// match reports the sinks that are named on one side only.
func (s *section) match(uses []use) {
	var defined []document.Entry
	if e, ok := s.Node.Entry("sinks"); ok {
		if e.Value.Kind != document.Mapping && e.Value.Kind != document.Null {
			return // a problem of its own, and nothing to compare with
		}
		defined = e.Value.Entries
	}
	var names []string
	for _, e := range defined {
		names = append(names, e.Key)
	}
	used := map[string]bool{}
	for _, u := range uses {
		used[u.sink] = true
		if !slices.Contains(names, u.sink) {
			s.Problemf(u.line, u.path, "no sink is named %q%s", u.sink, s.DidYouMean(u.sink, names))
			// What was most likely meant is not reported as unused as well.
			used[document.Closest(u.sink, names)] = true
		}
	}
	for _, e := range defined {
		if !used[e.Key] {
			s.Problemf(e.Line, document.Join("sinks", e.Key), "no topic uses this sink")
		}
	}
}
