package document

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/duration"
)

// Section is a mapping of the file, read key by key. A key that nobody has
// asked for when the reading is over is unknown.
type Section struct {
	*Reader
	Path  string
	Line  int
	Node  *Node
	asked []string // in that order
	keys  map[string]*sectionKey
}

// sectionKey is a key that the section has, or was asked for: a section may have tens of thousands, and is asked for each.
type sectionKey struct {
	Entry
	has, asked bool
}

// key is that of a name.
func (s *Section) key(name string) *sectionKey {
	if s.keys == nil {
		s.keys = map[string]*sectionKey{}
		for _, e := range s.Node.Entries {
			s.keys[e.Key] = &sectionKey{Entry: e, has: true}
		}
	}
	if s.keys[name] == nil {
		s.keys[name] = &sectionKey{}
	}
	return s.keys[name]
}

// Section makes a section of a value, or reports why that cannot be and
// returns nil.
func (r *Reader) Section(e Entry, path string) *Section {
	if e.Value = r.Value(e, path); e.Value == nil {
		return nil
	}
	if e.Value.Kind != Mapping {
		r.Problemf(e.Value.Line, path, "want a mapping, got %s", e.Value.Kind)
		return nil
	}
	return &Section{Reader: r, Path: path, Line: e.Line, Node: e.Value}
}

// Value returns an entry's value, or nil, with a problem reported, if it has
// none.
func (r *Reader) Value(e Entry, path string) *Node {
	switch e.Value.Kind {
	case Broken:
		return nil
	case Null:
		r.Problemf(e.Line, path, "has no value")
		return nil
	}
	return e.Value
}

// Has reports whether the section has the key, whatever its value.
func (s *Section) Has(key string) bool {
	_, ok := s.Entry(key)
	return ok
}

// Entry is the one of key, which is asked for.
func (s *Section) Entry(key string) (Entry, bool) {
	k := s.key(key)
	if !k.asked {
		k.asked = true
		s.asked = append(s.asked, key)
	}
	return k.Entry, k.has
}

// Get returns the value of key, or nil, with a problem reported if it has none.
func (s *Section) Get(key string) *Node {
	e, ok := s.Entry(key)
	if !ok {
		return nil
	}
	return s.Value(e, Join(s.Path, key))
}

// LineOf returns the line of a key that the section has, else its own.
func (s *Section) LineOf(key string) int {
	if k := s.key(key); k.has {
		return k.Line
	}
	return s.Line
}

// Keyf reports a problem of a key's value.
func (s *Section) Keyf(key, format string, args ...any) {
	s.Problemf(s.LineOf(key), Join(s.Path, key), format, args...)
}

// Text reads a text that is not empty.
func (s *Section) Text(key string) string {
	n := s.Get(key)
	if n == nil {
		return ""
	}
	return s.TextOf(n, Join(s.Path, key))
}

// TextOf never repeats a value that it refuses: it may be a secret.
func (r *Reader) TextOf(n *Node, path string) string {
	switch {
	case n.Kind == Integer, n.Kind == Float, n.Kind == Boolean:
		r.Problemf(n.Line, path, "want text, got %s; put it in quotes", n.Kind)
	case n.Kind != Text:
		r.Problemf(n.Line, path, "want text, got %s", n.Kind)
	case strings.TrimSpace(n.Text) == "":
		r.Problemf(n.Line, path, "is empty")
	default:
		return n.Text
	}
	return ""
}

// Choice reads one of choices.
func (s *Section) Choice(key string, choices ...string) string {
	v := s.Text(key)
	if v != "" && !slices.Contains(choices, v) {
		s.Keyf(key, "%q is none of %s%s", v, strings.Join(choices, ", "), s.DidYouMean(v, choices))
		return ""
	}
	return v
}

// Number reads a whole number.
func (s *Section) Number(key string, least, most int) int {
	n := s.Get(key)
	if n == nil {
		return 0
	}
	if n.Kind != Integer {
		s.Problemf(n.Line, Join(s.Path, key), "want a whole number from %d to %d, got %s", least, most, n.Got())
		return 0
	}
	v := math.MaxInt
	if i, ok := n.Number.(int64); ok {
		v = int(i)
	} else if u, ok := n.Number.(uint64); ok && u < math.MaxInt {
		v = int(u)
	}
	if v < least || v > most {
		s.Problemf(n.Line, Join(s.Path, key), "%s is not from %d to %d", n.Text, least, most)
		return 0
	}
	return v
}

// Duration reads a duration above 0, or from least to most where most is given.
func (s *Section) Duration(key string, least, most time.Duration) time.Duration {
	n := s.Get(key)
	if n == nil {
		return 0
	}
	path := Join(s.Path, key)
	if n.Kind == Integer || n.Kind == Float {
		s.Problemf(n.Line, path, "%s has no unit; write it as 30s, 5m or 1h30m", n.Text)
		return 0
	}
	if n.Kind != Text {
		s.Problemf(n.Line, path, "want a duration such as 30s, got %s", n.Kind)
		return 0
	}
	d, err := duration.Parse(n.Text)
	switch {
	case err != nil:
		s.Problemf(n.Line, path, "%q is not a duration such as 30s, 5m or 1h30m", n.Text)
	case d <= 0:
		s.Problemf(n.Line, path, "%s is not above 0", n.Text)
	case most > 0 && (d < least || d > most):
		s.Problemf(n.Line, path, "%s is not from %s to %s", n.Text, duration.Format(least), duration.Format(most))
	default:
		return d
	}
	return 0
}

// Texts calls each for the items of a list of texts.
func (s *Section) Texts(key string, each func(value string, line int)) {
	n := s.Get(key)
	if n == nil {
		return
	}
	path := Join(s.Path, key)
	if n.Kind != List {
		s.Problemf(n.Line, path, "want a list such as [a, b], got %s", n.Kind)
		return
	}
	for _, item := range n.Items {
		line := max(n.Line, item.Line)
		switch item.Kind {
		case Broken:
		case Null:
			s.Problemf(line, path, "an entry of the list has no value")
		default:
			if v := s.TextOf(item, path); v != "" {
				each(v, line)
			}
		}
	}
}

// Sections calls each for the entries of a mapping of mappings.
func (s *Section) Sections(key string, each func(name string, sub *Section)) {
	e, ok := s.Entry(key)
	if !ok {
		return
	}
	outer := s.Section(e, Join(s.Path, key))
	if outer == nil {
		return
	}
	for _, e := range outer.Node.Entries {
		if sub := s.Section(e, Join(outer.Path, e.Key)); sub != nil {
			each(e.Key, sub)
		}
	}
}

// Sub returns the section under key, or nil if there is none.
func (s *Section) Sub(key string) *Section {
	e, ok := s.Entry(key)
	if !ok {
		return nil
	}
	return s.Section(e, Join(s.Path, key))
}

// Done reports the keys that nobody has asked for.
func (s *Section) Done() {
	for _, e := range s.Node.Entries {
		if !s.key(e.Key).asked {
			s.Problemf(e.Line, Join(s.Path, e.Key), "unknown key%s", s.DidYouMean(e.Key, s.asked))
		}
	}
}
