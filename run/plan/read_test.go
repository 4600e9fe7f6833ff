package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/run/plan"
)

const shipOrder = `
plan: ship-order
version: "3"
on_failure: {hold: 24h}
params: {currency: EUR}
steps:
  charge: {kind: go, handler: charge, with: {order: "${input.order}"}, secrets: {key: "secret://psp"}, retry: {attempts: 5, backoff: 2s}, timeout: 30s}
  tell:   {kind: publish, after: [charge], topic: orders, key: "${input.order}", payload: {paid: true}}
  mail:   {kind: deliver, after: [charge], when: "steps.charge.output.amount > 0", channel: email, provider: mail, to: "${input.email}", payload: {subject: Paid}, wait: sent}
  close:  {kind: http, after: [tell, mail], needs: done, method: POST, url: "https://shop.example/close", guarantee: at_most_once}
  work:   {kind: external, queue: gpu, with: {n: 1}}
  rest:   {kind: sleep, for: 24h}
`

func parse(t testing.TB, text string) *plan.Plan {
	t.Helper()
	p, err := plan.Parse("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// withSteps is a plan of such steps, each a line that begins with line 4.
func withSteps(lines ...string) string {
	return "plan: p\nversion: \"1\"\nsteps:\n  " + strings.Join(lines, "\n  ") + "\n"
}

func TestParse(t *testing.T) {
	t.Parallel()
	p := parse(t, shipOrder)
	var got []string
	for _, s := range p.Steps {
		got = append(got, fmt.Sprintf("%s %s %v %t %d %s %s %t", s.ID, s.Kind, s.After, s.NeedsSuccess, s.Attempts, s.Backoff, s.Timeout, s.AtMostOnce))
	}
	want := []string{
		"charge go [] true 5 2s 30s false", "tell publish [charge] true 1 1s 0s false", "mail deliver [charge] true 1 1s 0s false",
		"close http [tell mail] false 1 1s 0s true", "work external [] true 1 1s 0s false", "rest sleep [] true 1 1s 0s false",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if p.ID != "ship-order" || p.Version != "3" || p.Hold.Hours() != 24 || p.Approval || !p.Step("mail").WaitSent || p.Step("nobody") != nil {
		t.Errorf("%+v", p)
	}
	if d := cmp.Diff(map[string]string{"key": "secret://psp"}, p.Step("charge").Secrets); d != "" {
		t.Error(d)
	}
}

// All problems at once, in the order of their lines.
func TestParse_ErrAllAtOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"empty":     {"", "p.yaml:1: the file is empty; a plan has plan, version and steps"},
		"a list":    {"[1]", "p.yaml:1: want a mapping with keys such as plan, version and steps, got a list"},
		"no steps":  {"plan: p\nversion: \"1\"\nsteps: {}", "p.yaml:3: steps: a plan has a step at least"},
		"a version": {"plan: p\nversion: 3\nsteps: {a: {kind: sleep, for: 1s}}", "p.yaml:2: version: want text, got a whole number; put it in quotes"},
		"twice":     {"{\"plan\": \"p\",\n\"version\": \"1\",\n\"plan\": \"q\",\n\"steps\": {\"a\": {\"kind\": \"sleep\", \"for\": \"1s\"}}}", "p.yaml:3: plan: given twice; the first time in line 1"},
		"a NUL":     {"{\"plan\": \"p\", \"version\": \"1\",\n\"steps\": {\"a\": {\"kind\": \"go\", \"handler\": \"h\", \"with\": {\"x\": \"\\u0000\"}}}}", "p.yaml:2: steps.a.with.x: no text may have a NUL in it: the database cannot keep it"},
		"keys": {
			withSteps("a: {kind: go, handlr: x}", "b: {kind: gp, afer: [a]}", "c: {kind: sleep}", "d: {kind: sleep, for: 1h, until: x, secrets: {a: b}}", "RUN: {kind: sleep, for: 1}", "e: {}"),
			"p.yaml:4: steps.a: a step of kind go has handler\n" +
				"p.yaml:4: steps.a.handlr: unknown key (did you mean \"handler\"?)\n" +
				"p.yaml:5: steps.b.kind: \"gp\" is none of go, http, publish, deliver, external, sleep (did you mean \"go\"?)\n" +
				"p.yaml:6: steps.c: a step of kind sleep has for: 24h or until: a time, one of them\n" +
				"p.yaml:7: steps.d: a step of kind sleep has for: 24h or until: a time, one of them\n" +
				"p.yaml:7: steps.d.secrets: unknown key\n" +
				"p.yaml:8: steps.RUN: a step's name is 1 to 100 of A-Z a-z 0-9 _ -, begins with a letter or _, and is not RUN\n" +
				"p.yaml:8: steps.RUN.for: 1 has no unit; write it as 30s, 5m or 1h30m\n" +
				"p.yaml:9: steps.e: the step has no kind; there are go, http, publish, deliver, external, sleep",
		},
		"references": {
			withSteps("charge: {kind: sleep, for: 1s}", "b: {kind: sleep, for: 1s, after: [chrage]}", "c: {kind: sleep, for: 1s, after: [charge, charge]}"),
			"p.yaml:5: steps.b.after: no step is called \"chrage\" (did you mean \"charge\"?)\np.yaml:6: steps.c.after: \"charge\" is named twice",
		},
		"a circle": {
			withSteps("z: {kind: sleep, for: 1s}", "a: {kind: sleep, for: 1s, after: [z, c]}", "b: {kind: sleep, for: 1s, after: [a]}", "c: {kind: sleep, for: 1s, after: [b]}"),
			"p.yaml:5: steps.a.after: the steps wait for each other: a after c after b after a",
		},
		"lines of a list": {
			withSteps("a:", "  kind: sleep", "  for: 1s", "  after:", "    - b", "    - c", "b: {kind: sleep, for: 1s}", "d:", "  kind: sleep", "  for: 1s", "  after:", "    - b", "    - e", "e: {kind: sleep, for: 1s, after: [d]}"),
			"p.yaml:9: steps.a.after: no step is called \"c\" (did you mean \"a\"?)\np.yaml:16: steps.d.after: the steps wait for each other: d after e after d",
		},
		"circles and more": {
			withSteps("a: {kind: sleep, for: 1s, after: [b]}", "b: {kind: sleep, for: 1s, after: [a]}", "c: {kind: sleep, for: 1s, after: [d, a]}", "d: {kind: sleep, for: 1s, after: [c, d]}", "e: {kind: go, handler: h, when: \"steps.nope.output == steps.a.output\"}"),
			"p.yaml:4: steps.a.after: the steps wait for each other: a after b after a\np.yaml:6: steps.c.after: the steps wait for each other: c after d after c\np.yaml:8: steps.e.when: no step is called \"nope\"",
		},
		"a kind that is not there": {
			withSteps("a: {kind: sleep, for: 1s}", "b: {after: [a], timeout: 1}", "c: {kind: og, after: [b, a, nope], when: \"steps.nobody.status == 'x'\"}", "d: {kind: go, handler: h, after: [c], when: \"steps.a.status == 'SUCCESS'\"}"),
			"p.yaml:5: steps.b: the step has no kind; there are go, http, publish, deliver, external, sleep\n" +
				"p.yaml:5: steps.b.timeout: 1 has no unit; write it as 30s, 5m or 1h30m\n" +
				"p.yaml:6: steps.c.kind: \"og\" is none of go, http, publish, deliver, external, sleep (did you mean \"go\"?)\n" +
				"p.yaml:6: steps.c.after: no step is called \"nope\"\n" +
				"p.yaml:6: steps.c.when: no step is called \"nobody\"",
		},
		"a step that is empty": {
			withSteps("a:", "b: {kind: go, handler: h, after: [a], when: \"steps.a.status == 'SUCCESS'\"}", "c: 1"),
			"p.yaml:4: steps.a: has no value\np.yaml:6: steps.c: want a mapping, got a whole number",
		},
		"tags that lie": {
			withSteps("a: {kind: go, handler: h, with: {b: !!bool maybe, c: !!bool '1.50'}}", "b: {kind: go, handler: h, with: {b: !!bool '1},\"when\":\"false\"'}}", "c: {kind: go, handler: h, with: {i: !!int x1, f: !!float hunter2, n: !!null hunter2}}"),
			"p.yaml:4: steps.a.with.b: not true or false\np.yaml:4: steps.a.with.c: not true or false\np.yaml:5: steps.b.with.b: not true or false\n" +
				"p.yaml:6: steps.c.with.i: not a whole number\np.yaml:6: steps.c.with.f: not a number\np.yaml:6: steps.c.with.n: not null",
		},
		"itself": {withSteps("a: {kind: sleep, for: 1s, after: [a]}"), "p.yaml:4: steps.a.after: the steps wait for each other: a after a"},
		"expressions": {
			withSteps("a: {kind: sleep, for: 1s}", "b: {kind: go, handler: h, after: [a], when: \"1 +\"}", "c: {kind: go, handler: h, when: \"steps.a.status == 'SUCCESS'\"}",
				"d: {kind: go, handler: h, after: [a], when: \"steps.a.outptu == 1\"}", "e: {kind: go, handler: h, after: [a], when: \"'x'\"}",
				"f: {kind: go, handler: h, with: {x: [\"${input.n\"]}}", "g: {kind: go, handler: h, with: {x: \"${nothing}\"}}", "h: {kind: go, handler: h, when: \"steps.size() > 1\"}",
				"i: {kind: go, handler: h, when: \"steps['b'].status == 'x' && steps['nope'].status == 'x' && steps.i.status == 'x'\"}"),
			"p.yaml:5: steps.b.when: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n" +
				"p.yaml:6: steps.c.when: step \"a\" need not have ended by then: name it in after\n" +
				"p.yaml:7: steps.d.when: a step has status, output, error, and no outptu (did you mean \"output\"?)\n" +
				"p.yaml:8: steps.e.when: it is string; a condition is true or false\n" +
				"p.yaml:9: steps.f.with.x: a ${ is not closed; write $${ for a ${ that is meant as such\n" +
				"p.yaml:10: steps.g.with.x: undeclared reference to 'nothing'\n" +
				"p.yaml:11: steps.h.when: steps is followed by the name of one: steps.NAME.output\n" +
				"p.yaml:12: steps.i.when: the step asks about itself\n" +
				"p.yaml:12: steps.i.when: step \"b\" need not have ended by then: name it in after\n" +
				"p.yaml:12: steps.i.when: no step is called \"nope\"",
		},
		"hosts": {
			withSteps("a: {kind: http, url: \"file:///etc/passwd\"}", "b: {kind: http, url: \"https://${input.host}/x\"}", "c: {kind: http, url: \"https://u:p@h/x\"}", "d: {kind: http, url: \"https://h/${input.x}\"}",
				"e: {kind: http, url: \"https://h:${input.port}/\"}", "f: {kind: http, url: \"https://h/${input.x}%zz\"}", "g: {kind: http, url: \"https://u@h?x=${input.x}\"}", "h: {kind: http, url: \"ftp://${input.x}\"}"),
			"p.yaml:4: steps.a.url: want http://… or https://…, without a user and a password\n" +
				"p.yaml:5: steps.b.url: the host is written out: only what comes after it may be computed\n" +
				"p.yaml:6: steps.c.url: want http://… or https://…, without a user and a password\n" +
				"p.yaml:8: steps.e.url: the host is written out: only what comes after it may be computed\n" +
				"p.yaml:9: steps.f.url: want http://… or https://…, without a user and a password\n" +
				"p.yaml:10: steps.g.url: want http://… or https://…, without a user and a password\n" +
				"p.yaml:11: steps.h.url: want http://… or https://…, without a user and a password",
		},
		"headers": {
			withSteps("a:", "  kind: http", "  url: \"https://h/\"", "  headers:", "    x-a: 1", "    x-b: \"1\"", "    X-B: \"2\"", "    x-B: \"3\"",
				"b: {kind: http, url: \"https://h/\", headers: {\"x y\": a, \"\": b, \"x:\": c, \"é\": d}}",
				"c: {kind: http, url: \"https://h/\", headers: {Host: a, content-length: \"1\", Transfer-Encoding: chunked, trailer: a, Connection: close, upgrade: h2c, accept: a, Content-Type: a}}",
				"d: {kind: publish, topic: t, payload: 1, headers: {host: a, \"x y\": b}}"),
			"p.yaml:8: steps.a.headers.x-a: want text, got a whole number; put it in quotes\n" +
				"p.yaml:10: steps.a.headers.X-B: given twice, as the case of letters does not count; the first time in line 9\n" +
				"p.yaml:11: steps.a.headers.x-B: given twice, as the case of letters does not count; the first time in line 9\n" +
				"p.yaml:12: steps.b.headers.x y: no header can have this name\n" +
				"p.yaml:12: steps.b.headers.\"\": no header can have this name\n" +
				"p.yaml:12: steps.b.headers.x:: no header can have this name\n" +
				"p.yaml:12: steps.b.headers.é: no header can have this name\n" +
				"p.yaml:13: steps.c.headers.Host: a request has it of its URL, its body or its connection: it cannot be chosen\n" +
				"p.yaml:13: steps.c.headers.content-length: a request has it of its URL, its body or its connection: it cannot be chosen\n" +
				"p.yaml:13: steps.c.headers.Transfer-Encoding: a request has it of its URL, its body or its connection: it cannot be chosen\n" +
				"p.yaml:13: steps.c.headers.trailer: a request has it of its URL, its body or its connection: it cannot be chosen\n" +
				"p.yaml:13: steps.c.headers.Connection: a request has it of its URL, its body or its connection: it cannot be chosen\n" +
				"p.yaml:13: steps.c.headers.upgrade: a request has it of its URL, its body or its connection: it cannot be chosen",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := plan.Parse("p.yaml", []byte(tt.text))
			if err == nil || deed.CodeOf(err) != deed.Invalid {
				t.Fatal(err)
			}
			if d := cmp.Diff("deed: read plan: "+tt.want, err.Error()); d != "" {
				t.Error(d)
			}
		})
	}
}

