package liquid_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deedhq/deed/campaign/liquid"
)

// attack puts a large array, items, a text of 64 KiB, big, and a thousand texts, words,
// before a template.
func attack(source string) string {
	return `{% assign big = "0123456789abcdef" %}` + strings.Repeat(`{% assign big = big | append: big %}`, 12) +
		`{% assign words = big | slice: 0, 1000 | split: "" %}` + strings.ReplaceAll(source, "in items", "in words")
}

// No template takes long, allocates much or panics, whoever wrote it. The bounds are wide
// for machines that do other work; without limits each of these takes minutes or all of
// the memory, but for the few that are noted.
func TestAttacks_AreBounded(t *testing.T) {
	loops := func(body string) string {
		return attack(`{% for a in items %}{% for b in items %}` + body + `{% endfor %}{% endfor %}`)
	}
	many := func(n int, piece string) string { return strings.Repeat(piece, n) }
	for name, source := range map[string]string{
		"append doubles":          `{% assign x = "0123456789" %}` + many(60, `{% assign x = x | append: x %}`),
		"prepend doubles":         `{% assign x = "0123456789" %}` + many(60, `{% assign x = x | prepend: x %}`),
		"capture doubles":         `{% assign x = "0123456789" %}` + many(60, `{% capture y %}{{ x }}{{ x }}{% endcapture %}{% assign x = y %}`),
		"replace multiplies":      attack(`{{ big | replace: "0", big }}`),
		"replace nothing":         attack(`{{ big | replace: "", big }}`),
		"replace_first grows":     attack(many(40, `{% assign big = big | replace_first: "0", big %}`)),
		"split and join":          attack(`{% assign w = big | split: "" %}{{ w | join: big }}`),
		"join of large":           attack(`{{ words | join: big }}`),
		"concat doubles":          attack(many(60, `{% assign words = words | concat: words %}`)),
		"escape grows":            attack(`{% assign x = "<<<<<<<<" %}` + many(13, `{% assign x = x | append: x %}`) + `{% assign x = x | escape %}`),
		"url_encode grows":        attack(`{% assign x = "<<<<<<<<" %}` + many(13, `{% assign x = x | append: x %}`) + `{% assign x = x | url_encode %}`),
		"many variables":          attack(manyVariables()),
		"loop in loop":            loops(``),
		"loop writes":             loops(`x`),
		"loop writes data":        loops(`{{ big }}`),
		"loop captures":           loops(`{% capture c %}{{ big }}{% endcapture %}`),
		"loop of upcase":          loops(`{% assign c = big | upcase %}`),
		"loop of replace":         loops(`{% assign c = big | replace: "zzzzzzzz", "y" %}`),
		"loop of sort":            loops(`{% assign c = words | sort %}`),
		"loop of sort by field":   loops(`{% assign c = words | sort: "x" %}`),
		"loop of reverse":         loops(`{% assign c = words | reverse %}`),
		"loop of uniq":            loops(`{% assign c = words | uniq %}`),
		"loop of map":             loops(`{% assign c = words | map: big %}`),
		"loop of where":           loops(`{% assign c = words | where: big, big %}`),
		"loop of split":           loops(`{% assign c = big | split: "0" %}`),
		"loop of truncate":        loops(`{% assign c = big | truncate: 60000, big %}`),
		"loop of truncatewords":   loops(`{% assign c = big | truncatewords: 1000000000, big %}`),
		"loop of slice":           loops(`{% assign c = big | slice: -1 %}`),
		"loop of strip_html":      loops(`{% assign c = big | strip_html %}`),
		"loop of size":            loops(`{% assign c = big | size %}`),
		"loop of dates":           loops(`{% assign c = 0 | date: big %}`),
		"loop of zones":           loops(`{% assign c = 0 | date: "%F", b %}`),
		"loop of numbers":         loops(`{% assign c = 1.5 | number: 15, "........", "," %}`),
		"loop of comparisons":     loops(`{% if words == words and words == words and words == words and words == words %}{% endif %}`),
		"loop of texts compared":  loops(`{% if big == big and big < big and big contains "zz" and big contains big %}{% endif %}`),
		"loop of contains":        loops(`{% if words contains big %}{% endif %}`),
		"loop of cases":           loops(`{% case words %}{% when big, words, big, words %}{% endcase %}`),
		"loop of trimmed spaces":  loops(many(200, "                                        ") + `{{- a -}}`),
		"loop of comments":        loops(many(1000, `{% comment %}xxxxxxxxxx{% endcomment %}`)),
		"loop of cycles":          loops(`{% cycle "` + many(1000, "y") + `", "b" %}`),
		"loop of long text":       loops(many(1000, "0123456789")),
		"loop with a large limit": attack(`{% for a in items offset: 9223372036854775807 limit: 9223372036854775807 %}x{% endfor %}`), // harmless
		"loop from the far end":   attack(`{% for a in items reversed offset: 999 limit: 9223372036854775807 %}x{% endfor %}`),        // harmless
		"slice from anywhere":     attack(`{{ big | slice: -9223372036854775808, 9223372036854775807 }}`),                             // harmless
		"truncate to anything":    attack(`{{ big | truncate: 9223372036854775807 | size }}`),                                         // harmless
		"index anywhere":          attack(`{{ words[9223372036854775807] }}{{ words[-9223372036854775808] }}{{ words[words] }}`),      // harmless
		"numbers that overflow":   `{{ 9223372036854775807 | plus: 1 }}`,
		"products that overflow":  `{{ 9223372036854775807 | times: 9223372036854775807 }}`,
		"products that are none":  `{{ -9223372036854775808 | times: -1 }}`,
		"quotients that overflow": `{{ -9223372036854775808 | divided_by: -1 }}`,
		"modulo of the smallest":  `{{ -9223372036854775808 | modulo: -1 }}`, // harmless
		"floats that overflow":    `{% assign x = 1e9 | times: 1 %}{% assign x = 1.5 %}` + many(3000, `{% assign x = x | times: x %}`),
		"huge floats rounded":     `{{ "1e300" | round }}`,
		"huge floats to decimals": `{{ "1e300" | round: 15 }}{{ "1e308" | number: 15 }}`, // harmless
		"width in a date":         `{{ 0 | date: "%1000000d" }}`,
		"years far away":          `{{ 9223372036854775807 | date: "%Y" }}`,
		"deep properties":         attack(`{{ words` + many(190, `.first`) + ` }}`),    // harmless
		"deep parentheses":        `{{ ` + many(90, `(`) + `1` + many(90, `)`) + ` }}`, // harmless
		"deep index":              attack(`{{ words` + many(40, `[0]`) + ` }}`),        // harmless
		"many filters":            attack(`{{ big` + many(90, ` | upcase`) + ` | size }}`),
		"many tags":               many(18_000, `{% if true %}{% endif %}`)[:240_000],
		"many outputs":            many(35_000, `{{ 1 }}`),
		"many unclosed":           many(50_000, `{% a `),
		"many unclosed outputs":   many(80_000, `{{ `),
		"many braces":             many(250_000, `{`),
		"many quotes":             `{{ ` + many(80_000, `"" `) + `}}`,
		"many blocks":             many(15_000, `{% if true %}`),
		"one long string":         `{{ "` + many(250_000, `x`) + `" | size }}`, // harmless
		"one long name":           `{{ ` + many(250_000, `x`) + ` }}`,
		"one long tag":            `<` + many(250_000, `x`),
		"one long attribute":      `<a ` + many(250_000, `x`),
		"one long link":           `<a href="` + many(250_000, `x`) + `">`,
		"one long number":         `{{ 1.` + many(250_000, `1`) + ` }}`,
		"a long list of cases":    `{% case 1 %}{% when 2` + many(50_000, `, 2`) + ` %}{% endcase %}`,
		"a long cycle":            `{% for i in contact.tags %}{% cycle "a"` + many(50_000, `, "a"`) + ` %}{% endfor %}`,
	} {
		for _, kind := range []liquid.Kind{liquid.Text, liquid.HTML, liquid.Subject} {
			if kind == liquid.Subject && strings.HasPrefix(source, "<") {
				continue // long text, which is refused without a line
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := processorTime(t)
			err := try(t, kind, source)
			took := processorTime(t) - start
			runtime.ReadMemStats(&after)
			if took > 10*time.Second {
				t.Errorf("%s takes %s of a processor", name, took)
			}
			if made := (after.TotalAlloc - before.TotalAlloc) >> 20; made > 256 {
				t.Errorf("%s allocates %d MiB", name, made)
			}
			t.Logf("%-24s %8s %5d MiB %.80v", name, took.Round(time.Millisecond/10), (after.TotalAlloc-before.TotalAlloc)>>20, err)
		}
	}
}

// processorTime is what the process has used so far: on a busy machine the clock says
// nothing of the work.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// manyVariables keeps as many texts of 64 KiB as a template can name.
func manyVariables() string {
	var b strings.Builder
	for i := range 4000 {
		name := "v" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/26/26))
		b.WriteString(`{% assign ` + name + ` = big | downcase | slice: 0, 65000 | upcase %}`)
	}
	return b.String()
}

