package liquid

import (
	"errors"
	"fmt"
	"html"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/osteele/liquid/expressions"
	"github.com/osteele/liquid/render"
	"github.com/osteele/liquid/values"
)

var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)

// epoch is a time to try formats of dates with.
var epoch = time.Unix(0, 0).UTC()

// loopState is a loop that runs: how far its cycles are.
type loopState struct{ cycles map[string]int }

// config is the template library with these tags and filters and no others.
func (t *Template) config() render.Config {
	cfg := render.NewConfig()
	for name, d := range definitions() {
		cfg.AddFilter(name, d.library(name))
	}
	cfg.AddTag(outTag, t.tag(t.output))
	cfg.AddTag("assign", t.tag(t.assign))
	cfg.AddTag("cycle", t.tag(t.cycle))
	cfg.AddTag("break", t.tag(func(*state, *part, io.Writer, render.Context) error { return errBreak }))
	cfg.AddTag("continue", t.tag(func(*state, *part, io.Writer, render.Context) error { return errContinue }))
	cfg.AddBlock("comment")
	cfg.AddBlock("raw")
	cfg.AddBlock("capture").Compiler(t.block(t.capture))
	cfg.AddBlock("for").Clause("else").Compiler(t.block(t.forLoop))
	cfg.AddBlock("if").Clause("else").Clause("elsif").Compiler(t.block(t.conditional))
	cfg.AddBlock("unless").Clause("else").Clause("elsif").Compiler(t.block(t.conditional))
	cfg.AddBlock("case").Clause("when").Clause("else").Compiler(t.block(t.choice))
	return cfg
}

func (t *Template) part(args string) (*part, error) {
	i, err := strconv.Atoi(args)
	if err != nil || i < 0 || i >= len(t.parts) {
		return nil, fmt.Errorf("no part %q", args)
	}
	return &t.parts[i], nil
}

func stateOf(ctx render.Context) *state { return ctx.Bindings()[stateName].(*state) }

func (t *Template) tag(run func(*state, *part, io.Writer, render.Context) error) render.TagCompiler {
	return func(args string) (func(io.Writer, render.Context) error, error) {
		p, err := t.part(args)
		if err != nil {
			return nil, err
		}
		return func(w io.Writer, ctx render.Context) error {
			s := stateOf(ctx)
			s.line = p.line
			if err := s.charge(1); err != nil {
				return err
			}
			return run(s, p, w, ctx)
		}, nil
	}
}

func (t *Template) block(run func(*state, *part, render.BlockNode, io.Writer, render.Context) error) render.BlockCompiler {
	return func(node render.BlockNode) (func(io.Writer, render.Context) error, error) {
		p, err := t.part(node.Args)
		if err != nil {
			return nil, err
		}
		return func(w io.Writer, ctx render.Context) error {
			s := stateOf(ctx)
			s.line = p.line
			if err := s.charge(1); err != nil {
				return err
			}
			return run(s, p, node, w, ctx)
		}, nil
	}
}

// evaluate computes an expression of p.
func (s *state) evaluate(ctx render.Context, p *part, expr expressions.Expression) (any, error) {
	s.line = p.line
	if err := s.charge(1 + p.work + p.comparisons*s.comparison()); err != nil {
		return nil, err
	}
	v, err := ctx.Evaluate(expr)
	var failed expressions.FilterError
	if errors.As(err, &failed) {
		return nil, failed.Err
	}
	return v, err
}

func (t *Template) output(s *state, p *part, w io.Writer, ctx render.Context) error {
	v, err := s.evaluate(ctx, p, p.expr)
	if err != nil {
		return err
	}
	text, err := s.written(v)
	if err != nil {
		return err
	}
	if t.kind == HTML {
		if text, err = s.placed(p, text); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, text)
	return err
}

// written is how a value looks: the items of an array one after the other.
func (s *state) written(v any) (string, error) {
	items, ok := v.([]any)
	if !ok {
		text, err := toText(v)
		if err != nil {
			return "", s.errorf("%s cannot be written: write a field of it", typeName(v))
		}
		return text, nil
	}
	var b strings.Builder
	for _, item := range items {
		text, err := s.written(item)
		if err != nil {
			return "", err
		}
		if b.Len()+len(text) > maxText {
			return "", s.errorf("a text of more than 64 KiB")
		}
		b.WriteString(text)
	}
	return b.String(), s.charge(1 + len(items))
}

// placed writes a text into a page so that it stays what it is: text, or a value.
func (s *state) placed(p *part, text string) (string, error) {
	if err := s.chargeText(len(text)); err != nil {
		return "", err
	}
	if p.last == "raw" {
		return text, nil
	}
	if p.captured {
		if p.place == placeText {
			return text, nil
		}
		text = html.UnescapeString(text)
	}
	if p.last == "escape_once" {
		text = html.UnescapeString(text)
	}
	switch {
	case p.place == placeURL && !linkAllowed(text):
		return "", s.errorf("a link of another kind than http, https, mailto, tel, sms and cid")
	case p.place == placeCSS && !styleAllowed(text):
		return "", s.errorf("a style may have letters, digits and #%%., _+- from data, and nothing else")
	}
	text = escape(text)
	if p.last == "newline_to_br" {
		text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "<br />\n")
	}
	return text, nil
}