// A URL that is written out up to its path, its query or its fragment is sound, whatever the expressions in it are.
func TestParse_URLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"https://h", "https://h/${input.n % 4}", "https://h?order=${input.o}", "https://h/%${input.hex}", "https://h#${input.o}", "http://h:80/${'}' + \"{\"}/$${x}?${input.a}=${input['b']}",
		"https://[::1]/${input.a ? '://' : '%'}",
	} {
		p, err := plan.Parse("p", []byte(fmt.Sprintf(`{"plan": "p", "version": "1", "steps": {"a": {"kind": "http", "url": %q}}}`, url)))
		if err != nil || p.Steps[0].Kind != plan.HTTP {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestParse_ErrBounds(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			after := ""
			if i > 0 {
				after = fmt.Sprintf(", after: [s%d]", i-1)
			}
			fmt.Fprintf(&b, "s%d: {kind: sleep, for: 1s%s}\n  ", i, after)
		}
		return withSteps(b.String())
	}
	parse(t, many(plan.MaxSteps))
	if _, err := plan.Parse("p", []byte(many(plan.MaxSteps+3))); err == nil || strings.Count(err.Error(), "a plan has at most 1000 steps") != 1 {
		t.Error(err)
	}
	large := withSteps("a: {kind: go, handler: h, with: {x: " + strings.Repeat("x", plan.MaxBytes) + "}}")
	if _, err := plan.Parse("p", []byte(large)); err == nil || !strings.Contains(err.Error(), "larger than 262144 bytes") {
		t.Error(err)
	}
	// Larger as JSON than as it is written.
	large = withSteps("a: {kind: go, handler: h, with: {x: [" + strings.Repeat("x,", 100_000) + "]}}")
	if _, err := plan.Parse("p", []byte(large)); err == nil || !strings.Contains(err.Error(), "as JSON the plan has") {
		t.Error(err)
	}
	computed := func(n int) string {
		return withSteps("a: {kind: go, handler: h, with: {x: ["+strings.Repeat("'${1}',", n-1)+"1]}}", "b: {kind: go, handler: h, when: 'true'}", "c: {kind: go, handler: h}")
	}
	parse(t, computed(5000))
	if _, err := plan.Parse("p", []byte(computed(30_000))); err == nil || !strings.Contains(err.Error(), "p:4: steps.a.with.x: a plan has at most 5000 expressions") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	long := withSteps("a: {kind: go, handler: h, when: \"" + strings.Repeat("true && ", 600) + "true\"}")
	if _, err := plan.Parse("p", []byte(long)); err == nil || !strings.Contains(err.Error(), "at most 4096 are possible") {
		t.Error(err)
	}
}

