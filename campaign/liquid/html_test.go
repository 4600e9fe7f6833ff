package liquid_test

import (
	"context"
	"strings"
	"testing"

	"github.com/deedhq/deed/campaign/liquid"
)

// What comes from data is escaped, for where it stands.
func TestHTML_Escapes(t *testing.T) {
	t.Parallel()
	const odd = `&lt;Tom &amp; &#34;Jerry&#34;&gt;&#39;`
	for _, c := range []struct{ source, want string }{
		{`<p>{{ odd }}</p>`, `<p>` + odd + `</p>`},
		{`<p>{{ odd | escape }}</p>`, `<p>` + odd + `</p>`},
		{`<p>{{ odd | escape | raw }}</p>`, `<p>` + odd + `</p>`},
		{`<p>{{ "a &amp; <b>" | escape_once }}</p>`, `<p>a &amp; &lt;b&gt;</p>`},
		{`<p>{{ "a &amp; <b>" }}</p>`, `<p>a &amp;amp; &lt;b&gt;</p>`},
		{`<p>{{ odd | raw }}</p>`, `<p><Tom & "Jerry">'</p>`},
		{`<p>{{ odd | upcase | append: "<" }}</p>`, `<p>&lt;TOM &amp; &#34;JERRY&#34;&gt;&#39;&lt;</p>`},
		{`{% assign x = odd %}{{ x }}`, odd},
		{`{% for x in contact.tags %}{{ odd }}{% endfor %}`, odd + odd + odd},
		{`{{ "a<b` + "\t" + `" | append: "c" | newline_to_br }}`, "a&lt;b\tc"},
		{`<a title="{{ odd }}" data-x='{{ odd }}'>`, `<a title="` + odd + `" data-x='` + odd + `'>`},
		{`<title>{{ odd }}</title>`, `<title>` + odd + `</title>`},
		{`{% capture x %}<b>{{ odd }}</b>{% endcapture %}{{ x }}{{ x | raw }}`, `<b>` + odd + `</b><b>` + odd + `</b>`},
		{`{% capture x %}{{ odd }}{% endcapture %}<a title="{{ x }}">`, `<a title="` + odd + `">`},
		{`{% capture x %}<b>"{% endcapture %}<a title="{{ x }}">`, `<a title="&lt;b&gt;&#34;">`},
		{`{% capture x %}{{ link }}{% endcapture %}<a href="{{ x }}">`, `<a href="https://example.com/?a=1&amp;b=2">`},
		{`{% capture x %}<b>{% endcapture %}{% if x contains "<b>" %}yes{% endif %}`, `yes`},
		{`<a href="{{ link }}">`, `<a href="https://example.com/?a=1&amp;b=2">`},
		{`<a href="https://x.example/{{ contact.name }}?q={{ odd | url_encode }}">`, `<a href="https://x.example/Ann?q=%3CTom+%26+%22Jerry%22%3E%27">`},
		{`<a href="mailto:{{ contact.name }}">`, `<a href="mailto:Ann">`},
		{`<a href="{{ contact.name }}/{{ contact.city }}">`, `<a href="Ann/Lyon">`},
		{`<a href=" {{ link }}">`, `<a href=" https://example.com/?a=1&amp;b=2">`},
		{`<p style="color: {{ colour }}; width: {{ contact.n }}%">`, `<p style="color: #fff; width: 3%">`},
		{`<a href="https://x.example/{% if contact.n %}a{% endif %}{{ contact.n }}">`, `<a href="https://x.example/a3">`},
		{`<td{% if contact.n %} class="a"{% endif %}>{{ contact.n }}</td>`, `<td class="a">3</td>`},
		{`<option{% if contact.n %} selected{% endif %} {% if contact.n %}a="b"{% else %}c{% endif %}>{{ contact.n }}`, `<option selected a="b">3`},
		{`{% for i in items %}<tr class="{% cycle 'odd', 'even' %}"><td>{{ i.name }}</td></tr>{% endfor %}`, `<tr class="odd"><td>Hat</td></tr><tr class="even"><td>Coat</td></tr>`},
		{`<style>@media (max-width: 9px) { a{b:c}} .x{width:100%}</style>{{ contact.n }}`, `<style>@media (max-width: 9px) { a{b:c}} .x{width:100%}</style>3`},
		{`<!-- a > b --> {{ contact.n }} <!----> <!doctype html> {{ contact.n }}`, `<!-- a > b --> 3 <!----> <!doctype html> 3`},
		{`<!--[if mso]><td width="{{ contact.n }}"><![endif]-->{{ contact.n }}<!--[if !mso]><!-->{{ contact.n }}<!--<![endif]-->`, `<!--[if mso]><td width="3"><![endif]-->3<!--[if !mso]><!-->3<!--<![endif]-->`},
		{`1 < 2 {{ contact.n }} a<b> {{ contact.n }}`, `1 < 2 3 a<b> 3`},
		{`a {%- comment -%} {{- x -}} {%- comment -%} b {%- endcomment -%} c`, `ac`},
		{`<a title="b" {% comment %} {{- x -}} {%- comment -%} {% endcomment %}>{{ contact.n }}`, `<a title="b" >3`},
		{`{% raw %}<b>{{ x }}</b>{% endraw %}{{ contact.n }}`, `<b>{{ x }}</b>3`},
		{`<script type="application/ld+json">{"a": 1}</script>{{ contact.n }}`, `<script type="application/ld+json">{"a": 1}</script>3`},
		{`<SCRIPT>x</SCRIPT >{{ contact.n }}<br/>{{ contact.n }}`, `<SCRIPT>x</SCRIPT >3<br/>3`},
	} {
		if got := rendered(t, liquid.HTML, c.source); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.source, got, c.want)
		}
	}
	tmpl := parse(t, liquid.HTML, `{{ contact.name | newline_to_br }}|{{ contact.name | escape | newline_to_br }}`)
	got, err := tmpl.Render(context.Background(), map[string]any{"contact": map[string]any{"name": "a<\nb\r\nc"}})
	if want := "a&lt;<br />\nb<br />\nc|a&lt;<br />\nb<br />\nc"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// Where data would be code, or might become a piece of a tag, it is refused at once.
