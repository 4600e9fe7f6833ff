package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	_ "time/tzdata" // a machine without zones, as an image from scratch is, would fail every expression that names one

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"

	"github.com/deedhq/deed/internal/document"
)

// What an expression may be, and may cost: in CEL's units, about one for each operation and
// for each ten characters that it reads, and ten values that it makes or compares (budget).
const (
	maxExpression = 4096 // characters
	maxDepth      = 50   // of its parts in parts
	maxPrograms   = 5000 // in a plan
	maxKeyed      = 4    // maps that have keys of a macro's variable
	costLimit     = 100_000
	fieldLimit    = 10 * costLimit // of all that stand under a key of a step
)

// expression is one of CEL.
type expression struct {
	program cel.Program
}

// environment is what expressions see: input, params and steps; those of a request secrets, too.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	object := cel.MapType(cel.StringType, cel.DynType)
	return cel.NewEnv(cel.Variable("input", object), cel.Variable("params", object), cel.Variable("steps", object),
		cel.Variable("secrets", cel.MapType(cel.StringType, cel.StringType)),
		cel.ParserExpressionSizeLimit(maxExpression), cel.ParserRecursionLimit(maxDepth))
})

// stepFields is what expressions may ask of a step.
var stepFields = []string{"status", "output", "error"}

// condition compiles what is true or false.
func (r *reader) condition(st *Step, text string, line int, path string) *expression {
	e, typ := r.compile(st, text, line, path)
	if e != nil && !typ.IsExactType(cel.BoolType) && !typ.IsExactType(cel.DynType) {
		r.Problemf(line, path, "it is %s; a condition is true or false", typ)
	}
	return e
}

func (r *reader) compile(st *Step, text string, line int, path string) (*expression, *cel.Type) {
	if r.expressions++; r.expressions > maxPrograms {
		if r.expressions == maxPrograms+1 {
			r.Problemf(line, path, "a plan has at most %d expressions: this is one more, and no other is looked at", maxPrograms)
		}
		return nil, nil
	}
	env, err := environment()
	if err != nil {
		r.Problemf(line, path, "%s", err)
		return nil, nil
	}
	if len(text) > maxExpression {
		r.Problemf(line, path, "the expression has %d bytes; at most %d are possible", len(text), maxExpression)
		return nil, nil
	}
	compiled, issues := env.Parse(text)
	if issues.Err() == nil {
		if keyed(compiled.NativeRep().Expr()) > maxKeyed {
			r.Problemf(line, path, "at most %d maps may have keys that are computed of the variable of a macro", maxKeyed)
			return nil, nil
		}
		compiled, issues = env.Check(compiled)
	}
	if issues.Err() != nil {
		for _, e := range issues.Errors() {
			r.Problemf(line, path, "%s", firstLine(e.Message))
		}
		return nil, nil
	}
	r.references(st, compiled.NativeRep().Expr(), line, path)
	program, err := env.Program(compiled, cel.CostLimit(costLimit), cel.CostTracking(budget{}), cel.CustomDecoratorV2(budgeted))
	if err != nil {
		r.Problemf(line, path, "%s", firstLine(err.Error()))
		return nil, nil
	}
	r.plan.size += 1<<10 + 100*len(text) // as was measured
	return &expression{program}, compiled.OutputType()
}

