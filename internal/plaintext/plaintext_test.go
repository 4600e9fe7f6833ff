package plaintext_test

import (
	"html"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/internal/plaintext"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"<p>One</p><p>Two\n three</p>", "One\n\nTwo three"},
		{"a<br>b<br><br>c<br/><br><br>d", "a\nb\n\nc\n\nd"},
		{"<div>a</div><div><div>b</div></div>c", "a\nb\nc"},
		{"<h1>Hello</h1>text<h2>And</h2>more", "Hello\n\ntext\n\nAnd\n\nmore"},
		{"a <b> bold</b><i>,</i> word &amp; &uuml;&nbsp;x", "a bold, word & ü\u00a0x"},
		{`See <a href="https://example.com/a?b=1&amp;c=2">the page</a>.`, "See the page (https://example.com/a?b=1&c=2)."},
		{`<a href="https://example.com/">https://example.com/</a>, <a href="https://example.com/">example.com</a>`, "https://example.com/, example.com"},
		{`<a href="mailto:bob@example.com">bob@example.com</a> <a href="tel:+1555">call</a>`, "bob@example.com call (tel:+1555)"},
		{`<a href="#top">top</a> <a href="javascript:alert(1)">x</a> <a name="y">y</a> <a href="/rel">rel</a>`, "top x y rel"},
		{`<a href="https://example.com"><img src="x.png" alt="Logo"></a><a href="https://example.org"><img src="y.png"></a>`, "Logo (https://example.com)https://example.org"},
		{"<ul><li>a<li>b<ul><li>c</ul><li><p>d</p></ul>e", "- a\n- b\n  - c\n\n- d\n\ne"},
		{"<ol><li>a</li><li>b<br>more</li></ol>", "1. a\n2. b\n  more"},
		{"<ul><li>a<li> <li><img src=x></ul>e<ol><li></li><li>b</ol>", "- a\n\ne\n\n2. b"},
		{"<p>He:</p><blockquote>quoth<p>more</p></blockquote>I", "He:\n\n> quoth\n\n> more\n\nI"},
		{"<pre>a  b\n\n  c\n</pre>d", "a  b\n\n  c\n\nd"},
		{"<table><tr><td>a<td>b</tr><tr><th>c</th></tr></table>", "a b\nc"},
		{"<head><title>T</title><style>p{}</style></head><body><script>x()</script>b<!-- c --><noscript>n</noscript></body>", "b"},
		{`<div style="display: none">preheader</div><p hidden>h</p>seen<span style="color:red">!</span>`, "seen!"},
		{"a<hr>b", "a\n----\nb"},
		{"<p>", ""},
		{`<img src="cid:x">`, ""},
		{"x < y > z & <unknown>k</unknown>", "x < y > z & k"},
		{"<p>a\r\nb\tc</p>", "a b c"},
	} {
		if diff := cmp.Diff(c.want, plaintext.Of(c.in)); diff != "" {
			t.Errorf("%s: %s", c.in, diff)
		}
	}
}

// words are those of a text, with a space between, as HTML shows them.
func words(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n\f", r) }), " ")
}

// Whatever is taken for HTML ends in lines that are as they should be, and whatever is written in HTML as a text
// is read as it is, or not at all where nobody sees it.
func FuzzOf(f *testing.F) {
	for _, seed := range []string{
		"<p>a<ul><li><a href=https://x>b</a><blockquote><pre>c\nd",
		strings.Repeat("<div>", 2000) + "x",
		" two  words\n&amp; a &lt;b&gt;</p> <script>x</script>--> ",
		"https://example.com/kept",
		"<ul>a<br><br><br>b<li></ul><hr>c<xmp><i></xmp>",
		"<PRE>\n\n  a \n \n\nb</PRE>",
		"x\x00y\xffz \u00a0\u2028 '\"",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		checkLines(t, in)
		checkWithin(t, strings.ReplaceAll(in, "\x00", "")) // HTML has none
	})
}

// checkLines takes in for HTML.
func checkLines(t *testing.T, in string) {
	t.Helper()
	text, lower := plaintext.Of(in), strings.ToLower(in)
	if plaintext.Of(in) != text {
		t.Errorf("%q: another text the second time", in)
	}
	if utf8.ValidString(in) && !utf8.ValidString(text) {
		t.Errorf("%q: %q is not UTF-8", in, text)
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasSuffix(line, " ") {
			t.Errorf("%q: the line %q ends with a space", in, line)
		}
	}
	// What stands before each line, and a link in each of its paragraphs, may make it longer than that.
	grows := slices.ContainsFunc([]string{"<a", "<ul", "<ol", "<li", "<blockquote"}, func(tag string) bool { return strings.Contains(lower, tag) })
	if !grows && len(text) > 6*len(in) {
		t.Errorf("%q: a text of %d bytes", in, len(text))
	}
	if strings.Contains(lower, "<pre") {
		return // whose lines are its own
	}
	if strings.Trim(text, "\n") != text || strings.Contains(text, "\n\n\n") {
		t.Errorf("%q: %q begins or ends with a blank line, or has two of them together", in, text)
	}
	if strings.ContainsAny(text, "\x00\r") {
		return // which HTML has not, or for an end of line
	}
	if got := plaintext.Of("<pre>" + html.EscapeString(text) + "</pre>"); got != text {
		t.Errorf("%q: %q becomes %q where all is kept", in, text, got)
	}
}

// checkWithin puts text into HTML.
func checkWithin(t *testing.T, text string) {
	t.Helper()
	said, once := html.EscapeString(text), words(text)
	item, quote, twice := "", "", ""
	if once != "" {
		item, quote, twice = "- "+once, "> "+once, once+"\n\n"+once
	}
	for in, want := range map[string]string{
		"<p>" + said: once,
		`<div class="a"><b>` + said + "</b></div>": once,
		"<table><tr><td>" + said + "</table>":      once,
		`<img alt="` + said + `">`:                 once,
		"<p>" + said + "</p><p>" + said + "</p>":   twice,
		"<ul><li>" + said + "</ul>":                item,
		"<blockquote>" + said + "</blockquote>":    quote,
		"<p hidden>" + said + "</p>":               "",
		"<script>" + said + "</script>":            "",
		"<style>" + said + "</style>":              "",
		"<!--" + said + "-->":                      "",
	} {
		if got := plaintext.Of(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	got := plaintext.Of(`<p><a href="https://example.com/kept">` + said + `</a></p>`)
	if !strings.HasPrefix(got, once) || !strings.Contains(got, "example.com/kept") {
		t.Errorf("the link %q: %q", text, got)
	}
}
