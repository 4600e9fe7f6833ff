package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/run/plan"
)

// wholeOnly is below how many bytes a secret is only looked for as a whole value: "us" is in "status" without anybody's having told it.
const wholeOnly = 8

// guard knows the values of a step's secrets, by the names that the step knows them by, and finds them in what the step says. The zero value knows none.
type guard struct{ values map[string]string }

// secrets resolves those of a step, for its run's tenant and environment.
func (e *Engine) secrets(ctx context.Context, it *item, st *plan.Step) (g guard, err error) {
	if len(st.Secrets) == 0 {
		return g, nil
	}
	unresolved := func(err error) error {
		return &run.Failure{Category: "secret", Code: "SECRET_UNRESOLVED", NotDone: true, Err: fmt.Errorf("its secrets: %w", err)}
	}
	if e.opts.Secrets == nil {
		return g, unresolved(errors.New("this engine has nothing to resolve them with: local.Options.Secrets"))
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.Deadline)
	defer cancel()
	var environment string
	if err := e.pool.QueryRow(ctx, query.Environment, it.run).Scan(&environment); err != nil {
		it.end = it.unbegun(0)
		return g, err
	}
	refs := slices.Sorted(maps.Values(st.Secrets))
	found, err := e.opts.Secrets.Resolve(ctx, slices.Compact(refs), it.tenant, environment)
	if err != nil {
		return g, unresolved(err)
	}
	crash.Point("secrets resolved")
	g.values = map[string]string{}
	for key, ref := range st.Secrets {
		if g.values[key] = found[ref]; g.values[key] == "" {
			return guard{}, unresolved(fmt.Errorf("%s has no value", ref))
		}
	}
	return g, nil
}

// errLeak is what a step has failed with that has told a secret.
func errLeak() error {
	return &run.Failure{Category: "secret", Code: "SECRET_LEAK", Final: true, Err: errors.New("what the step has said has the value of a secret in it, and was not stored")}
}

// errUnknownLeak is what a step has failed with that may have been done, and must not be repeated, and has told a secret: a person decides of it.
func errUnknownLeak() error {
	return &run.Failure{Category: "secret", Code: "OUTCOME_UNKNOWN", Final: true, Err: errors.New("the answer had a secret in it, and was not stored: nobody knows whether it was done")}
}

// checked is what a step has returned, or an error where there is the value of a secret in it.
func (g guard) checked(output json.RawMessage, err error) (json.RawMessage, error) {
	if len(g.values) == 0 {
		return output, err
	}
	leaks, unknown := g.inJSON(output), false
	if err != nil {
		leaks = leaks || g.inStored(err.Error())
		if f, ok := errors.AsType[*run.Failure](err); ok {
			leaks = leaks || g.inStored(f.Code) || g.inStored(f.Category)
			unknown = f.Code == "OUTCOME_UNKNOWN"
		}
		if reason, ok := run.Skipped(err); ok {
			leaks = leaks || g.inStored(reason)
		}
	}
	switch {
	case leaks && unknown:
		return nil, errUnknownLeak()
	case leaks:
		return nil, errLeak()
	}
	return output, err
}

// call is what do returns, checked; a panic that tells a secret is a leak, too, and would be logged.
func (g guard) call(do func() (json.RawMessage, error)) (output json.RawMessage, err error) {
	if len(g.values) > 0 {
		defer func() {
			if p := recover(); p != nil {
				if !g.inStored(fmt.Sprint(p)) {
					panic(p)
				}
				output, err = nil, errLeak()
			}
		}()
	}
	return g.checked(do())
}

// in reports whether text has a secret in it, or is one, also with NULs between, as of UTF-16: where it is stored they are taken out.
func (g guard) in(text string) bool {
	plain := strings.ReplaceAll(text, "\x00", "")
	for _, v := range g.values {
		if has(text, v) || has(plain, strings.ReplaceAll(v, "\x00", "")) {
			return true
		}
	}
	return false
}

func has(text, secret string) bool {
	whole := strings.TrimSpace(secret) // as code makes it that has it from a file, say
	return len(whole) >= wholeOnly && strings.Contains(text, whole) || whole != "" && strings.TrimSpace(text) == whole
}