// keyed counts the maps that have a key of a macro's variable. The type of {a: a} has that of a twice, and one in another is
// twice as large: the compiler would be at it for good.
func keyed(root ast.Expr) (n int) {
	variables := map[string]bool{}
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			variables[e.AsComprehension().IterVar()] = true
		}
	}))
	uses := func(key ast.Expr) (found bool) {
		ast.PreOrderVisit(key, ast.NewExprVisitor(func(e ast.Expr) {
			found = found || e.Kind() == ast.IdentKind && variables[e.AsIdent()]
		}))
		return found
	}
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.MapKind && slices.ContainsFunc(e.AsMap().Entries(), func(entry ast.EntryExpr) bool { return uses(entry.AsMapEntry().Key()) }) {
			n++
		}
	}))
	return n
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// references notes the steps that an expression asks about: each is named, so that it is
// known which must have ended before.
func (r *reader) references(st *Step, root ast.Expr, line int, path string) {
	named := map[int64]bool{}    // the "steps" that a name follows
	fields := map[int64]string{} // what is asked for of an expression
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if r.secretOf(st, e, named, line, path) {
			return
		}
		if whole, field, ok := taken(e); ok && (e.Kind() == ast.SelectKind || slices.Contains(stepFields, field)) {
			fields[whole.ID()] = field
		}
		of, step, ok := selected(e, "steps")
		if !ok {
			if e.Kind() == ast.IdentKind && e.AsIdent() == "steps" && !named[e.ID()] {
				r.Problemf(line, path, "steps is followed by the name of one: steps.NAME.output")
			}
			return
		}
		named[of.ID()] = true
		if st.ID == step {
			r.Problemf(line, path, "the step asks about itself")
			return
		}
		field := fields[e.ID()] // "" for one that is taken whole, or passed on
		r.uses = append(r.uses, use{of: st, step: step, asks: field, line: line, path: path})
		if field != "" && !slices.Contains(stepFields, field) {
			r.Problemf(line, path, "a step has %s, and no %s%s", strings.Join(stepFields, ", "), field, r.DidYouMean(field, stepFields))
		}
	}))
}

// secretOf reports whether e asks for secrets, and what is wrong with that: a value stands in a request's headers and body alone, of
// which nothing is stored.
func (r *reader) secretOf(st *Step, e ast.Expr, named map[int64]bool, line int, path string) bool {
	of, name, ok := selected(e, "secrets")
	at := "steps." + st.ID
	switch {
	case !ok && (e.Kind() != ast.IdentKind || e.AsIdent() != "secrets"):
		return false
	case !ok && named[e.ID()]:
	case st.Kind != HTTP || !strings.HasPrefix(path, at+".headers.") && path != at+".body" && !strings.HasPrefix(path, at+".body."):
		r.Problemf(line, path, "a secret is asked for in headers and body of a step of kind http, and nowhere else")
		if ok {
			named[of.ID()] = true
		}
	case !ok:
		r.Problemf(line, path, "secrets is followed by the name of one: secrets.NAME")
	default:
		named[of.ID()] = true
		if st.Secrets[name] == "" {
			r.Problemf(line, path, "the step has no secret %q", name)
		}
	}
	return true
}

// selected takes WHAT.NAME and WHAT["NAME"] apart, of steps and of secrets.
func selected(e ast.Expr, what string) (whole ast.Expr, name string, ok bool) {
	whole, name, ok = taken(e)
	return whole, name, ok && whole.Kind() == ast.IdentKind && whole.AsIdent() == what
}

// taken takes X.NAME and X["NAME"] apart.
func taken(e ast.Expr) (whole ast.Expr, name string, ok bool) {
	switch e.Kind() {
	case ast.SelectKind:
		whole, name = e.AsSelect().Operand(), e.AsSelect().FieldName()
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != "_[_]" || len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
			return nil, "", false
		}
		text, isText := call.Args()[1].AsLiteral().(types.String)
		if !isText {
			return nil, "", false
		}
		whole, name = call.Args()[0], string(text)
	default:
		return nil, "", false
	}
	return whole, name, true
}

// value is a value of a plan in which texts may hold ${expressions}.
type value struct {
	literal json.RawMessage   // what has no expression in it
	parts   []part            // of a text with some
	keys    []string          // of an object
	values  map[string]*value // of an object
	items   []*value          // of a list
}

// part of a text: written, or computed.
type part struct {
	text string
	expr *expression
}

func (r *reader) value(st *Step, n *document.Node, path string) *value {
	switch n.Kind {
	case document.Mapping:
		v := &value{values: map[string]*value{}}
		for _, e := range n.Entries {
			v.keys = append(v.keys, e.Key)
			v.values[e.Key] = r.value(st, e.Value, document.Join(path, e.Key))
		}
		return v
	case document.List:
		v := &value{items: []*value{}}
		for _, item := range n.Items {
			v.items = append(v.items, r.value(st, item, path))
		}
		return v
	case document.Text:
		if strings.HasPrefix(n.Text, "secret://") {
			r.Problemf(n.Line, path, "a reference to a secret stands in secrets, and nowhere else")
		}
		if parts := r.parts(st, n, path); len(parts) > 1 || len(parts) == 1 && parts[0].expr != nil {
			return &value{parts: parts}
		} else if len(parts) == 1 {
			text, _ := json.Marshal(parts[0].text)
			return &value{literal: text}
		}
	}
	return &value{literal: r.json(n)}
}