func TestHTML_RefusesDataInCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ source, want string }{
		{`<script>{{ contact.name }}</script>`, "{{ }} in <script>"},
		{`<ScRiPt type="a">var x = "{{ contact.name | raw }}"</script>`, "{{ }} in <script>"},
		{`<script>a</scripty>{{ contact.n }}</script>`, "{{ }} in <script>"},
		{`<script><!-- <script> </script> {{ contact.n }} --></script>`, "a comment in a script"},
		{`<style>.a{color:{{ colour }}}</style>`, "{{ }} in <style>"},
		{`<iframe>{{ contact.n }}</iframe>`, "{{ }} in <iframe>"},
		{`<a onclick="{{ contact.n }}">`, "in the attribute onclick"},
		{`<a ONCLICK = '{{ contact.n }}'>`, "in the attribute onclick"},
		{`<iframe srcdoc="{{ contact.n }}">`, "in the attribute srcdoc"},
		{`<meta http-equiv="refresh" content="0;url={{ link }}">`, "in <meta>"},
		{`<a title={{ contact.n }}>`, "without quotes"},
		{`<a title=x{{ contact.n }}>`, "without quotes"},
		{`<a title = {{ contact.n }}>`, "without quotes"},
		{`<a {{ contact.n }}>`, "within a tag"},
		{`<a x{{ contact.n }}="b">`, "within a tag"},
		{`<a title="b" {{ contact.n }}>`, "within a tag"},
		{`<{{ contact.n }}>`, "after <"},
		{`< {{- contact.n }}>`, "after <"},
		{`</{{ contact.n }}>`, "within a tag"},
		{`<t{{ contact.n }}>`, "within a tag"},
		{`<!-- {{ contact.n }} -->`, "in a comment"},
		{`<!doctype {{ contact.n }}>`, "in a comment"},
		{`<a href="javascript:{{ contact.n }}">`, "link of another kind"},
		{`<a href="JAVA&#115;cript:{{ contact.n }}">`, "link of another kind"},
		{`<a href="data:{{ contact.n }}">`, "link of another kind"},
		{`<a href="java{{ contact.n }}">`, "in the middle of the first part"},
		{`<a href="{{ contact.n }}{{ contact.n }}">`, "{{ }} after {{ }}"},
		{`<a href="{{ contact.n }}x{{ contact.n }}">`, "{{ }} after {{ }}"},
		{`<a href="{{ contact.n }}:x">`, "would come from data"},
		{`<img src="x" srcset="java{{ contact.n }}">`, "in the middle of the first part"},
		{`<a {% if contact.n %}title="{% endif %}{{ contact.n }}">`, "ends in different places"},
		{`{% if contact.n %}<script>{% endif %}{{ contact.n }}`, "ends in different places"},
		{`{% if contact.n %}<script>{% else %}<b>{% endif %}{{ contact.n }}`, "ends in different places, as its branches go: in <script>, in the text"},
		{`{% case contact.n %}{% when 1 %}<script>{% when 2 %}{% endcase %}`, "ends in different places"},
		{`{% for i in items %}<script>{% endfor %}`, "ends in different places"},
		{`{% for i in items %}<b title="{% break %}">{% endfor %}`, "break in the attribute title"},
		{`{% for i in items %}{% cycle "<script>", "b" %}{% endfor %}`, "cycle writes a piece of a tag"},
		{`{% capture x %}<script>{% endcapture %}{{ x }}`, "ends in <script>: capture whole tags"},
		{`<a {% capture x %}b{% endcapture %}>`, "capture within a tag"},
		{`{% capture x %}b{% endcapture %}{{ x | upcase }}`, "x is HTML that was captured"},
		{`{% capture x %}b{% endcapture %}{% assign y = x %}`, "x is HTML that was captured"},
		{`{% capture x %}b{% endcapture %}{% for i in x %}{% endfor %}`, "x is HTML that was captured"},
		{`{{ contact.name | escape | upcase }}`, "escape is not the last filter"},
		{`{% assign x = contact.name | escape %}`, "escape in assign"},
		{`<a title="{{ contact.name | newline_to_br }}">`, "newline_to_br in the attribute title"},
		{`<a on {%- if contact.n %}click="x"{% endif %}>`, "whitespace control (-) within a tag"},
		{`< {%- if contact.n %}img{% endif %}`, "whitespace control (-) after <"},
		{`<a href=x {%- comment %}n{% endcomment %}title="{{ contact.name }}">`, "whitespace control (-) within a tag"},
		{`<a {%- comment %}n{% endcomment %}title="{{ contact.name }}">`, "whitespace control (-) within a tag"},
		{`<a href=x{% comment %}n{% endcomment -%} title="{{ contact.name }}">`, "whitespace control (-) in the attribute href"},
		{`< {%- comment %}{% endcomment %}b title="{{ contact.name }}">`, "whitespace control (-) after <"},
		{`<a href=x {%- raw %}title={% endraw %}"{{ contact.name }}">`, "whitespace control (-) within a tag"},
		{`<a{% if contact.n %} b{% endif %}="{{ contact.n }}">`, "= after a block within a tag"},
		{`<t{% if contact.n %}d {% endif %}x title="{{ contact.n }}">`, "ends in different places"},
		{`<a title="b`, "the template ends in the attribute title"},
		{`<script>`, "the template ends in <script>"},
		{`<!-- a`, "the template ends in a comment"},
	} {
		if got := problems(t, liquid.HTML, c.source); !strings.Contains(got, c.want) {
			t.Errorf("%s\n got %s\nwant %s", c.source, got, c.want)
		}
	}
}

