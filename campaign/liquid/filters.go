package liquid

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// filter makes a value of another one; args are as many as its definition says.
type filter func(s *state, v any, args []any) (any, error)

// definition is a filter and how many arguments it takes.
type definition struct {
	min, max int
	apply    filter
}

// definitions has all filters. None is the template library's: of those some make results
// of any size, some ask the clock, and some panic.
func definitions() map[string]definition {
	return map[string]definition{
		"default": {1, 1, orDefault},

		"append":         {1, 1, texts1(func(s *state, v, a string) (string, error) { return s.join(v, a) })},
		"prepend":        {1, 1, texts1(func(s *state, v, a string) (string, error) { return s.join(a, v) })},
		"replace":        {2, 2, replaceFilter(-1)},
		"replace_first":  {2, 2, replaceFilter(1)},
		"remove":         {1, 1, replaceFilter(-1)},
		"remove_first":   {1, 1, replaceFilter(1)},
		"upcase":         {0, 0, texts(strings.ToUpper)},
		"downcase":       {0, 0, texts(strings.ToLower)},
		"capitalize":     {0, 0, texts(capitalize)},
		"strip":          {0, 0, texts(strings.TrimSpace)},
		"lstrip":         {0, 0, texts(func(v string) string { return strings.TrimLeft(v, whitespace) })},
		"rstrip":         {0, 0, texts(func(v string) string { return strings.TrimRight(v, whitespace) })},
		"strip_newlines": {0, 0, texts(func(v string) string { return strings.NewReplacer("\r", "", "\n", "").Replace(v) })},
		"strip_html":     {0, 0, texts(stripHTML)},
		"escape":         {0, 0, texts(escape)},
		"escape_once":    {0, 0, texts(escapeOnce)},
		"url_encode":     {0, 0, texts(urlEncode)},
		"truncate":       {0, 2, truncate},
		"truncatewords":  {0, 2, truncateWords},
		"slice":          {1, 2, sliceFilter},
		"split":          {1, 1, split},

		"join":    {0, 1, join},
		"first":   {0, 0, arrays(func(_ *state, a []any) (any, error) { return at(a, 0), nil })},
		"last":    {0, 0, arrays(func(_ *state, a []any) (any, error) { return at(a, len(a)-1), nil })},
		"size":    {0, 0, size},
		"reverse": {0, 0, arrays(reverse)},
		"sort":    {0, 1, sortFilter},
		"uniq":    {0, 0, arrays(uniq)},
		"compact": {0, 0, arrays(func(s *state, a []any) (any, error) {
			return s.array(slices.DeleteFunc(slices.Clone(a), func(v any) bool { return v == nil }))
		})},
		"concat": {1, 1, concat},
		"map":    {1, 1, mapFilter},
		"where":  {1, 2, where},

		"plus":       {1, 1, plus},
		"minus":      {1, 1, minus},
		"times":      {1, 1, times},
		"divided_by": {1, 1, dividedBy},
		"modulo":     {1, 1, modulo},
		"abs":        {0, 0, abs},
		"ceil":       {0, 0, ceil},
		"floor":      {0, 0, floor},
		"round":      {0, 1, round},
		"number":     {0, 3, number},

		"date": {1, 2, date},
	}
}

// isFinal reports whether a filter can only be the last of {{ }}, where it says how that
// is written.
func isFinal(name string) bool { return name == "raw" || name == "newline_to_br" }

// library is the filter as the template library calls it: with the state among its
// arguments, and arguments that nobody has converted.
func (d definition) library(name string) any {
	return func(v any, s *state, args ...any) (any, error) {
		if err := s.charge(1); err != nil {
			return nil, err
		}
		out, err := d.apply(s, v, args)
		var known *Error
		if err == nil || errors.As(err, &known) || err == s.ended {
			return out, err
		}
		return nil, s.errorf("%s: %v", name, err)
	}
}

func orDefault(_ *state, v any, args []any) (any, error) {
	switch v := v.(type) {
	case nil:
		return args[0], nil
	case bool:
		if !v {
			return args[0], nil
		}
	case string:
		if v == "" {
			return args[0], nil
		}
	case []any:
		if len(v) == 0 {
			return args[0], nil
		}
	}
	return v, nil
}

// arrays makes a filter of a function of arrays; nothing is an empty one.
func arrays(fn func(*state, []any) (any, error)) filter {
	return func(s *state, v any, _ []any) (any, error) {
		a, err := toArray(v)
		if err != nil {
			return nil, err
		}
		if err := s.charge(1 + len(a)); err != nil {
			return nil, err
		}
		return fn(s, a)
	}
}

func toArray(v any) ([]any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case []any:
		return v, nil
	}
	return nil, fmt.Errorf("%s is not an array", typeName(v))
}

// typeName says what a value is without saying the value.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case bool:
		return "true or false"
	case string:
		return "a text"
	case int, float64:
		return "a number"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return "this"
}

func at(a []any, i int) any {
	if i < 0 || i >= len(a) {
		return nil
	}
	return a[i]
}