// parts takes a text apart at its ${expressions}; $${ is ${ as it stands.
func (r *reader) parts(st *Step, n *document.Node, path string) (parts []part) {
	text := n.Text
	var plain strings.Builder
	flush := func() {
		if plain.Len() > 0 {
			parts = append(parts, part{text: plain.String()})
			plain.Reset()
		}
	}
	for text != "" {
		at := strings.Index(text, "${")
		if at < 0 {
			plain.WriteString(text)
			break
		}
		if at > 0 && text[at-1] == '$' {
			plain.WriteString(text[:at-1] + "${")
			text = text[at+2:]
			continue
		}
		plain.WriteString(text[:at])
		end := closing(text[at+2:])
		if end < 0 {
			r.Problemf(n.Line, path, "a ${ is not closed; write $${ for a ${ that is meant as such")
			return nil
		}
		flush()
		if e, _ := r.compile(st, text[at+2:at+2+end], n.Line, path); e != nil {
			parts = append(parts, part{expr: e})
		}
		text = text[at+2+end+1:]
	}
	flush()
	return parts
}

// closing is where the } stands that ends an expression: not in a text, and not one that
// closes a { of the expression's own.
func closing(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\'', '"':
			i = afterText(s, i) - 1
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

// afterText is where a text ends that begins at i.
func afterText(s string, i int) int {
	mark := s[i : i+1]
	if strings.HasPrefix(s[i:], strings.Repeat(mark, 3)) {
		mark = strings.Repeat(mark, 3)
	}
	for i += len(mark); i < len(s); i++ {
		if s[i] == '\\' {
			i++
		} else if strings.HasPrefix(s[i:], mark) {
			return i + len(mark)
		}
	}
	return len(s)
}

// Data is what expressions see.
type Data struct {
	// Input is the run's; a JSON object. Default: {}.
	Input json.RawMessage
	// Steps are those that have ended.
	Steps map[string]Result
	// Secrets are values by the step's own names for them; a request's headers and body see them.
	Secrets map[string]string

	once *decoded
}

// Once is d for what one step is asked by one goroutine: it is decoded when that is first needed, and not for each key anew.
func (d Data) Once() Data {
	d.once = &decoded{}
	return d
}

// Result is what a step came to.
type Result struct {
	Status string          // SUCCESS, FAILED or SKIPPED
	Output json.RawMessage // Default: null
	Error  json.RawMessage // of one that failed: an object. Default: null
}

// A ConditionError is that of an expression of a plan, which a repeat would not mend: the
// step fails by CONDITION_ERROR and is not retried.
type ConditionError struct{ Err error }

func (e *ConditionError) Error() string { return "CONDITION_ERROR: " + e.Err.Error() }

func (e *ConditionError) Unwrap() error { return e.Err }

// Holds says whether the step's condition holds; without one it does. Errors:
// [ConditionError].
func (s *Step) Holds(p *Plan, d Data) (bool, error) {
	if s.when == nil {
		return true, nil
	}
	vars, err := s.variables(p, d)
	if err != nil {
		return false, err
	}
	v, _, err := s.when.eval(vars)
	if err != nil {
		return false, &ConditionError{fmt.Errorf("when: %w", err)}
	}
	holds, ok := v.Value().(bool)
	if !ok {
		return false, &ConditionError{fmt.Errorf("when: it is no boolean, but %s", v.Type().TypeName())}
	}
	return holds, nil
}

// Resolve computes what stands under a key of the step, such as with, payload, to or url, as
// JSON; nil for a key that it does not have. Errors: [ConditionError].
func (s *Step) Resolve(p *Plan, key string, d Data) (json.RawMessage, error) {
	v := s.fields[key]
	if v == nil {
		return nil, nil
	}
	vars, err := s.variables(p, d)
	if err != nil {
		return nil, err
	}
	out, err := (&field{vars: vars}).append(nil, v)
	if err != nil {
		return nil, &ConditionError{fmt.Errorf("%s: %w", key, err)}
	}
	return out, nil
}
