package plan_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed/run/plan"
)

// manyNames is a plan of 900 steps, one of which asks n times about one that is not there.
func manyNames(n int) string {
	var b strings.Builder
	for i := range 900 {
		fmt.Fprintf(&b, "bbcdefghijklmnop%04d: {kind: sleep, for: 1s}\n  ", i)
	}
	return withSteps(b.String() + `z: {kind: go, handler: h, with: {x: [` + strings.Repeat(`"${steps.bbcdefghijklmnop9999}",`, n) + `]}}`)
}

// What is wrong with a plan is said of so many places as a person reads, and compared with all names for a few: an engine, too, reads plans that nobody has checked.
func TestParse_ManyUnknownNames(t *testing.T) {
	t.Parallel()
	_, err := plan.Parse("p.yaml", []byte(manyNames(4900)))
	if err == nil {
		t.Fatal("it is no plan")
	}
	text := err.Error()
	if n := strings.Count(text, "did you mean"); n != 10 {
		t.Errorf("%d names are proposed, want 10", n)
	}
	if n := strings.Count(text, `no step is called "bbcdefghijklmnop9999"`); n != 100 || len(text) > 20_000 || !strings.HasSuffix(text, "\nand 4800 more problems") {
		t.Errorf("%d problems are said, in %d bytes that end with %q", n, len(text), text[max(0, len(text)-100):])
	}
	// However long the names are that stand before what is wrong.
	_, err = plan.Parse("p.yaml", []byte(`{"plan": "p", "version": "1", "steps": {"a": {"kind": "go", "handler": "h", "with": {"`+strings.Repeat("x", 100_000)+`": [`+strings.Repeat(`"${nope}",`, 199)+`"${nope}"]}}}}`))
	if err == nil || len(err.Error()) > 50_000 || strings.Count(err.Error(), "undeclared reference to 'nope'") != 100 {
		t.Errorf("%d bytes", len(fmt.Sprint(err)))
	}
}

// Of the steps that it asks about a step has nothing read but what it asks for.
func TestStep_ResolveOfManyOutputs(t *testing.T) {
	t.Parallel()
	const n = 999
	var steps, after, status strings.Builder
	d := plan.Data{Steps: map[string]plan.Result{}}
	unread := json.RawMessage(strings.Repeat("no JSON: who reads it says so. ", 500))
	for i := range n {
		fmt.Fprintf(&steps, "s%d: {kind: sleep, for: 1s}\n  ", i)
		fmt.Fprintf(&after, "s%d,", i)
		fmt.Fprintf(&status, `"${steps.s%d.status}",`, i)
		d.Steps[fmt.Sprint("s", i)] = plan.Result{Status: "SUCCESS", Output: unread, Error: unread}
	}
	p := parse(t, withSteps(steps.String()+"z: {kind: go, handler: h, after: ["+after.String()+"], with: {x: ["+status.String()+"]}}"))
	got, err := p.Step("z").Resolve(p, "with", d)
	if err != nil || strings.Count(string(got), `"SUCCESS"`) != n {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}

// What one step is asked is decoded once, and of it what that step asks for: of another one it is decoded anew.
func TestData_Once(t *testing.T) {
	t.Parallel()
	p := parse(t, withSteps("a: {kind: sleep, for: 1s}", `b: {kind: http, after: [a], when: "steps.a.status == 'SUCCESS'", url: "https://h/${input.n}", headers: {k: "${secrets.k}"}, secrets: {k: "secret://k"}}`, `c: {kind: go, handler: h, after: [a], with: {x: "${steps.a.output}"}}`))
	d := plan.Data{Input: json.RawMessage(`{"n": 1}`), Steps: map[string]plan.Result{"a": {Status: "SUCCESS", Output: json.RawMessage("7")}}}.Once()
	if holds, err := p.Step("b").Holds(p, d); err != nil || !holds {
		t.Fatal(holds, err)
	}
	input := d.Input[0]
	d.Input[0] = '!' // no JSON: who decodes it anew says so
	if url, err := p.Step("b").Resolve(p, "url", d); string(url) != `"https://h/1"` || err != nil {
		t.Errorf("%s, %v", url, err)
	}
	d.Secrets = map[string]string{"k": "s3"} // resolved later than all else
	if headers, err := p.Step("b").Resolve(p, "headers", d); string(headers) != `{"k":"s3"}` || err != nil {
		t.Errorf("%s, %v", headers, err)
	}
	if got, err := p.Step("c").Resolve(p, "with", d); err == nil {
		t.Errorf("another step: %s", got)
	}
	d.Input[0] = input
	if got, err := p.Step("c").Resolve(p, "with", d); string(got) != `{"x":7}` || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}