// try parses and renders, and fails the test unless the outcome is a bounded text or an
// error that says where.
func try(t *testing.T, kind liquid.Kind, source string) error {
	t.Helper()
	tmpl, err := liquid.Parse(kind, source, names)
	if err != nil {
		return err
	}
	text, err := tmpl.Render(context.Background(), decode(t, ann))
	var problem *liquid.Error
	switch {
	case len(text) > 1<<20:
		t.Errorf("%.80s writes %d bytes", source, len(text))
	case err != nil && !errors.As(err, &problem):
		t.Errorf("%.80s: %v", source, err)
	case err != nil && problem.Line == 0:
		t.Errorf("%.80s: %v has no line", source, err)
	}
	return err
}

// Each limit is one, and says which it is: the work alone would end most attacks, only
// later.
func TestLimits_SayWhichTheyAre(t *testing.T) {
	t.Parallel()
	compared := strings.Repeat(` and words == words`, 19)
	for _, c := range []struct {
		kind         liquid.Kind
		source, want string
	}{
		{liquid.Text, attack(`{{ big | append: "x" }}`), "a text of more than 64 KiB"},
		{liquid.Text, attack(`{% assign x = big | replace: "0", "<" %}{{ x | escape }}`), "a text of more than 64 KiB"},
		{liquid.Text, attack(`{{ words | concat: words }}`), "an array of more than 1000"},
		{liquid.Text, attack(`{{ big | split: "0" }}`), "an array of more than 1000"},
		{liquid.Text, attack(`{% for a in items %}{{ big }}{% endfor %}`), "what the template writes is over 1024 KiB"},
		{liquid.Text, attack(`{% capture x %}{{ big }}{{ big }}{% endcapture %}`), "what is captured is over 64 KiB"},
		{liquid.Subject, attack(`{{ big }}`), "the subject is over 2 KiB"},
		{liquid.Text, attack(`{% for a in items %}{% if words == words` + compared + ` %}{% endif %}{% endfor %}`), "more than 1000000 steps of work"},
	} {
		if got := failing(t, c.kind, c.source).Error(); !strings.Contains(got, c.want) {
			t.Errorf("%.80s: got %s, want %s", c.source[len(c.source)-80:], got, c.want)
		}
	}
}
