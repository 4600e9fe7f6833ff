package liquid_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/deedhq/deed/campaign/liquid"
)

// hostile is data that would be markup, an attribute or a script, wherever it gets out.
func hostile(bait string) map[string]any {
	return map[string]any{
		"contact": map[string]any{
			"name": bait, "city": `"'>` + bait, "n": 3, "price": "12.5", "at": "2026-03-01", "zone": "UTC",
			"tags": []any{bait, " deedmark=1 ", "</title></textarea></script>" + bait}, "address": map[string]any{bait: bait, "zip": "-->" + bait},
		},
		"items": []any{map[string]any{"name": bait, "price": 3}, map[string]any{"name": "' deedmark='", "price": 4}},
		"link":  "javascript:deedmark", "colour": "red;deedmark", "odd": bait,
	}
}

// escaped reads a page as a browser does, and finds what of the data became more than
// text: a tag, an attribute, a script, a link that runs.
func escaped(page string) error {
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return nil
		case html.StartTagToken, html.SelfClosingTagToken, html.EndTagToken:
			tag := z.Token()
			if strings.Contains(tag.Data, "deedmark") {
				return errors.New("a tag of the data")
			}
			for _, a := range tag.Attr {
				if strings.Contains(a.Key, "deedmark") || strings.HasPrefix(a.Key, "on") && strings.Contains(a.Val, "deedmark") {
					return errors.New("an attribute of the data")
				}
				if a.Key == "href" && strings.HasPrefix(strings.TrimSpace(a.Val), "javascript:deedmark") {
					return errors.New("a link that runs")
				}
				if a.Key == "style" && strings.Contains(a.Val, ";deedmark") {
					return errors.New("a style of the data")
				}
			}
		}
	}
}

// No template renders over its limits, panics, or lets data become HTML unless it says raw.
func FuzzRender(f *testing.F) {
	for _, seed := range []string{
		`<p>Hi {{ contact.name }}</p><a href="{{ link }}">{{ odd | upcase }}</a>`,
		`<a title="{{ odd }}" href='https://x/{{ odd }}' style="color:{{ colour }}">{{ odd | newline_to_br }}</a>`,
		`{% capture x %}<b>{{ odd }}</b>{% endcapture %}{{ x }}<i title="{{ x }}">{% capture y %}{{ link }}{% endcapture %}<a href="{{ y }}">`,
		`{% for i in items reversed limit: 2 offset: 0 %}{{ i.name | default: odd }}{% cycle "a", "b" %}{% else %}x{% endfor %}`,
		`{% for f in contact.address %}{{ f[0] }}={{ f[1] }}{% if forloop.last %}{% break %}{% endif %}{% endfor %}`,
		`{% case contact.n %}{% when 1, 3 %}{{ contact.tags | join: odd | truncate: 20 }}{% else %}{% endcase %}`,
		`{% assign x = contact.tags | concat: contact.tags | sort | uniq | reverse %}{{ x | first }}{{ x }}`,
		`<td{% if contact.n %} class="{{ odd }}"{% endif %}>{% unless odd == "" %}{{ odd | strip_html | split: "" }}{% endunless %}</td>`,
		`<title>{{ odd }}</title><!--[if mso]><b title="{{ odd }}"><![endif]--><textarea>{{ odd }}</textarea>`,
		`{% raw %}{{ x }}{% endraw %}{% comment %}{{ {% endcomment %}a {{- odd -}} b < {{ odd }}`,
		`{{ contact.at | date: "%d %B %Y", contact.zone }} {{ contact.price | times: 2 | number: 2, ",", "." }}`,
		`{{ odd | replace: "<", odd | append: odd | url_encode | slice: 2, 9 | escape_once }}`,
		`<script>a</script><style>b{}</style>{{ odd }}<a{% if odd %} b{% endif %} c="{{ odd }}">`,
		`< {{- odd }} <{{ odd }}> <a {{ odd }}> <a b={{ odd }}> <script>{{ odd }}</script> <!-- {{ odd }} -->`,
		`<a href="java{{ odd }}"><a href="{{ odd }}{{ link }}"><a href="{{ odd }}:{{ link }}">`,
	} {
		f.Add(uint8(1), seed, "<deedmark deedmark=1 onerror=deedmark>")
		f.Add(uint8(0), seed, `" deedmark="1`)
		f.Add(uint8(2), seed, " deedmark=1 x\n<deedmark>")
	}
	f.Fuzz(func(t *testing.T, k uint8, source, bait string) {
		kind := liquid.Kind(k % 3)
		tmpl, err := liquid.Parse(kind, source, names)
		if err != nil {
			return
		}
		data := hostile(bait)
		start := processorTime(t)
		text, err := tmpl.Render(context.Background(), data)
		if took := processorTime(t) - start; took > 10*time.Second {
			t.Errorf("takes %s", took)
		}
		var problem *liquid.Error
		if err != nil {
			if !errors.As(err, &problem) {
				t.Errorf("error %v", err)
			}
			return
		}
		if len(text) > 1<<20 {
			t.Errorf("%d bytes", len(text))
		}
		if again, err := tmpl.Render(context.Background(), data); err != nil || again != text {
			t.Errorf("renders %q, then %q, %v", text, again, err)
		}
		if kind == liquid.Subject && strings.ContainsAny(text, "\r\n\u2028\u2029\u0085") {
			t.Errorf("a subject of several lines: %q", text)
		}
		if kind == liquid.HTML && !strings.Contains(source, "raw") && !strings.Contains(source, "deedmark") {
			if err := escaped(text); err != nil {
				t.Errorf("%v: %s", err, text)
			}
		}
	})
}

// The oracle of the fuzz target finds what it is for.
func TestFuzz_OracleSees(t *testing.T) {
	t.Parallel()
	for _, page := range []string{
		`<p><deedmark></p>`, `<a title="" deedmark="1">`, `<a href="javascript:deedmark">`, `<a style="a;deedmark">`, `<a onclick="deedmark">`, `</deedmark>`,
	} {
		if escaped(page) == nil {
			t.Errorf("%s passes", page)
		}
	}
	if err := escaped(`<p title="&lt;deedmark&gt;">&lt;deedmark&gt;</p>`); err != nil {
		t.Error(err)
	}
}
