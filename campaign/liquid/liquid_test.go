package liquid_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/campaign/liquid"
)

// names is what the tests' templates may ask for.
var names = []string{
	"contact.name", "contact.city", "contact.n", "contact.price", "contact.at", "contact.zone", "contact.tags", "contact.address",
	"items", "link", "colour", "odd",
}

// ann is somebody's data.
const ann = `{
	"contact": {
		"name": "Ann", "city": "Lyon", "n": 3, "price": "1234.5", "at": "2026-03-01T09:30:00Z", "zone": "Asia/Tokyo",
		"tags": ["b", "a", "b"], "address": {"street": "Rue 1", "zip": "69001"}
	},
	"items": [{"name": "Hat", "price": 12.5, "new": true}, {"name": "Coat", "price": 100, "new": false}],
	"link": "https://example.com/?a=1&b=2", "colour": "#fff", "odd": "<Tom & \"Jerry\">'"
}`

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	var data map[string]any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&data); err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t testing.TB, kind liquid.Kind, source string) *liquid.Template {
	t.Helper()
	tmpl, err := liquid.Parse(kind, source, names)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return tmpl
}

// rendered is what a template makes of Ann's data.
func rendered(t testing.TB, kind liquid.Kind, source string) string {
	t.Helper()
	text, err := parse(t, kind, source).Render(context.Background(), decode(t, ann))
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return text
}

// failing is the error of a template that is right and cannot be rendered.
func failing(t testing.TB, kind liquid.Kind, source string) *liquid.Error {
	t.Helper()
	text, err := parse(t, kind, source).Render(context.Background(), decode(t, ann))
	var problem *liquid.Error
	if !errors.As(err, &problem) {
		t.Fatalf("%s renders %q, error %v", source, text, err)
	}
	if text != "" {
		t.Errorf("%s renders %q beside the error %v", source, text, err)
	}
	return problem
}

// problems are those of a template that is not right, one a line.
func problems(t testing.TB, kind liquid.Kind, source string) string {
	t.Helper()
	_, err := liquid.Parse(kind, source, names)
	if err == nil {
		t.Fatalf("%s is taken", source)
	}
	return err.Error()
}

func TestRender(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ source, want string }{
		{`Hello {{ contact.name }}!`, `Hello Ann!`},
		{`{{ contact["name"] }} {{ contact.address.zip }} {{ contact.tags[0] }} {{ contact.tags.last }} {{ contact.tags.size }}`, `Ann 69001 b b 3`},
		{`{{ contact.address.none }}{{ contact.name.none }}|`, `|`},
		{`{{ contact.tags }} {{ 1.50 }} {{ true }} {{ nil }}{{ -3 }} {{ 'a "b"' }}`, `bab 1.5 true -3 a "b"`},
		{`{% if contact.n > 2 and contact.city == "Lyon" %}yes{% else %}no{% endif %}`, `yes`},
		{`{% if contact.address.none %}a{% elsif contact.n == 3 %}b{% else %}c{% endif %}`, `b`},
		{`{% unless contact.n == 3 %}a{% else %}b{% endunless %}`, `b`},
		{`{% unless contact.n == 3 %}a{% elsif contact.n >= 3 %}b{% else %}c{% endunless %}`, `b`},
		{`{% if contact.tags contains "a" %}has{% endif %}{% if contact.name contains "nn" %} nn{% endif %}`, `has nn`},
		{`{% case contact.city %} {% when "Paris", "Lyon" %}FR{% when "Bern" %}CH{% else %}?{% endcase %}`, `FR`},
		{`{% case contact.n %}{% when 1 %}a{% else %}b{% endcase %}`, `b`},
		{`{% case contact.n %}{% when 1 %}a{% endcase %}`, ``},
		{`{% for i in items %}{{ forloop.index }}/{{ forloop.length }} {{ i.name }}{% unless forloop.last %}, {% endunless %}{% endfor %}`, `1/2 Hat, 2/2 Coat`},
		{`{% for i in items reversed %}{{ i.name }} {% endfor %}`, `Coat Hat `},
		{`{% for t in contact.tags offset: 1 limit: 1 %}{{ t }}{% endfor %}`, `a`},
		{`{% for t in contact.tags offset: 9 %}{{ t }}{% else %}none{% endfor %}`, `none`},
		{`{% for t in contact.tags %}{% if t == "a" %}{% continue %}{% endif %}{{ t }}{{ forloop.index0 }}{% endfor %}`, `b0b2`},
		{`{% for t in contact.tags %}{% if t == "a" %}{% break %}{% endif %}{{ t }}{% endfor %}.`, `b.`},
		{`{% for f in contact.address %}{{ f[0] }}={{ f[1] }};{% endfor %}`, `street=Rue 1;zip=69001;`},
		{`{% for i in items %}{% for t in contact.tags %}{% cycle "x", "y" %}{% endfor %}{% cycle "g": "1", "2" %} {% endfor %}`, `xyx1 xyx2 `},
		{`{% assign total = 0 %}{% for i in items %}{% assign total = total | plus: i.price %}{% endfor %}{{ total }}`, `112.5`},
		{`{% capture line %}{{ contact.name }} in {{ contact.city }}{% endcapture %}{{ line | upcase }}`, `ANN IN LYON`},
		{`{% raw %}{{ contact.name }} {% if %}{% endraw %}{% comment %}{{ ( {% if %}{% endcomment %}|`, `{{ contact.name }} {% if %}|`},
		{"a \n {%- if true -%} \n b \n {%- endif -%} \n c", `abc`},
		{`{{- contact.name -}} x`, `Annx`},
		{`{% for t in contact.tags %} {%- if t == "b" -%} b {%- else -%} a {%- endif -%} {%- continue -%} {% endfor -%} .`, `bab.`},
		{`{{ odd }} {{ odd | raw }}`, `<Tom & "Jerry">' <Tom & "Jerry">'`},
		{`{{ odd | escape }}`, `&lt;Tom &amp; &#34;Jerry&#34;&gt;&#39;`},
	} {
		if got := rendered(t, liquid.Text, c.source); got != c.want {
			t.Errorf("%s\n got %q\nwant %q", c.source, got, c.want)
		}
	}
}

