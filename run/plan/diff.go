package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/deedhq/deed/internal/document"
)

// Difference is what two plans say otherwise.
type Difference struct {
	Path string          `json:"path"`          // such as steps.charge.retry.attempts
	Old  json.RawMessage `json:"old,omitempty"` // nil: it is not there
	New  json.RawMessage `json:"new,omitempty"`
}

// Diff says what b says otherwise than a, by path. Where steps of both stand in another order, which is a part of
// a plan's hash, steps has the names of each in order.
func Diff(a, b *Plan) []Difference {
	var d []Difference
	diff(&d, "", object(a.body), object(b.body))
	if !slices.Equal(shared(a, b), shared(b, a)) {
		d = append(d, Difference{Path: "steps", Old: order(a), New: order(b)})
	}
	return d
}

// shared are the names of a's steps that b has, too.
func shared(a, b *Plan) (names []string) {
	has := map[string]bool{}
	for _, s := range b.Steps {
		has[s.ID] = true
	}
	for _, s := range a.Steps {
		if has[s.ID] {
			names = append(names, s.ID)
		}
	}
	return names
}

// order are the names of p's steps, as JSON.
func order(p *Plan) json.RawMessage {
	names, _ := json.Marshal(shared(p, p)) // texts
	return names
}

// object is a JSON value's entries, or nil if it is no object.
func object(data json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(data, &m) != nil {
		return nil
	}
	return m
}

func diff(out *[]Difference, path string, a, b map[string]json.RawMessage) {
	keys := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, both := a[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		at := document.Join(path, k)
		inner, other := object(a[k]), object(b[k])
		if inner != nil && other != nil {
			diff(out, at, inner, other)
		} else if string(a[k]) != string(b[k]) {
			*out = append(*out, Difference{Path: at, Old: a[k], New: b[k]})
		}
	}
}

// String is a line for people.
func (d Difference) String() string {
	switch {
	case d.Old == nil:
		return fmt.Sprintf("+ %s: %s", d.Path, d.New)
	case d.New == nil:
		return fmt.Sprintf("- %s: %s", d.Path, d.Old)
	}
	return fmt.Sprintf("~ %s: %s -> %s", d.Path, d.Old, d.New)
}
