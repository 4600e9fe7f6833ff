package plaintext_test

import (
	"strings"
	"testing"

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

// Any HTML ends in some text, of lines that are no longer than it needs, and without what would
// end a line twice.
func FuzzOf(f *testing.F) {
	f.Add("<p>a<ul><li><a href=https://x>b</a><blockquote><pre>c\nd")
	f.Add(strings.Repeat("<div>", 2000) + "x")
	f.Fuzz(func(t *testing.T, in string) {
		text := plaintext.Of(in)
		if strings.TrimSpace(text) != text && !strings.Contains(in, "<pre") && strings.TrimSpace(in) == in && strings.Trim(text, "\n") != text {
			t.Errorf("%q begins or ends with a blank line", text)
		}
		if plaintext.Of(in) != text {
			t.Error("another text the second time")
		}
	})
}
