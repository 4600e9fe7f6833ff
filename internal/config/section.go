package config

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/duration"
)

// section is a mapping of the file, read key by key. A key that nobody has
// asked for when the reading is over is unknown.
type section struct {
	*reader
	path  string
	line  int
	node  *node
	asked []string
}

// section makes a section of a value, or reports why that cannot be and
// returns nil.
func (r *reader) section(e entry, path string) *section {
	if e.value = r.value(e, path); e.value == nil {
		return nil
	}
	if e.value.kind != mapping {
		r.problemf(e.value.line, path, "want a mapping, got %s", e.value.kind)
		return nil
	}
	return &section{reader: r, path: path, line: e.line, node: e.value}
}

// value returns an entry's value, or nil, with a problem reported, if it has
// none.
func (r *reader) value(e entry, path string) *node {
	switch e.value.kind {
	case broken:
		return nil
	case null:
		r.problemf(e.line, path, "has no value")
		return nil
	}
	return e.value
}

// has reports whether the section has the key, whatever its value.
func (s *section) has(key string) bool {
	_, ok := s.entry(key)
	return ok
}

func (s *section) entry(key string) (entry, bool) {
	if !slices.Contains(s.asked, key) {
		s.asked = append(s.asked, key)
	}
	return s.node.entry(key)
}

func (s *section) get(key string) *node {
	e, ok := s.entry(key)
	if !ok {
		return nil
	}
	return s.value(e, join(s.path, key))
}

// lineOf returns the line of a key that the section has, else its own.
func (s *section) lineOf(key string) int {
	if e, ok := s.node.entry(key); ok {
		return e.line
	}
	return s.line
}

// keyf reports a problem of a key's value.
func (s *section) keyf(key, format string, args ...any) {
	s.problemf(s.lineOf(key), join(s.path, key), format, args...)
}

func (s *section) text(key string) string {
	n := s.get(key)
	if n == nil {
		return ""
	}
	return s.textOf(n, join(s.path, key))
}

// textOf never repeats a value that it refuses: it may be a secret.
func (r *reader) textOf(n *node, path string) string {
	switch {
	case n.kind == integer, n.kind == float, n.kind == boolean:
		r.problemf(n.line, path, "want text, got %s; put it in quotes", n.kind)
	case n.kind != text:
		r.problemf(n.line, path, "want text, got %s", n.kind)
	case strings.TrimSpace(n.text) == "":
		r.problemf(n.line, path, "is empty")
	default:
		return n.text
	}
	return ""
}

func (s *section) choice(key string, choices ...string) string {
	v := s.text(key)
	if v != "" && !slices.Contains(choices, v) {
		s.keyf(key, "%q is none of %s%s", v, strings.Join(choices, ", "), didYouMean(v, choices))
		return ""
	}
	return v
}

func (s *section) number(key string, least, most int) int {
	n := s.get(key)
	if n == nil {
		return 0
	}
	if n.kind != integer {
		s.problemf(n.line, join(s.path, key), "want a whole number from %d to %d, got %s", least, most, n.got())
		return 0
	}
	v := math.MaxInt
	if i, ok := n.number.(int64); ok {
		v = int(i)
	} else if u, ok := n.number.(uint64); ok && u < math.MaxInt {
		v = int(u)
	}
	if v < least || v > most {
		s.problemf(n.line, join(s.path, key), "%s is not from %d to %d", n.text, least, most)
		return 0
	}
	return v
}

// duration reads a duration above 0, or from least to most where most is given.
func (s *section) duration(key string, least, most time.Duration) time.Duration {
	n := s.get(key)
	if n == nil {
		return 0
	}
	path := join(s.path, key)
	if n.kind == integer || n.kind == float {
		s.problemf(n.line, path, "%s has no unit; write it as 30s, 5m or 1h30m", n.text)
		return 0
	}
	if n.kind != text {
		s.problemf(n.line, path, "want a duration such as 30s, got %s", n.kind)
		return 0
	}
	d, err := duration.Parse(n.text)
	switch {
	case err != nil:
		s.problemf(n.line, path, "%q is not a duration such as 30s, 5m or 1h30m", n.text)
	case d <= 0:
		s.problemf(n.line, path, "%s is not above 0", n.text)
	case most > 0 && (d < least || d > most):
		s.problemf(n.line, path, "%s is not from %s to %s", n.text, duration.Format(least), duration.Format(most))
	default:
		return d
	}
	return 0
}

// texts calls each for the items of a list of texts.
func (s *section) texts(key string, each func(value string, line int)) {
	n := s.get(key)
	if n == nil {
		return
	}
	path := join(s.path, key)
	if n.kind != list {
		s.problemf(n.line, path, "want a list such as [a, b], got %s", n.kind)
		return
	}
	for _, item := range n.items {
		line := max(n.line, item.line)
		switch item.kind {
		case broken:
		case null:
			s.problemf(line, path, "an entry of the list has no value")
		default:
			if v := s.textOf(item, path); v != "" {
				each(v, line)
			}
		}
	}
}

// sections calls each for the entries of a mapping of mappings.
func (s *section) sections(key string, each func(name string, sub *section)) {
	e, ok := s.entry(key)
	if !ok {
		return
	}
	outer := s.section(e, join(s.path, key))
	if outer == nil {
		return
	}
	for _, e := range outer.node.entries {
		if sub := s.section(e, join(outer.path, e.key)); sub != nil {
			s.part = sub.path
			each(e.key, sub)
			s.part = ""
		}
	}
}

// sub returns the section under key, or nil if there is none.
func (s *section) sub(key string) *section {
	e, ok := s.entry(key)
	if !ok {
		return nil
	}
	return s.section(e, join(s.path, key))
}

// done reports the keys that nobody has asked for.
func (s *section) done() {
	for _, e := range s.node.entries {
		if !slices.Contains(s.asked, e.key) {
			s.problemf(e.line, join(s.path, e.key), "unknown key%s", didYouMean(e.key, s.asked))
		}
	}
}