func (t *Template) assign(s *state, p *part, _ io.Writer, ctx render.Context) error {
	v, err := s.evaluate(ctx, p, p.expr)
	if err != nil {
		return err
	}
	ctx.Set(p.name, v)
	return nil
}

func (t *Template) cycle(s *state, p *part, w io.Writer, _ render.Context) error {
	cycles := s.loops[len(s.loops)-1].cycles
	n := cycles[p.group]
	cycles[p.group] = n + 1
	_, err := io.WriteString(w, p.cycle[n%len(p.cycle)])
	return err
}

func (t *Template) capture(s *state, p *part, _ render.BlockNode, _ io.Writer, ctx render.Context) error {
	into := limited{s: s, max: maxText, what: "what is captured"}
	if err := ctx.RenderChildren(&into); err != nil {
		return err
	}
	text, err := s.text(into.text.String())
	if err != nil {
		return err
	}
	ctx.Set(p.name, text)
	return nil
}

// conditional is if and unless, with what they have of elsif and else.
func (t *Template) conditional(s *state, p *part, node render.BlockNode, w io.Writer, ctx render.Context) error {
	v, err := s.evaluate(ctx, p, p.expr)
	if err != nil {
		return err
	}
	if truth(v) == (node.Name == "if") {
		return ctx.RenderBlock(w, &node)
	}
	for _, clause := range node.Clauses {
		if clause.Name == "elsif" {
			other, err := t.part(clause.Args)
			if err != nil {
				return err
			}
			if v, err = s.evaluate(ctx, other, other.expr); err != nil {
				return err
			}
			if !truth(v) {
				continue
			}
		}
		return ctx.RenderBlock(w, clause)
	}
	return nil
}

func truth(v any) bool { return v != nil && v != false }

func (t *Template) choice(s *state, p *part, node render.BlockNode, w io.Writer, ctx render.Context) error {
	v, err := s.evaluate(ctx, p, p.expr)
	if err != nil {
		return err
	}
	for _, clause := range node.Clauses {
		if clause.Name == "else" {
			return ctx.RenderBlock(w, clause)
		}
		when, err := t.part(clause.Args)
		if err != nil {
			return err
		}
		for _, expr := range when.when {
			x, err := s.evaluate(ctx, when, expr)
			if err != nil {
				return err
			}
			if values.Equal(v, x) {
				return ctx.RenderBlock(w, clause)
			}
		}
	}
	return nil
}

func (t *Template) forLoop(s *state, p *part, node render.BlockNode, w io.Writer, ctx render.Context) error {
	items, err := s.items(p, ctx)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		if len(node.Clauses) > 0 {
			return ctx.RenderBlock(w, node.Clauses[0])
		}
		return nil
	}
	s.loops = append(s.loops, &loopState{map[string]int{}})
	defer func(item, loop any) {
		s.loops = s.loops[:len(s.loops)-1]
		ctx.Set(p.name, item)
		ctx.Set("forloop", loop)
	}(ctx.Get(p.name), ctx.Get("forloop"))
	for i, item := range items {
		if err := s.charge(8 + p.work); err != nil {
			return err
		}
		n := len(items)
		ctx.Set(p.name, item)
		ctx.Set("forloop", map[string]any{
			"first": i == 0, "last": i == n-1, "length": n,
			"index": i + 1, "index0": i, "rindex": n - i, "rindex0": n - i - 1,
		})
		switch err := ctx.RenderChildren(w); {
		case err == nil, err.Cause() == errContinue:
		case err.Cause() == errBreak:
			return nil
		default:
			return err
		}
	}
	return nil
}

// items is what a loop goes over: of an array what offset and limit leave of it, of an
// object its fields in the order of their names, each as a name and a value.
func (s *state) items(p *part, ctx render.Context) ([]any, error) {
	v, err := s.evaluate(ctx, p, p.loop.Expr)
	if err != nil {
		return nil, err
	}
	var items []any
	switch v := v.(type) {
	case nil:
	case []any:
		items = v
	case map[string]any:
		keys := make(map[string]bool, len(v))
		for key := range v {
			keys[key] = true
		}
		for _, key := range sortedKeys(keys) {
			items = append(items, []any{key, v[key]})
		}
	default:
		return nil, s.errorf("for needs an array, and has %s", typeName(v))
	}
	if p.loop.Offset != nil {
		n, err := s.count(p, ctx, p.loop.Offset)
		if err != nil {
			return nil, err
		}
		items = items[min(n, len(items)):]
	}
	if p.loop.Limit != nil {
		n, err := s.count(p, ctx, p.loop.Limit)
		if err != nil {
			return nil, err
		}
		items = items[:min(n, len(items))]
	}
	if p.loop.Reversed {
		items = slices.Clone(items)
		slices.Reverse(items)
	}
	return items, s.charge(1 + len(items))
}

func (s *state) count(p *part, ctx render.Context, expr expressions.Expression) (int, error) {
	v, err := s.evaluate(ctx, p, expr)
	if err != nil {
		return 0, err
	}
	n, err := toCount(v)
	if err != nil || n < 0 {
		return 0, s.errorf("limit and offset are whole numbers from 0")
	}
	return n, nil
}