// What ends a comment or an element is seen in one piece, or not at all: a tag that parts it, or whitespace control that joins
// it, would have the template stand elsewhere than a browser does.
func TestHTML_RefusesWhatATagParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ source, want string }{
		{`<style></sty{% assign y = 1 %}le><a onclick="</style>{{ contact.name }}">`, "</sty is parted by a tag"},
		{`<style></STYLE{% assign y = 1 %}><a onclick="</style>{{ contact.name }}">`, "</STYLE is parted by a tag"},
		{`<style></ {%- assign y = 1 %}style><a onclick="</style>{{ contact.name }}">`, "</ is parted by a tag"},
		{`<style>< {%- comment %}{% endcomment %}/style><a onclick="</style>{{ contact.name }}">`, "< is parted by a tag"},
		{`<style>{% raw %}</{% endraw %}style><a onclick="</style>{{ contact.name }}">`, "</ is parted by a tag"},
		{`<title></titl{% assign y = 1 %}e><script>{{ contact.name }}</script></title>`, "</titl is parted by a tag"},
		{`<title>a <{{ contact.name }}</title>`, "< is parted by a tag"},
		{`<script><!{% assign y = 1 %}-- <script></script>{{ contact.name }}`, "<! is parted by a tag"},
		{`<!{% assign y = 1 %}-- > <title>--><script>{{ contact.name }}</script></title>`, "<! is parted by a tag"},
		{`<!- {%- assign y = 1 %}- > <title>--><script>{{ contact.name }}</script></title>`, "<!- is parted by a tag"},
		{`<!-- -{% assign y = 1 %}-><a onclick="-->{{ contact.name }}">`, "what might end a comment"},
		{`<!-- -- {%- assign y = 1 %}> <script>//--> {{ contact.name }}</script>`, "what might end a comment"},
		{`<!-- --{% assign y = 1 -%}{% assign y = 2 %} > <script>//--> {{ contact.name }}</script>`, "what might end a comment"},
		{`<!-- --{% comment %}{% endcomment -%} !> <script>//--> {{ contact.name }}</script>`, "what might end a comment"},
		{`<!--{% if contact.n %}{% endif %}><script>//--> {{ contact.name }}</script>`, "what might end a comment"},
		{`<!-- --!><script>//--> {{ contact.name }}</script>`, "--!> ends a comment"},
	} {
		if got := problems(t, liquid.HTML, c.source); !strings.Contains(got, c.want) {
			t.Errorf("%s\n got %s\nwant %s", c.source, got, c.want)
		}
	}
	for _, c := range []struct{ source, want string }{
		{`<!--{% if contact.n %} a - {%- endif %} b > c -{% if contact.n %}d{% endif %}-->{{ contact.n }}`, `<!-- a - b > c -d-->3`},
		{`<!--{%- comment -%} x {%- endcomment -%}-->{{ contact.n }}`, `<!---->3`},
		{`<style>a < {% if contact.n %}b{% endif %} </b {% if contact.n %}x{% endif %}</style>{{ contact.n }}`, `<style>a < b </b x</style>3`},
		{`<title>{{ contact.n }} < {{ contact.n }}</title><!doctype {% if contact.n %}x{% endif %}>{{ contact.n }}`, `<title>3 < 3</title><!doctype x>3`},
		{`{% capture x %}</title><b>&amp;{{ odd }}</b>{% endcapture %}<title>{{ x }}</title>`, `<title>&lt;/title&gt;&lt;b&gt;&amp;&lt;Tom &amp; &#34;Jerry&#34;&gt;&#39;&lt;/b&gt;</title>`},
	} {
		if got := rendered(t, liquid.HTML, c.source); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.source, got, c.want)
		}
	}
}