// The template is told whole what is wrong with it, each with its line.
func TestParse_AllProblemsWithLines(t *testing.T) {
	t.Parallel()
	got := problems(t, liquid.HTML, `<p>{{ contact.nmae }}</p>
{% frobnicate %}
{% if contact.n %}
{{ contact.n | shorten: 3 }} {{ (1..9) }}
<script>var x = "{{ contact.name }}";</script>
{{ contact.name | truncate: 1, 2, 3 }}
{{ "unclosed }} {% for x of items %}{% endfor %}
<a href={{ link }}>x</a> {{ contact }}`)
	for _, want := range []string{
		"line 1: undefined name contact.nmae: there is colour, contact.address",
		"line 2: unknown tag frobnicate",
		"line 3: if is not closed",
		"line 4: unknown filter shorten",
		"line 4: ranges (a..b) are not supported",
		"line 5: {{ }} in <script>",
		"line 6: truncate takes from 0 to 2 arguments, and has 3",
		"line 7: a string is not closed",
		"line 7: for is written as: for item in items",
		`line 8: {{ }} in an attribute without quotes: write href="{{ … }}"`,
		"line 8: contact is an object: write a field of it",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if n := len(strings.Split(got, "\n")); n != 11 {
		t.Errorf("%d problems:\n%s", n, got)
	}
}

func TestParse_Problems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ source, want string }{
		{`{{ contact.name `, "{{ is not closed"},
		{"a\n{% if contact.n\n", "line 2: {% is not closed"},
		{`{{% if true %}{% endif %}`, "{ before a tag"},
		{`{{{ contact.name }}`, `"{" is not part of an expression`},
		{`{% endif %}`, "endif without if"},
		{`{% if true %}{% endfor %}{% endif %}`, "endfor closes for, but if"},
		{`{% for i in items %}{% if true %}{% endfor %}`, "endfor closes for, but if"},
		{`{% else %}`, "else outside a block"},
		{`{% if true %}{% when 1 %}{% endif %}`, "when is not part of if"},
		{`{% if true %}{% else %}{% elsif true %}{% endif %}`, "elsif after else"},
		{`{% if true %}{% else contact.n %}{% endif %}`, "else has no condition"},
		{`{% if %}{% endif %}`, "if without a condition"},
		{`{% raw %}`, "raw is not closed"},
		{"\n{% comment %}", "line 2: comment is not closed"},
		{`{% include "a" %}`, "include would read a file"},
		{`{% render "/etc/passwd" %}`, "render would read a file"},
		{`{% tablerow i in items %}{% endtablerow %}`, "tablerow is not supported"},
		{`{% out 1 %}`, "unknown tag out"},
		{`{% _out 0 %}`, "unknown tag _out"},
		{`{{ _s }}`, "undefined name _s"},
		{`{{ contact.name | upcase: _s }}`, "upcase takes no arguments"},
		{`{{ forloop.index }}`, "forloop outside a for"},
		{`{% for i in items %}{{ forloop }}{% endfor %}`, "forloop has first"},
		{`{% for i in items %}{{ forloop.cycles }}{% endfor %}`, "forloop has first"},
		{`{% for i in items %}{% endfor %}{{ i }}`, "undefined name i"},
		{`{{ x }}{% assign x = 1 %}`, "undefined name x"},
		{`{% assign contact = 1 %}`, "contact is given"},
		{`{% for contact in items %}{% endfor %}`, "contact is given"},
		{`{% capture items %}{% endcapture %}`, "items is given"},
		{`{% assign forloop = 1 %}`, "names of your own"},
		{`{% capture a b %}{% endcapture %}`, "names of your own"},
		{`{% capture x %}{% endcapture %}{% assign x = 1 %}`, "x is made by capture in line 1"},
		{`{% for a in items %}{% for b in items %}{% for c in items %}{% endfor %}{% endfor %}{% endfor %}`, "at most 2 loops"},
		{strings.Repeat(`{% if true %}`, 40) + strings.Repeat(`{% endif %}`, 40), "if within more than 31 others"},
		{`{% break %}`, "break outside a for"},
		{`{% for i in items %}{% capture x %}{% break %}{% endcapture %}{% endfor %}`, "break outside a for"},
		{`{% cycle "a" %}`, "cycle outside a for"},
		{`{% for i in items %}{% cycle i %}{% endfor %}`, "cycle is written as"},
		{`{% for i in (1..1000000000) %}{% endfor %}`, "ranges"},
		{`{% for i in items cols: 2 %}{% endfor %}`, "is not a loop"},
		{`{% for i in items sideways %}{% endfor %}`, "is not a loop"},
		{`{% case contact.n %}{{ contact.n }}{% when 1 %}{% endcase %}`, "never written"},
		{`{% case contact.n %}{% when %}{% endcase %}`, "is no list of values"},
		{`{{ contact.name | raw | upcase }}`, "raw can only be the last"},
		{`{% assign x = contact.name | raw %}`, "raw can only be the last"},
		{`{{ contact.name | newline_to_br }}`, "newline_to_br makes HTML"},
		{`{{ contact.at | date: "%Q" }}`, "the format has no %Q"},
		{`{{ contact.at | date }}`, "date takes from 1 to 2 arguments, and has 0"},
		{`{{ contact.n == }}`, "is not an expression"},
		{`{{ contact.n ; contact.n }}`, `";" is not part`},
		{`{{ 99999999999999999999 }}`, "is too large"},
		{`{{ %loop x in items }}`, `"%" is not part`},
		{`{{ contact.n` + strings.Repeat(" or true", 200) + ` }}`, "more than 200 words"},
		{strings.Repeat("x", 256<<10+1), "the template is over 256 KiB"},
		{"\xff", "not UTF-8"},
		{"a\x00", "a zero byte"},
		{strings.Repeat("{{ x }}\n", 1000), "and perhaps more"},
	} {
		if got := problems(t, liquid.Text, c.source); !strings.Contains(got, c.want) {
			t.Errorf("%.80s\n got %s\nwant %s", c.source, got, c.want)
		}
	}
	if got := problems(t, liquid.Subject, "a\nb"); !strings.Contains(got, "a subject is one line") {
		t.Error(got)
	}
	for _, name := range []string{"", "a..b", "_s", "1a", "in", "a b"} {
		if _, err := liquid.Parse(liquid.Text, "", []string{name}); err == nil {
			t.Errorf("the name %q is taken", name)
		}
	}
}