// inStored is as inText, of a text that is stored as errortext makes it.
func (g guard) inStored(text string) bool {
	return g.inText(text) || g.inText(errortext.Stored(text, math.MaxInt, ""))
}

// inJSON reports whether a value, or a key, in output is a secret or has one in it; it is also looked for across them.
func (g guard) inJSON(output json.RawMessage) bool {
	if len(output) == 0 {
		return false
	}
	if g.in(string(output)) {
		return true
	}
	d := json.NewDecoder(strings.NewReader(string(output)))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return false // its end, or what is no JSON, which is not stored
		}
		if g.inText(fmt.Sprint(token)) { // a text may be JSON, as of an answer that does not say that it is
			return true
		}
	}
}

// nested is how many escapes within each other are looked behind: a URL in JSON that %q has quoted, say.
const nested = 3

// inText is as in, of a text of which parts may be JSON, or quoted as by Go or as in a URL, whole or not: a body, or an error's of strconv.
func (g guard) inText(text string) bool {
	return len(g.values) > 0 && g.behind(text, nested)
}

func (g guard) behind(text string, escapes int) bool {
	if g.in(text) {
		return true
	}
	if escapes == 0 {
		return false
	}
	for _, plain := range []string{unquoted(text), unpercented(text), unpercented(strings.ReplaceAll(text, "+", " "))} {
		if plain != text && g.behind(plain, escapes-1) {
			return true
		}
	}
	return false
}

// escape is what JSON and Go write in place of characters.
var escape = regexp.MustCompile(`(?:\\u[0-9a-fA-F]{4})+|\\U[0-9a-fA-F]{8}|\\x[0-9a-fA-F]{2}|\\["'\\/abfnrtv]`)

// unquoted is text without the escapes of JSON and Go.
func unquoted(text string) string {
	return escape.ReplaceAllStringFunc(text, func(escaped string) (plain string) {
		if json.Unmarshal([]byte(`"`+escaped+`"`), &plain) == nil {
			return plain
		}
		c, character, _, err := strconv.UnquoteChar(escaped, '\'')
		switch {
		case err != nil:
			return escaped
		case character:
			return string(c)
		}
		return string([]byte{byte(c)})
	})
}

var percented = regexp.MustCompile(`%[0-9a-fA-F]{2}`)

// unpercented is text without the escapes of URLs, which it need not be one of.
func unpercented(text string) string {
	return percented.ReplaceAllStringFunc(text, func(escaped string) string {
		c, _ := strconv.ParseUint(escaped[1:], 16, 8) // two digits
		return string([]byte{byte(c)})
	})
}

// masked is h without the values of secrets.
type masked struct {
	slog.Handler
	g guard
}

func (m masked) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, m.text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool { clean.AddAttrs(m.attr(a)); return true })
	return m.Handler.Handle(ctx, clean)
}

func (m masked) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = m.attr(a)
	}
	return masked{m.Handler.WithAttrs(clean), m.g}
}

func (m masked) WithGroup(name string) slog.Handler {
	return masked{m.Handler.WithGroup(m.text(name)), m.g}
}

func (m masked) text(s string) string {
	if m.g.inText(s) {
		return "(secret)"
	}
	return s
}

func (m masked) attr(a slog.Attr) slog.Attr {
	a.Key = m.text(a.Key)
	a.Value = a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindGroup:
		var clean []slog.Attr
		for _, in := range a.Value.Group() {
			clean = append(clean, m.attr(in))
		}
		a.Value = slog.GroupValue(clean...)
	case slog.KindAny:
		// A handler may print it as text, which bytes are to it, or as JSON.
		text, _ := json.Marshal(a.Value.Any())
		if m.g.inText(fmt.Sprintf("%+v", a.Value.Any())) || m.g.inText(fmt.Sprintf("%s", a.Value.Any())) || m.g.inJSON(text) {
			a.Value = slog.StringValue("(secret)")
		}
	default:
		if m.g.inText(a.Value.String()) {
			a.Value = slog.StringValue("(secret)")
		}
	}
	return a
}
