package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed/run/plan"
)

// several is n of s as they stand in a list.
func several(s string, n int) string { return strings.TrimSuffix(strings.Repeat(s+", ", n), ", ") }

// amply is input of which an expression can make much.
var amply = plan.Data{Input: json.RawMessage(fmt.Sprintf(`{"n": 1, "short": %q, "s": %q, "t": %q, "deep": {"a": [%s]}, "items": [%s], "few": [%s], "wide": [%s]}`,
	strings.Repeat("x", 1<<10), strings.Repeat("x", 32<<10), strings.Repeat("x", 32<<10), several(`{"b": "c"}`, 60), several(`"i"`, 3000), several(`"i"`, 1000), several("1", 20000)))}

// What an expression makes, compares and looks through is paid for, whatever its types and however little is written. CEL's own limit has room
// for each of these, and for those a few letters longer, which take all memory or a core for good.
func TestPlan_AnExpressionCostsWhatItDoes(t *testing.T) {
	t.Parallel()
	eight := ".map(a, a" + strings.Repeat(" + a", 7) + ")"
	inside := func(list, what string) string {
		return "[input.n].all(x, " + strings.Repeat(list+".all(x, ", 7) + what + strings.Repeat(")", 8)
	}
	for _, text := range []string{
		"[input.short]" + strings.Repeat(eight, 5) + "[0].size() > 0",
		"[bytes(input.short)]" + strings.Repeat(eight, 5) + "[0].size() > 0",
		"9 in [[1]]" + strings.Repeat(eight, 7) + "[0]",
		"[[1]]" + strings.Repeat(eight, 7) + "[0] == [2]",
		"[dyn(1)]" + strings.Repeat(".map(a, dyn([a, a]))", 20) + " == [dyn(2)]",
		"[dyn(1)]" + strings.Repeat(".map(a, dyn({'a': a, 'b': a}))", 20) + " == [dyn(2)]",
		"[dyn([1])]" + strings.Repeat(".map(a, dyn(a + [a]))", 20) + " == [dyn(2)]",
		inside("[[x, x, x, x, x, x, x, x]]", "x == x"),
		inside("[{'a': x, 'b': x, 'c': x, 'd': x, 'e': x, 'f': x, 'g': x, 'h': x}]", "x == x"),
		inside("[[x, x, x, x, x, x, x, x]]", "google.protobuf.Value{list_value: x} != null"),
		"input.items.map(i, input.s + i).size() > 0",
		"input.items.map(i, bytes(input.s)).size() > 0",
		"input.items.all(i, size(input.s) > 0)",
		"input.items.all(i, input.s <= input.t)",
		"input.items.all(i, [input.s] == [input.t])",
		"input.items.all(i, input.deep == input.deep)",
		"input.items.all(i, !(2 in input.wide))",
		"input.wide" + strings.Repeat(" + [1]", 40) + " == input.wide" + strings.Repeat(" + [1]", 40),
		"'x'.matches('" + strings.Repeat("x{0,1000}", 120) + "')",
		"input.s.matches('(x{1,9}){1,99}y')",
	} {
		p, s := asking(t, `when: "`+text+`"`)
		_, err := s.Holds(p, amply)
		if _, ok := errors.AsType[*plan.ConditionError](err); !ok || !strings.Contains(err.Error(), "cost limit exceeded") {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

// What a plan ordinarily asks costs no more than it did.
func TestStep_HoldsOfMuch(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"input.items.map(i, 'item ' + i).size() == 3000",
		"input.few.map(i, {'name': i, 'of': input.n}).size() == 1000",
		"input.items.filter(i, i != 'x').size() == 3000",
		"input.items.filter(i, i.matches('^[a-z]+@?$')).size() == 3000",
		"input.items.all(i, i in ['i', 'j', 'k'])",
		"input.few.all(i, input.wide != [] && 'a' in input.deep && input.deep != {})",
		"input.deep.a.map(i, input.deep.a.map(j, i == j).size()) != []",
		"1 in input.wide && input.s.startsWith('x') && input.s.size() > 100 && input.s.matches('^x+$') && !input.s.contains('y')",
		"(input.items + [1]) + [2] != input.items",
		"input.short.matches('^.{1,500}') && input.few.all(i, i.matches('^[a-z]{1,80}$'))",
	} {
		p, s := asking(t, `when: "`+text+`"`)
		if holds, err := s.Holds(p, amply); err != nil || !holds {
			t.Errorf("%s: %t %v", text, holds, err)
		}
	}
}

// Nor does the type of an expression cost more: each of these maps in maps is twice as large as the one before, and thirty took the compiler years.
func TestPlan_AnExpressionIsCompiled(t *testing.T) {
	t.Parallel()
	const want = "p:4: steps.c.when: at most 4 maps may have keys that are computed of the variable of a macro"
	for n, refused := range map[int]bool{4: false, 5: true, 30: true} {
		for _, key := range []string{"a", "[a][0]"} {
			_, err := plan.Parse("p", []byte(withSteps(`c: {kind: go, handler: h, when: "[1]`+strings.Repeat(".map(a, {"+key+": a})", n)+` != []"}`)))
			if (err != nil) != refused || refused && !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%d of %s: %v", n, key, err)
			}
		}
	}
	parse(t, withSteps(`c: {kind: go, handler: h, when: "`+strings.Repeat("{input.a: 1, 'b': input.list.map(b, b)} != {} && ", 6)+`true"}`))
}

// Many expressions under one key have no more than some.
func TestStep_ResolveCostsNoMore(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{10: "", 40: "the values cost over 1000000 in all"} {
		p, s := asking(t, "with: {x: ["+several(`"${input.wide.all(i, true)}"`, n)+"]}")
		_, err := s.Resolve(p, "with", amply)
		_, condition := errors.AsType[*plan.ConditionError](err)
		if condition != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", n, err, want)
		}
	}
}
