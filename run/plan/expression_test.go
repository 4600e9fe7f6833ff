package plan_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/deedhq/deed/run/plan"
)

var data = plan.Data{
	Input: json.RawMessage(`{"order": "o-1", "n": 3, "big": 9007199254740993, "vast": 12345678901234567890, "list": [1, 2], "who": {"name": "Ann"}}`),
	Steps: map[string]plan.Result{
		"a": {Status: "SUCCESS", Output: json.RawMessage(`{"amount": 12}`)},
		"b": {Status: "FAILED", Error: json.RawMessage(`{"code": "GONE"}`)},
	},
}

// asking is a plan whose step c asks.
func asking(t *testing.T, rest string) (*plan.Plan, *plan.Step) {
	t.Helper()
	p := parse(t, "params: {limit: 10}\n"+withSteps("a: {kind: sleep, for: 1s}", "b: {kind: sleep, for: 1s}", "c: {kind: go, handler: h, after: [a, b], "+rest+"}"))
	return p, p.Step("c")
}

func TestStep_Resolve(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"${input.order}"`:                    `"o-1"`,
		`"no ${input.order}, ${input.n + 1}"`: `"no o-1, 4"`,
		`"${input.n}"`:                        `3`,
		`"${input.big}"`:                      `9007199254740993`,
		`"${input.vast}"`:                     `12345678901234567890`,
		`"id ${input.vast}"`:                  `"id 12345678901234567890"`,
		`"${input.vast > input.n}"`:           `true`,
		`"${double(input.n) * 1.5}"`:          `4.5`,
		`"${input.list}"`:                     `[1,2]`,
		`"${input.who}"`:                      `{"name":"Ann"}`,
		`"who: ${input.who}"`:                 `"who: {\"name\":\"Ann\"}"`,
		`"${steps.a.output.amount * 2}"`:      `24`,
		`"${steps['b'].error.code}"`:          `"GONE"`,
		`"${steps.b.output}"`:                 `null`,
		`"${params.limit}"`:                   `10`,
		`"$${input.n} costs $5"`:              `"${input.n} costs $5"`,
		`"${{'a}': '}'}}"`:                    `{"a}":"}"}`,
		`[1, {y: "${1.5}"}, null]`:            `[1,{"y":1.5},null]`,
		`"${input.list.map(x, x * 2)}"`:       `[2,4]`,
		`"${timestamp('2026-01-02T03:04:05Z') + duration('1h')}"`: `"2026-01-02T04:04:05Z"`,
	} {
		p, s := asking(t, "with: {x: "+text+"}")
		got, err := s.Resolve(p, "with", data)
		if err != nil || string(got) != `{"x":`+want+`}` {
			t.Errorf("%s: %s %v, want %s", text, got, err, want)
		}
	}
	if _, s := asking(t, "with: {}"); s != nil {
		if got, err := s.Resolve(parse(t, shipOrder), "url", data); got != nil || err != nil {
			t.Error(got, err)
		}
	}
}

func TestStep_Holds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"steps.a.output.amount > params.limit": true, "steps.b.status == 'SUCCESS'": false, "has(input.nothing)": false, "input.n in [1, 3]": true,
	} {
		p, s := asking(t, `when: "`+text+`"`)
		if got, err := s.Holds(p, data); err != nil || got != want {
			t.Errorf("%s: %t %v", text, got, err)
		}
	}
	p, s := asking(t, "with: {}")
	if holds, err := s.Holds(p, plan.Data{}); err != nil || !holds {
		t.Error(holds, err)
	}
}

// What an expression does that cannot be computed, or costs too much, is the plan's own error.
func TestStep_ErrCondition(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"input.nothing == 1":     "no such key: nothing",
		"input.order":            "it is no boolean, but string",
		"1 / (input.n - 3) == 1": "division by zero",
		"input.long.all(a, input.long.all(b, input.long.all(c, a + b + c >= 0)))": "cost limit exceeded",
	} {
		p, s := asking(t, `when: "`+text+`"`)
		d := data
		d.Input = json.RawMessage(`{"order": "o", "n": 3, "long": [` + strings.Repeat("1,", 500) + `1]}`)
		_, err := s.Holds(p, d)
		if _, ok := errors.AsType[*plan.ConditionError](err); !ok || !strings.HasPrefix(err.Error(), "CONDITION_ERROR: when: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	p, s := asking(t, `with: {x: "${input.list.map(a, input.who)}"}`)
	d := data
	d.Input = json.RawMessage(`{"who": "` + strings.Repeat("x", 1000) + `", "list": [` + strings.Repeat("1,", 100) + `1]}`)
	if _, err := s.Resolve(p, "with", d); err == nil || !strings.Contains(err.Error(), "the value is over 65536 bytes") {
		t.Error(err)
	}
}

// A number that PostgreSQL stores and CEL does not have is one, too.
func TestStep_ErrConditionOfANumber(t *testing.T) {
	t.Parallel()
	p, s := asking(t, `when: "input.n > 1", with: {x: ["${steps.a.output}", "${steps.a.error}"]}`)
	large := strings.Repeat("9", 401)
	for name, d := range map[string]plan.Data{
		"input":  {Input: json.RawMessage(`{"n": ` + large + `}`)},
		"output": {Input: json.RawMessage(`{"n": 2}`), Steps: map[string]plan.Result{"a": {Status: "SUCCESS", Output: json.RawMessage(`[{"n": ` + large + `}]`)}}},
		"error":  {Input: json.RawMessage(`{"n": 2}`), Steps: map[string]plan.Result{"a": {Status: "FAILED", Error: json.RawMessage(`{"n": ` + large + `}`)}}},
	} {
		_, held := s.Holds(p, d)
		_, made := s.Resolve(p, "with", d)
		for _, err := range []error{held, made} {
			if _, ok := errors.AsType[*plan.ConditionError](err); !ok || len(err.Error()) > 200 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	a := parse(t, withSteps("a: {kind: sleep, for: 1s}", "b: {kind: go, handler: h, retry: {attempts: 2}}"))
	b := parse(t, withSteps("c: {kind: sleep, for: 1s}", "b: {kind: go, handler: h, retry: {attempts: 3}}"))
	var got []string
	for _, d := range plan.Diff(a, b) {
		got = append(got, d.String())
	}
	want := "- steps.a: {\"for\":\"1s\",\"kind\":\"sleep\"}\n~ steps.b.retry.attempts: 2 -> 3\n+ steps.c: {\"for\":\"1s\",\"kind\":\"sleep\"}"
	if strings.Join(got, "\n") != want {
		t.Error(strings.Join(got, "\n"))
	}
}

// The order of steps is a part of the hash, and so it is a difference.
func TestDiff_TheOrderOfSteps(t *testing.T) {
	t.Parallel()
	a := parse(t, withSteps("a: {kind: sleep, for: 1s}", "b: {kind: sleep, for: 1s}"))
	for want, b := range map[string]*plan.Plan{
		"":                                       parse(t, withSteps("a: {kind: sleep, for: 1s}", "b: {kind: sleep, for: 1s}")),
		`~ steps: ["a","b"] -> ["b","a"]`:        parse(t, withSteps("b: {kind: sleep, for: 1s}", "a: {kind: sleep, for: 1s}")),
		`+ steps.c: {"for":"1s","kind":"sleep"}`: parse(t, withSteps("c: {kind: sleep, for: 1s}", "a: {kind: sleep, for: 1s}", "b: {kind: sleep, for: 1s}")),
		"+ steps.c: {\"for\":\"1s\",\"kind\":\"sleep\"} ~ steps: [\"a\",\"b\"] -> [\"b\",\"c\",\"a\"]": parse(t, withSteps("b: {kind: sleep, for: 1s}", "c: {kind: sleep, for: 1s}", "a: {kind: sleep, for: 1s}")),
	} {
		var got []string
		for _, d := range plan.Diff(a, b) {
			got = append(got, d.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

// How large a value may be is measured of what is computed, whatever stands beside it; and all that is computed under a key is bounded.
func TestStep_ResolveIsBounded(t *testing.T) {
	t.Parallel()
	literal := strings.Repeat("x", 70<<10)
	d := plan.Data{Input: json.RawMessage(`{"n": 3, "s": "` + strings.Repeat("s", 60<<10) + `", "html": "` + strings.Repeat("<p>", 15<<10) + `"}`)}
	for text, want := range map[string]string{
		`{x: "` + literal + `", y: "${input.n}"}`:              "",
		`{x: "` + literal + ` ${input.n}"}`:                    "",
		`{x: ["${input.s}", "${input.s}"]}`:                    "",
		`{x: "${input.html}"}`:                                 "",
		`{x: "${input.s + input.s}"}`:                          "the value is over 65536 bytes",
		`{x: "it is ${input.s + input.s}"}`:                    "the value is over 65536 bytes",
		`{x: "` + strings.Repeat("${input.s}", 30) + `"}`:      "the values are over 1048576 bytes in all",
		`{x: [` + strings.Repeat(`"${input.s}", `, 30) + `1]}`: "the values are over 1048576 bytes in all",
	} {
		p, s := asking(t, "with: "+text)
		got, err := s.Resolve(p, "with", d)
		_, condition := errors.AsType[*plan.ConditionError](err)
		if condition != (want != "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && !json.Valid(got) {
			t.Errorf("%.40s: %d bytes, %v, want %q", text, len(got), err, want)
		}
	}
}
