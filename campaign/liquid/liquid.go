package liquid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/osteele/liquid/parser"
	"github.com/osteele/liquid/render"
)

// Kind is what a template makes.
type Kind int

const (
	// Text is plain text, which is not escaped.
	Text Kind = iota
	// HTML is a page or a part of one. What comes from data is escaped.
	HTML
	// Subject is one line of plain text: line breaks and other control characters in
	// data become spaces.
	Subject
)

// Error is what is wrong with a template, or with what it was to make of somebody's data.
// It names no data.
type Error struct {
	// Line is where, from 1; 0 says that it is of the whole.
	Line int
	// Problem says what, and what to do about it.
	Problem string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Problem
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Problem)
}

// Template is a template that was found right. It never changes, and any number of
// goroutines may use it.
type Template struct {
	kind  Kind
	root  render.Node
	cfg   render.Config
	parts []part
	roots []string
	needs []string
}

// Needs are the names, such as contact.city, that the template writes and that it does not
// provide for being empty: neither by a default nor by a tag that looks at them. They are in order.
func (t *Template) Needs() []string { return slices.Clone(t.needs) }

// Parse reads a template. Names are what it may ask for, as paths: "contact.name" allows
// that and what is in it, and of contact nothing else. All that is wrong is in the error,
// each as an [*Error], joined by [errors.Join] in the order of lines.
func Parse(kind Kind, source string, names []string) (t *Template, err error) {
	given, err := newKnown(names)
	if err != nil {
		return nil, err
	}
	c := &checker{kind: kind, given: given, filters: definitions(), locals: map[string]local{}, used: map[string]bool{}, asked: map[string]int{}, bare: map[string]int{}}
	if err := c.check(source); err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, &Error{Problem: fmt.Sprintf("cannot be read: %v", r)}
		}
	}()
	t = &Template{kind: kind, parts: c.parts, roots: sortedKeys(c.used), needs: c.needs()}
	t.cfg = t.config()
	root, perr := t.cfg.Compile(c.out.String(), parser.SourceLoc{})
	if perr != nil {
		return nil, &Error{Problem: "cannot be read: " + perr.Error()}
	}
	t.root = root
	return t, nil
}

// Render makes one recipient's text. Data holds strings, numbers, booleans, arrays and
// objects, as encoding/json makes them of a document, below the roots of the names that
// were given to [Parse]; what is missing is empty. It is not changed.
//
// An [*Error] says that this template makes nothing of these data, now or later: it goes
// over a limit, or does something with a value that cannot be done. When ctx has ended,
// the error is its cause, and nothing is said about the template.
func (t *Template) Render(ctx context.Context, data map[string]any) (_ string, err error) {
	s := &state{ctx: ctx, zones: zones{}}
	if err := s.look(); err != nil {
		return "", err
	}
	vars := map[string]any{stateName: s}
	for _, name := range t.roots {
		if vars[name], err = s.take(name, data[name], 0); err != nil {
			return "", err
		}
	}
	defer func() {
		if r := recover(); r != nil {
			err = s.panicked(r)
		}
	}()
	out := limited{s: s, max: maxOutput, what: "what the template writes"}
	if t.kind == Subject {
		out.max, out.what = maxSubject, "the subject"
	}
	if err := render.Render(t.root, &out, vars, t.cfg); err != nil {
		return "", s.cause(err)
	}
	if t.kind == Subject {
		return oneLine(out.text.String()), nil
	}
	return out.text.String(), nil
}

// cause finds what began an error of the template library, which wraps it once for each
// block around it and says the line of the outermost.
func (s *state) cause(err error) error {
	for {
		wrapped, ok := err.(interface{ Cause() error })
		if !ok || wrapped.Cause() == nil {
			break
		}
		err = wrapped.Cause()
	}
	var known *Error
	if errors.As(err, &known) || s.ended != nil && errors.Is(err, s.ended) {
		return err
	}
	return &Error{Line: s.line, Problem: "cannot be computed"}
}

// panicked is for what the library panics with: errors of writing, which are ours, and
// operations that Go has not for two types.
func (s *state) panicked(r any) error {
	err, ok := r.(error)
	if !ok {
		return &Error{Line: s.line, Problem: "cannot be computed"}
	}
	var bug runtime.Error
	if errors.As(err, &bug) {
		return &Error{Line: s.line, Problem: "cannot be computed: " + bug.Error()}
	}
	return s.cause(err)
}

// oneLine keeps control characters and line breaks out of a header.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, text))
}

func sortedKeys(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// joined is all problems in the order of their lines.
func joined(problems []*Error) error {
	slices.SortStableFunc(problems, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}