// It is known what of other steps a step asks for: all of it, where that cannot be told.
func TestParse_Uses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]plan.Use{
		"steps.a.status":                                 {Step: "a"},
		"steps['a']['status']":                           {Step: "a"},
		"steps.a.output.n == 1":                          {Step: "a", Output: true},
		"steps.a['output']":                              {Step: "a", Output: true},
		"has(steps.a.error) || steps.a.status == 'x'":    {Step: "a", Error: true},
		"steps.a.output == 1 ? steps.a.error.code : 'x'": {Step: "a", Output: true, Error: true},
		"steps.a":                                            {Step: "a", Output: true, Error: true},
		"[steps.a].map(s, s.output)":                         {Step: "a", Output: true, Error: true},
		"[steps['a'], steps.a.status].size()":                {Step: "a", Output: true, Error: true},
		"steps.a[input.field]":                               {Step: "a", Output: true, Error: true},
		"'output' in steps.a":                                {Step: "a", Output: true, Error: true},
		"steps.a['other']":                                   {Step: "a", Output: true, Error: true},
		"[1].map(x, [2].map(y, steps.a.output.list[x]))":     {Step: "a", Output: true},
		"steps.a.status == 'SUCCESS' && input.steps.a.n > 1": {Step: "a"},
	} {
		p := parse(t, withSteps("a: {kind: sleep, for: 1s}", "b: {kind: go, handler: h, after: [a], with: {x: \"${"+text+"}\"}}"))
		if d := cmp.Diff([]plan.Use{want}, p.Steps[1].Uses); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}

