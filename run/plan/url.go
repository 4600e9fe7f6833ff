package plan

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// inURL has what is computed in a URL stay in its part of it: a segment of the path, or a name or a value of the query.
func inURL(v *value) {
	escape := url.PathEscape
	for i, p := range v.parts {
		switch {
		case p.expr != nil:
			v.parts[i].expr = &expression{escaped{p.expr.program, escape}}
		case strings.Contains(p.text, "?"):
			escape = url.QueryEscape
		}
	}
}

// escaped is a program whose value is put into a URL.
type escaped struct {
	cel.Program
	escape func(string) string
}

// Eval computes the value as a text, a number, say, as its JSON, and escapes it.
func (e escaped) Eval(vars any) (ref.Val, *cel.EvalDetails, error) {
	v, details, err := e.Program.Eval(vars)
	if err != nil {
		return v, details, err
	}
	text, isText := v.(types.String)
	if !isText {
		made, err := appendValue(nil, v)
		if err != nil {
			return nil, details, err
		}
		text = types.String(made)
	}
	if len(text) > maxValue { // which is refused
		return text, details, nil
	}
	return types.String(e.escape(string(text))), details, nil
}

// URL computes the step's, in which each computed part is escaped, and is no part of a . or .. that would lead elsewhere; "" of a
// step without one. Errors: [ConditionError].
func (s *Step) URL(p *Plan, d Data) (target string, err error) {
	text, err := s.Resolve(p, "url", d)
	if err != nil || text == nil {
		return "", err
	}
	if err := json.Unmarshal(text, &target); err != nil {
		return "", &ConditionError{errors.New("url: what was computed is no text")}
	}
	var written strings.Builder
	for _, part := range s.fields["url"].parts {
		if written.WriteString(part.text); part.expr != nil {
			written.WriteString("00")
		}
	}
	if written.Len() > 0 && dots(target) > dots(written.String()) {
		return "", &ConditionError{errors.New("url: what was computed makes a . or .. of a segment of the path")}
	}
	return target, nil
}

// dots is how many segments of a URL's path lead to where they stand, or to what is above.
func dots(target string) (n int) {
	if end := strings.IndexAny(target, "?#"); end >= 0 {
		target = target[:end]
	}
	for _, segment := range strings.Split(target, "/") {
		if plain, err := url.PathUnescape(segment); err == nil && (plain == "." || plain == "..") {
			n++
		}
	}
	return n
}