// A subject is one line, whatever the data are.
func TestRender_SubjectHasNoLineBreak(t *testing.T) {
	t.Parallel()
	tmpl := parse(t, liquid.Subject, `{{ contact.name }}, spring is here `)
	got, err := tmpl.Render(context.Background(), map[string]any{"contact": map[string]any{"name": "Ann\r\nBcc: x@example.com\u2028\x00\u0085"}})
	if want := "Ann  Bcc: x@example.com   , spring is here"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// What data may be: what JSON can say.
func TestRender_Data(t *testing.T) {
	t.Parallel()
	tmpl := parse(t, liquid.Text, `{{ contact.name }}|{{ contact.n }}`)
	for _, c := range []struct {
		contact any
		want    string
	}{
		{nil, "|"},
		{map[string]string{"name": "Ann", "n": "3"}, "Ann|3"},
		{map[string]any{"name": []string{"a", "b"}, "n": 2.5}, "ab|2.5"},
		{map[string]any{"name": []any{nil, true, []any{"x"}}, "n": json.Number("12.50")}, "truex|12.5"},
		{map[string]any{"name": int64(7), "n": int32(8)}, "7|8"},
		{map[string]any{"name": "a\xffb", "n": json.Number("123456789012345678")}, "a\uFFFDb|123456789012345678"},
	} {
		got, err := tmpl.Render(context.Background(), map[string]any{"contact": c.contact})
		if err != nil || got != c.want {
			t.Errorf("%v: got %q, %v, want %q", c.contact, got, err, c.want)
		}
	}
	deep := any("x")
	for range 20 {
		deep = []any{deep}
	}
	for what, value := range map[string]any{
		"a struct":      struct{ Secret string }{"s"},
		"a pointer":     &struct{ Secret string }{"s"},
		"a time":        time.Now(),
		"bytes":         []byte("x"),
		"a function":    func() string { return "x" },
		"a deep one":    deep,
		"a long text":   strings.Repeat("x", 64<<10+1),
		"a long array":  make([]any, 1001),
		"many values":   []any{make([]any, 1000), make([]any, 1000), make([]any, 1000), make([]any, 1000), make([]any, 1000), make([]any, 1000), make([]any, 1000), make([]any, 1000), make([]any, 1000), make([]any, 1000), make([]any, 1000)},
		"a bad number":  json.Number("1e999"),
		"a number none": json.Number("x"),
	} {
		var problem *liquid.Error
		_, err := tmpl.Render(context.Background(), map[string]any{"contact": map[string]any{"name": value}})
		if !errors.As(err, &problem) || !strings.Contains(err.Error(), "contact") && !strings.Contains(err.Error(), "data") {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What no template asks for is not looked at.
	if _, err := tmpl.Render(context.Background(), map[string]any{"other": time.Now()}); err != nil {
		t.Error(err)
	}
}

// An error says where it is and names no data.
func TestRender_Errors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ source, want string }{
		{"\n\n{{ contact.name | plus: 1 }}", "line 3: plus: a number is needed"},
		{"{% if true %}\n{{ contact.n | divided_by: 0 }}\n{% endif %}", "line 2: divided_by: division by zero"},
		{"\n{% if contact.address == contact.address %}{% endif %}", "line 2: cannot be computed"},
		{"\n{% case contact.address %}\n{% when contact.address %}{% endcase %}", "line 3: cannot be computed"},
		{"{% for x in contact.name %}{% endfor %}", "line 1: for needs an array, and has a text"},
		{"{% for x in items limit: -1 %}{% endfor %}", "limit and offset are whole numbers from 0"},
		{"{% for x in items offset: contact.name %}{% endfor %}", "limit and offset are whole numbers from 0"},
		{"{{ items }}", "an object cannot be written"},
		{"{{ contact.address }}", "an object cannot be written"},
		{"{{ contact.name | join }}", "join: a text is not an array"},
		{"{{ items | uniq }}", "uniq: an object is not compared"},
		{"{{ contact.name | date: '%Y' }}", "date: a date is needed"},
		{"{{ 'now' | date: '%Y' }}", "date: now is another time at each rendering"},
		{"{{ contact.at | date: '%Y', 'Local' }}", "date: unknown time zone"},
		{"{{ contact.at | date: '%Y', '../../etc/passwd' }}", "date: unknown time zone"},
		{"{{ contact.at | date: '%Y', '/etc/localtime' }}", "date: unknown time zone"},
		{"{{ contact.at | date: contact.name }}{{ contact.at | date: '%%%Y' }}{{ contact.city | slice: contact.name }}", "slice: a number is needed"},
	} {
		if got := failing(t, liquid.Text, c.source).Error(); !strings.Contains(got, c.want) || strings.Contains(got, "Ann") {
			t.Errorf("%s\n got %s\nwant %s", c.source, got, c.want)
		}
	}
}

// A rendering ends with its context, and says so rather than to blame the template.
func TestRender_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	tmpl := parse(t, liquid.Text, `{{ contact.name }}`)
	why := errors.New("the relay stops")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	var problem *liquid.Error
	if _, err := tmpl.Render(ctx, decode(t, ann)); !errors.Is(err, why) || errors.As(err, &problem) {
		t.Errorf("got %v, want %v", err, why)
	}

	slow := parse(t, liquid.Text, attack(`{% for a in items %}{% for b in items %}{{ a }}{% endfor %}{% endfor %}`))
	if _, err := slow.Render(&ending{Context: context.Background(), looks: 3}, decode(t, ann)); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &problem) {
		t.Errorf("got %v, want the deadline", err)
	}
}

// ending is a context whose deadline is over once it has been looked at so often: in the middle, however long that takes.
type ending struct {
	context.Context
	looks int
}

func (e *ending) Err() error {
	if e.looks--; e.looks >= 0 {
		return nil
	}
	return context.DeadlineExceeded
}

// One template serves many goroutines, and makes the same of the same data each time.
func TestRender_TheSameEachTimeAndConcurrently(t *testing.T) {
	t.Parallel()
	tmpl := parse(t, liquid.HTML, `{% for f in contact.address %}{{ f[0] }}={{ f[1] }},{% endfor %}
{% for i in items %}{% cycle "a", "b" %}{{ i.name }}{% endfor %}
{{ contact.tags | uniq | sort | join: "," }} {{ contact.at | date: "%F %T", contact.zone }}`)
	data := decode(t, ann)
	want, err := tmpl.Render(context.Background(), data)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if got, err := tmpl.Render(context.Background(), data); err != nil || got != want {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
			}
		})
	}
	all.Wait()
}
