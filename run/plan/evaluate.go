package plan

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/deedhq/deed/internal/errortext"
)

// How many bytes an expression may make, and all of those that stand under a key of a step.
const (
	maxValue = 64 << 10
	maxField = 1 << 20
)

// decoded is what the expressions of a step see, but for secrets.
type decoded struct {
	of            *Step // or nil: nothing is decoded yet
	input, params any
	steps         map[string]any
	err           error
}

// variables are the data as CEL takes them. Errors: [ConditionError].
func (s *Step) variables(p *Plan, d Data) (map[string]any, error) {
	v := d.once
	if v == nil || v.of != nil && v.of != s {
		v = &decoded{}
	}
	if v.of == nil {
		v.of = s
		v.err = v.decode(p, d)
	}
	if v.err != nil {
		return nil, &ConditionError{v.err}
	}
	secrets := d.Secrets
	if secrets == nil {
		secrets = map[string]string{}
	}
	return map[string]any{"input": v.input, "params": v.params, "steps": v.steps, "secrets": secrets}, nil
}

// decode reads what the step asks for. CEL has no numbers beyond a double's, which PostgreSQL stores: a repeat would not mend that, either.
func (v *decoded) decode(p *Plan, d Data) (err error) {
	if v.input, err = decode(d.Input, map[string]any{}); err != nil {
		return fmt.Errorf("the run's input: %w", err)
	}
	if v.params, err = decode(p.Params, map[string]any{}); err != nil {
		return fmt.Errorf("the plan's params: %w", err)
	}
	v.steps = map[string]any{}
	for _, u := range v.of.Uses {
		r, ok := d.Steps[u.Step]
		if !ok {
			continue
		}
		var output, failure any
		if u.Output {
			output, err = decode(r.Output, nil)
		}
		if u.Error && err == nil {
			failure, err = decode(r.Error, nil)
		}
		if err != nil {
			return fmt.Errorf("what step %s came to: %w", u.Step, err)
		}
		v.steps[u.Step] = map[string]any{"status": r.Status, "output": output, "error": failure}
	}
	return nil
}

// decode keeps whole numbers whole: an int, or a uint where they are too large for one.
func decode(data json.RawMessage, otherwise any) (any, error) {
	if len(data) == 0 {
		return otherwise, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return plainNumbers(v)
}

func plainNumbers(v any) (_ any, err error) {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i, nil
		}
		if u, err := strconv.ParseUint(string(v), 10, 64); err == nil {
			return u, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("the number %s is out of range", errortext.Clip(string(v)))
		}
		return f, nil
	case map[string]any:
		for k, e := range v {
			if v[k], err = plainNumbers(e); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, e := range v {
			if v[i], err = plainNumbers(e); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// eval says what e comes to, and what that cost.
func (e *expression) eval(vars map[string]any) (v ref.Val, cost uint64, err error) {
	v, details, err := e.program.Eval(vars)
	if c := details.ActualCost(); c != nil {
		cost = *c
	}
	return v, cost, err
}

// field is what stands under a key of a step while it is computed.
type field struct {
	vars map[string]any
	made int    // bytes, by its expressions
	cost uint64 // of them
}

// append writes v as JSON.
func (f *field) append(out []byte, v *value) (_ []byte, err error) {
	switch {
	case v.literal != nil:
		return append(out, v.literal...), nil
	case v.values != nil:
		out = append(out, '{')
		for i, k := range v.keys {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendText(out, k), ':')
			if out, err = f.append(out, v.values[k]); err != nil {
				return nil, err
			}
		}
		return append(out, '}'), nil
	case v.items != nil:
		out = append(out, '[')
		for i, item := range v.items {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = f.append(out, item); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	case len(v.parts) == 1:
		computed, err := f.compute(v.parts[0].expr, false)
		return append(out, computed...), err
	}
	var text []byte
	for _, p := range v.parts {
		if p.expr == nil {
			text = append(text, p.text...)
			continue
		}
		computed, err := f.compute(p.expr, true)
		if err != nil {
			return nil, err
		}
		text = append(text, computed...)
	}
	return appendText(out, string(text)), nil
}

var (
	errTooLarge     = fmt.Errorf("the value is over %d bytes", maxValue)
	errTooLargeHere = fmt.Errorf("the values are over %d bytes in all", maxField)
	errTooDearHere  = fmt.Errorf("the values cost over %d in all", fieldLimit)
)

// compute is what e makes, as JSON; inText, a text as it stands.
func (f *field) compute(e *expression, inText bool) (made []byte, err error) {
	v, cost, err := e.eval(f.vars)
	if err != nil {
		return nil, err
	}
	if f.cost += cost; f.cost > fieldLimit {
		return nil, errTooDearHere
	}
	switch s, isText := v.(types.String); {
	case isText && len(s) > maxValue: // without its escapes
		return nil, errTooLarge
	case isText && inText:
		made = []byte(s)
	default:
		made, err = appendValue(nil, v)
	}
	if f.made += len(made); f.made > maxField {
		return nil, errTooLargeHere
	}
	return made, err
}

// appendValue writes a value of CEL as JSON, and gives up when that is too large.
func appendValue(out []byte, v ref.Val) (_ []byte, err error) {
	if len(out) > maxValue {
		return nil, errTooLarge
	}
	switch v := v.(type) {
	case types.Null:
		return append(out, "null"...), nil
	case types.Bool:
		return strconv.AppendBool(out, bool(v)), nil
	case types.Int:
		return strconv.AppendInt(out, int64(v), 10), nil
	case types.Uint:
		return strconv.AppendUint(out, uint64(v), 10), nil
	case types.Double:
		if math.IsInf(float64(v), 0) || math.IsNaN(float64(v)) {
			return nil, errors.New("the value is no number that JSON has")
		}
		text, err := json.Marshal(float64(v))
		return append(out, text...), err
	case types.String:
		return appendText(out, string(v)), nil
	case types.Bytes:
		return appendText(out, base64.StdEncoding.EncodeToString(v)), nil
	case types.Timestamp:
		return appendText(out, v.UTC().Format(time.RFC3339Nano)), nil
	case types.Duration:
		return appendText(out, v.Duration.String()), nil
	case traits.Mapper:
		return appendMap(out, v)
	case traits.Lister:
		out = append(out, '[')
		for i, it := 0, v.Iterator(); it.HasNext() == types.True; i++ {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = appendValue(out, it.Next()); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	}
	return nil, fmt.Errorf("a value of type %s cannot be written as JSON", v.Type().TypeName())
}

// appendMap writes the keys sorted: the same data are the same bytes.
func appendMap(out []byte, m traits.Mapper) (_ []byte, err error) {
	var keys []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		k, ok := it.Next().(types.String)
		if !ok {
			return nil, errors.New("a key of a map is no text")
		}
		keys = append(keys, string(k))
	}
	slices.Sort(keys)
	out = append(out, '{')
	for i, k := range keys {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendText(out, k), ':')
		if out, err = appendValue(out, m.Get(types.String(k))); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

func appendText(out []byte, s string) []byte {
	text, _ := json.Marshal(s) // a text
	return append(out, text...)
}