func size(s *state, v any, _ []any) (any, error) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), s.chargeText(len(v))
	case []any:
		return len(v), nil
	case map[string]any:
		return len(v), nil
	}
	return 0, nil
}

func reverse(s *state, a []any) (any, error) {
	a = slices.Clone(a)
	slices.Reverse(a)
	return s.array(a)
}

// join writes the items one after the other, with what is to be between them.
func join(s *state, v any, args []any) (any, error) {
	a, err := toArray(v)
	if err != nil {
		return nil, err
	}
	sep := " "
	if len(args) > 0 {
		if sep, err = toText(args[0]); err != nil {
			return nil, err
		}
	}
	var b strings.Builder
	for i, item := range a {
		text, err := toText(item)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString(sep)
		}
		if b.WriteString(text); b.Len() > maxText {
			break
		}
	}
	return s.text(b.String())
}

// split makes an array of a text: of its words, if it is split at spaces, of its
// characters, if at nothing. Empty parts at the end are left out.
func split(s *state, v any, args []any) (any, error) {
	text, err := toText(v)
	if err != nil {
		return nil, err
	}
	sep, err := toText(args[0])
	if err != nil {
		return nil, err
	}
	var parts []string
	if sep == " " {
		parts = strings.Fields(text)
	} else {
		parts = strings.SplitN(text, sep, maxItems+2)
	}
	for len(parts) > 0 && parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	if err := s.chargeText(len(text)); err != nil {
		return nil, err
	}
	items := make([]any, len(parts))
	for i, part := range parts {
		items[i] = part
	}
	return s.array(items)
}

// compare is a total order of values: numbers, texts, all others; nothing is last.
func compare(a, b any) int {
	rank := func(v any) int {
		switch v.(type) {
		case int, float64:
			return 0
		case string:
			return 1
		case nil:
			return 3
		}
		return 2
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	switch x := a.(type) {
	case string:
		return strings.Compare(x, b.(string))
	case int:
		if y, ok := b.(int); ok {
			return cmp.Compare(x, y)
		}
	}
	if rank(a) == 0 {
		return cmp.Compare(toFloat(a), toFloat(b))
	}
	return 0
}

func sortFilter(s *state, v any, args []any) (any, error) {
	a, err := toArray(v)
	if err != nil {
		return nil, err
	}
	by := func(item any) any { return item }
	if len(args) > 0 {
		key, err := toText(args[0])
		if err != nil {
			return nil, err
		}
		by = func(item any) any { return field(item, key) }
	}
	if err := s.charge(1 + len(a)*s.comparison()); err != nil {
		return nil, err
	}
	a = slices.Clone(a)
	slices.SortStableFunc(a, func(x, y any) int { return compare(by(x), by(y)) })
	return s.array(a)
}

func field(v any, key string) any {
	if object, ok := v.(map[string]any); ok {
		return object[key]
	}
	return nil
}

func uniq(s *state, a []any) (any, error) {
	if err := s.charge(1 + len(a)*(1+s.longText/1024)); err != nil {
		return nil, err
	}
	seen := make(map[any]bool, len(a))
	var out []any
	for _, item := range a {
		switch item.(type) {
		case []any, map[string]any:
			return nil, fmt.Errorf("%s is not compared: use map first", typeName(item))
		}
		key := item
		if f, ok := item.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			key = int(f) // 2.0 is 2
		}
		if !seen[key] {
			seen[key] = true
			out = append(out, item)
		}
	}
	return s.array(out)
}

func concat(s *state, v any, args []any) (any, error) {
	a, err := toArray(v)
	if err != nil {
		return nil, err
	}
	b, err := toArray(args[0])
	if err != nil {
		return nil, err
	}
	return s.array(slices.Concat(a, b))
}

func mapFilter(s *state, v any, args []any) (any, error) {
	a, err := toArray(v)
	if err != nil {
		return nil, err
	}
	key, err := toText(args[0])
	if err != nil {
		return nil, err
	}
	out := make([]any, len(a))
	for i, item := range a {
		out[i] = field(item, key)
	}
	return s.array(out)
}

// where keeps the items whose field is a value, or is there and not false.
func where(s *state, v any, args []any) (any, error) {
	a, err := toArray(v)
	if err != nil {
		return nil, err
	}
	key, err := toText(args[0])
	if err != nil {
		return nil, err
	}
	if err := s.charge(1 + len(a)*(1+s.longText/1024)); err != nil {
		return nil, err
	}
	var out []any
	for _, item := range a {
		has := field(item, key)
		if len(args) == 1 && has != nil && has != false || len(args) == 2 && same(has, args[1]) {
			out = append(out, item)
		}
	}
	return s.array(out)
}

// same compares values that are neither arrays nor objects.
func same(a, b any) bool {
	if _, ok := a.([]any); ok {
		return false
	}
	if _, ok := a.(map[string]any); ok {
		return false
	}
	return compare(a, b) == 0 && (a == b || typeName(a) == "a number")
}
