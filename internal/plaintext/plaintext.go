// Package plaintext makes a text of HTML, for e-mails that have no other: what somebody
// reads whose program shows no HTML. The same HTML has always the same text.
package plaintext

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Of returns the text of an HTML document, or part of one: paragraphs with a blank line
// between, lists with marks, links as text (URL), images as what stands for them. What is
// hidden, scripts and styles are left out. "" is what nothing can be read of.
func Of(document string) string {
	root, err := html.Parse(strings.NewReader(document))
	if err != nil {
		return ""
	}
	w := &writer{}
	w.node(root)
	w.end(0)
	return strings.Join(w.lines, "\n")
}

// writer puts words behind one another, with a space, a line's end or a blank line between.
type writer struct {
	lines  []string
	line   strings.Builder // the last one
	space  bool            // before the next word
	blank  bool            // before the next line
	lists  []int           // one within another: the number of the next item, 0 where there are none
	mark   string          // of the item that begins with the next line
	quotes int             // one within another
	kept   bool            // white space is
}

// word writes what has no line's end in it.
func (w *writer) word(text string) {
	if w.line.Len() == 0 {
		margin := strings.Repeat("> ", w.quotes)
		if w.blank && len(w.lines) > 0 {
			w.lines = append(w.lines, "")
		}
		w.line.WriteString(margin + strings.Repeat("  ", max(0, len(w.lists)-min(1, len(w.mark)))) + w.mark)
		w.mark, w.blank = "", false
	} else if w.space {
		w.line.WriteByte(' ')
	}
	w.line.WriteString(text)
	w.space = false
}

// end ends a line; after 2 of them the next one follows a blank one.
func (w *writer) end(apart int) {
	if w.line.Len() > 0 {
		w.lines = append(w.lines, strings.TrimRight(w.line.String(), " "))
		w.line.Reset()
	}
	w.space, w.blank = false, w.blank || apart > 1
}

func (w *writer) node(n *html.Node) {
	switch n.Type {
	case html.TextNode:
		w.text(n.Data)
		return
	case html.ElementNode:
		if !isHidden(n) {
			w.element(n)
		}
		return
	}
	w.children(n)
}

func (w *writer) children(n *html.Node) {
	for c := range n.ChildNodes() {
		w.node(c)
	}
}

func (w *writer) element(n *html.Node) {
	switch n.DataAtom {
	case atom.Script, atom.Style, atom.Head, atom.Template, atom.Noscript, atom.Iframe, atom.Object, atom.Select, atom.Textarea:
	case atom.Br:
		w.end(2 - min(1, w.line.Len()))
	case atom.Hr:
		w.block(1, func() { w.word("----") })
	case atom.Img:
		w.text(attribute(n, "alt"))
	case atom.A:
		w.link(n)
	case atom.Pre:
		was := w.kept
		w.block(2, func() { w.kept = true; w.children(n); w.kept = was })
	case atom.Blockquote:
		w.block(2, func() { w.quotes++; w.children(n); w.end(1); w.quotes-- })
	case atom.Ul, atom.Ol:
		next := 0
		if n.DataAtom == atom.Ol {
			next = 1
		}
		apart := 2
		if len(w.lists) > 0 {
			apart = 1
		}
		w.block(apart, func() { w.lists = append(w.lists, next); w.children(n); w.end(1); w.lists = w.lists[:len(w.lists)-1] })
	case atom.Li:
		w.block(1, func() { w.item(); w.children(n); w.mark = "" }) // which an empty one has still
	case atom.Td, atom.Th:
		w.space = true
		w.children(n)
		w.space = true
	case atom.P, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Dl, atom.Figure, atom.Table:
		w.block(2, func() { w.children(n) })
	case atom.Div, atom.Section, atom.Article, atom.Header, atom.Footer, atom.Main, atom.Nav, atom.Aside, atom.Address, atom.Tr, atom.Dt, atom.Dd,
		atom.Figcaption, atom.Caption, atom.Fieldset, atom.Form, atom.Center, atom.Body:
		w.block(1, func() { w.children(n) })
	default:
		w.children(n)
	}
}

// isHidden reports whether nobody sees an element: the line that mail programs show beside
// the subject stands in one.
func isHidden(n *html.Node) bool {
	for _, a := range n.Attr {
		if a.Key == "hidden" || a.Key == "style" && strings.Contains(strings.ToLower(strings.Join(strings.Fields(a.Val), "")), "display:none") {
			return true
		}
	}
	return false
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// block is what begins a line and ends one; with 2 there is a blank one on both sides.
func (w *writer) block(apart int, inside func()) {
	w.end(apart)
	inside()
	w.end(apart)
}

// item numbers the next item of the innermost list.
func (w *writer) item() {
	w.mark = "- "
	if last := len(w.lists) - 1; last >= 0 && w.lists[last] > 0 {
		w.mark = fmt.Sprintf("%d. ", w.lists[last])
		w.lists[last]++
	}
}

// link writes its text and behind it where it leads, unless that is what it says.
func (w *writer) link(n *html.Node) {
	w.children(n)
	said := strings.Join(strings.Fields(said(n)), " ")
	to := strings.TrimSpace(attribute(n, "href"))
	scheme, rest, _ := strings.Cut(to, ":")
	switch strings.ToLower(scheme) {
	case "http", "https", "mailto", "tel":
		rest = strings.TrimPrefix(rest, "//")
	default:
		return // it leads nowhere from a text
	}
	switch {
	case strings.ContainsFunc(to, unicode.IsSpace), strings.ContainsFunc(to, unicode.IsControl):
	case said == to, said == rest, said == strings.TrimSuffix(rest, "/"):
	case said == "":
		w.word(to)
	default:
		w.space = true
		w.word("(" + to + ")")
	}
}

// said is what can be read of an element.
func said(n *html.Node) string {
	switch {
	case n.Type == html.TextNode:
		return n.Data
	case n.DataAtom == atom.Img:
		return attribute(n, "alt")
	}
	var b strings.Builder
	for c := range n.ChildNodes() {
		b.WriteString(said(c) + " ")
	}
	return b.String()
}

// text writes a text, whose white space means no more than a space, if it is not kept.
func (w *writer) text(text string) {
	if w.kept {
		for i, line := range strings.Split(text, "\n") {
			if i > 0 {
				w.end(2 - min(1, w.line.Len()))
			}
			if line != "" {
				w.word(line)
			}
		}
		return
	}
	const white = " \t\r\n\f"
	for i, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(white, r) }) {
		w.space = w.space || i > 0 || strings.ContainsAny(text[:1], white)
		w.word(word)
	}
	w.space = w.space || text != "" && strings.ContainsAny(text[len(text)-1:], white)
}