// A plan holds references to secrets, and what should have been one is not repeated.
func TestContract_R9_PlanHasNoSecrets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"secrets: {key: hunter2}", "secrets: {key: \"secret://\"}", "with: {key: \"secret://hunter2\"}"} {
		_, err := plan.Parse("p", []byte(withSteps("a: {kind: go, handler: h, "+text+"}")))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A secret's value is asked for in a request's headers and body, and nowhere else: all else is stored, or told.
func TestContract_R9_WhereSecretsAreAskedFor(t *testing.T) {
	t.Parallel()
	p := parse(t, withSteps(`a: {kind: http, url: "https://shop.example/", headers: {authorization: "Bearer ${secrets.key}"}, body: {k: "${secrets['key']}"}, secrets: {key: "secret://psp"}}`))
	got, err := p.Steps[0].Resolve(p, "headers", plan.Data{Secrets: map[string]string{"key": "s3"}})
	if err != nil || string(got) != `{"authorization":"Bearer s3"}` {
		t.Errorf("%s, %v", got, err)
	}
	for _, text := range []string{
		`a: {kind: http, url: "https://shop.example/${secrets.key}", secrets: {key: "secret://psp"}}`,
		`a: {kind: http, url: "https://shop.example/", when: "secrets.key == 'x'", secrets: {key: "secret://psp"}}`,
		`a: {kind: http, url: "https://shop.example/", body: "${secrets}", secrets: {key: "secret://psp"}}`,
		`a: {kind: http, url: "https://shop.example/", body: "${secrets.other}", secrets: {key: "secret://psp"}}`,
		`a: {kind: go, handler: h, with: {k: "${secrets.key}"}, secrets: {key: "secret://psp"}}`,
		`a: {kind: publish, topic: x, payload: "${secrets.key}"}`,
	} {
		if _, err := plan.Parse("p", []byte(withSteps(text))); err == nil || !strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The same plan is the same bytes, in YAML and in JSON, however it is laid out; the order of
// steps is part of it.
func TestPlan_SHA256(t *testing.T) {
	t.Parallel()
	yaml := parse(t, shipOrder)
	again := parse(t, string(yaml.Body()))
	if d := cmp.Diff(string(yaml.Body()), string(again.Body())); d != "" || string(yaml.SHA256()) != string(again.SHA256()) {
		t.Error(d)
	}
	other := parse(t, "# said\nversion: '3'\nplan: 'ship-order'\n"+strings.SplitN(shipOrder, "\n", 4)[3])
	if string(other.SHA256()) != string(yaml.SHA256()) {
		t.Errorf("the order of keys is part of the hash:\n%s\n%s", yaml.Body(), other.Body())
	}
	a, b := parse(t, withSteps("a: {kind: sleep, for: 1s}", "b: {kind: sleep, for: 1s}")), parse(t, withSteps("b: {kind: sleep, for: 1s}", "a: {kind: sleep, for: 1s}"))
	if string(a.SHA256()) == string(b.SHA256()) {
		t.Error("the order of steps is no part of the hash")
	}
	tagged := parse(t, withSteps("a: {kind: go, handler: h, with: {b: [!!bool 'TRUE', FALSE, !!bool false], i: !!int '0x10', f: !!float 1, n: [!!null '', ~, Null], s: !!str true}}"))
	if got, want := string(tagged.Body()), `{"b":[true,false,false],"f":1,"i":16,"n":[null,null,null],"s":"true"}`; !strings.Contains(got, want) {
		t.Error(got)
	}
	want := `{"plan":"p","steps":{"a":{"kind":"go","handler":"h","with":{"f":1.5,"i":-3,"s":"<é> \"","t":true,"u":18446744073709551615}}},"version":"1"}`
	if got := string(parse(t, withSteps(`a: {kind: go, with: {s: '<é> "', i: -3, u: 18446744073709551615, t: True, f: 1.50}, handler: h}`)).Body()); got != strings.Replace(want, `"kind":"go","handler":"h"`, `"handler":"h","kind":"go"`, 1) {
		t.Error(got)
	}
}

// Whatever it is given, the reader ends without a panic, and what it takes it takes again as
// it writes it, to the byte.
func FuzzParse(f *testing.F) {
	f.Add([]byte(shipOrder))
	f.Add([]byte(`{"plan": "p", "version": "1", "steps": {"a": {"kind": "go", "handler": "h", "with": {"x": "${input.a + 'b}'}$${"}}}}`))
	f.Add([]byte(withSteps("a: {kind: http, url: \"http://h/${input.x}\", body: [1, 2.5, null, {}]}", "b: {kind: sleep, until: \"${steps.a.output}\", after: [a]}")))
	f.Add([]byte(`{"plan": "p", "version": "1", "steps": {"a": {"kind": "go", "handler": "h", "with": {"x": [-0.0, -1e-400, -0, 1e20]}}}}`))
	f.Add([]byte("plan: &a p\nversion: *a\nsteps: {<<: {}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := plan.Parse("p", data)
		if err != nil {
			return
		}
		again, err := plan.Parse("p", p.Body())
		if err != nil {
			t.Fatalf("%s: %s", p.Body(), err)
		}
		if string(again.Body()) != string(p.Body()) {
			t.Fatalf("%s\n%s", p.Body(), again.Body())
		}
	})
}