// What only somebody's data show is an error of theirs.
func TestHTML_RefusesLinksAndStyles(t *testing.T) {
	t.Parallel()
	link := parse(t, liquid.HTML, `<a href="{{ link }}">`)
	style := parse(t, liquid.HTML, `<a style="color: {{ link }}">`)
	captured := parse(t, liquid.HTML, `{% capture x %}{{ link }}{% endcapture %}<a href="{{ x }}">`)
	for _, c := range []struct {
		tmpl *liquid.Template
		data string
		ok   bool
	}{
		{link, "https://example.com", true},
		{link, "HTTPS://example.com", true},
		{link, "/a:b", true},
		{link, "a?b:c", true},
		{link, "", true},
		{link, "javascript:alert(1)", false},
		{link, "JavaScript:alert(1)", false},
		{link, " \x01java\tscript\n:alert(1)", false},
		{link, "data:text/html,<script>", false},
		{link, "vbscript:x", false},
		{link, "javascript&colon;alert(1)", true}, // escaped, the name stays a name
		{captured, "javascript:alert(1)", false},
		{captured, "https://example.com", true},
		{style, "red", true},
		{style, "#a0b0c0", true},
		{style, "12.5%", true},
		{style, "red; background: url(x)", false},
		{style, "expression(alert(1))", false},
		{style, `\75rl`, false},
		{style, `red"`, false},
	} {
		text, err := c.tmpl.Render(context.Background(), map[string]any{"link": c.data})
		if (err == nil) != c.ok {
			t.Errorf("%q: %q, %v", c.data, text, err)
		}
	}
}
