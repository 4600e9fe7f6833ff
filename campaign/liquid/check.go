package liquid

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/osteele/liquid/expressions"
	"github.com/osteele/liquid/parser"
)

// part is a tag or an output as it was checked. The template library is given its number
// and nothing of what was written, so that the library runs what was checked.
type part struct {
	line int
	// work is what evaluating it takes, but for comparisons; text is what a pass of a
	// loop writes.
	work, comparisons int

	expr  expressions.Expression // of an output, assign, if, elsif, unless, case
	when  []expressions.Expression
	loop  expressions.Loop
	name  string   // what assign and capture make
	cycle []string // what cycle writes
	group string   // which cycles go on together
	place place
	last  string // the last filter, if it says how to write: raw, escape, escape_once, newline_to_br
	// captured says that the output is what capture made: in HTML that is HTML.
	captured bool
}

// block is a tag that is not closed yet.
type block struct {
	tag    string
	line   int
	part   int
	start  htmlState
	ends   []htmlState // of the branches before this one
	last   bool        // the branch is the last one: else
	hidden *local      // what the loop's variable was before
}

// checker goes through a template once, finds what is wrong with it, and writes what the
// template library is to run.
type checker struct {
	kind    Kind
	given   known
	filters map[string]definition
	locals  map[string]local
	used    map[string]bool // roots of data
	asked   map[string]int  // paths of data, how often each is named
	bare    map[string]int  // of these how often as what a {{ }} writes, without a default

	line     int
	html     htmlState
	tail     string // the text before a tag, of HTML
	trimming bool   // a tag trims what follows it
	blocks   []block
	skipping string // comment or raw, while in one
	skipFrom int
	parts    []part
	out      strings.Builder
	problems []*Error
}

func (c *checker) problem(err error) {
	if err != nil {
		c.problems = append(c.problems, &Error{Line: c.line, Problem: err.Error()})
	}
}

func (c *checker) problemf(format string, args ...any) { c.problem(fmt.Errorf(format, args...)) }

func (c *checker) check(source string) error {
	switch {
	case len(source) > maxSource:
		return &Error{Problem: fmt.Sprintf("the template is over %d KiB", maxSource>>10)}
	case !utf8.ValidString(source):
		return &Error{Problem: "the template is not UTF-8"}
	case strings.ContainsRune(source, 0):
		return &Error{Problem: "the template has a zero byte in it"}
	case c.kind == Subject && strings.ContainsAny(source, "\r\n"):
		return &Error{Line: 1, Problem: "a subject is one line: take the line breaks out of it"}
	}
	for _, t := range parser.Scan(source, parser.SourceLoc{LineNo: 1}, nil) {
		if t.Source == "" {
			continue // which says that a tag trims: the tag says so as well
		}
		c.line = t.SourceLoc.LineNo
		if t.Args == "-" {
			t.Args = "" // the library takes the - of {% else -%} for an argument
		}
		before, commented := c.html, c.skipping == "comment"
		if !commented {
			c.seam(t)
		}
		c.token(t)
		if !commented || c.skipping == "" { // what is within a comment trims nothing; its two tags do
			c.whitespace(t, before)
		}
		if len(c.parts) > maxParts {
			c.problemf("more than %d tags and {{ }}", maxParts)
			return joined(c.problems)
		}
		if len(c.problems) >= maxProblems {
			c.problemf("and perhaps more from here on")
			return joined(c.problems)
		}
	}
	if c.skipping != "" {
		c.line = c.skipFrom
		c.problemf("%s is not closed: end%s is missing", c.skipping, c.skipping)
	}
	for _, b := range c.blocks {
		c.line = b.line
		c.problemf("%s is not closed: end%s is missing", b.tag, b.tag)
	}
	if len(c.problems) == 0 && c.html.mode != inText {
		c.problemf("the template ends %s", c.html.where())
	}
	if len(c.problems) > 0 {
		return joined(c.problems)
	}
	return nil
}

func (c *checker) token(t parser.Token) {
	if n := len(c.blocks); n > 0 && c.blocks[n-1].tag == "case" && len(c.blocks[n-1].ends) == 0 && c.skipping == "" && !mayFollowCase(t) {
		c.problemf("what is between case and its first when is never written")
	}
	switch {
	case c.skipping != "":
		if t.Type == parser.TagTokenType && t.Name == "end"+c.skipping {
			c.out.WriteString(t.Source)
			c.skipping = ""
		} else if c.skipping == "raw" {
			c.out.WriteString(t.Source)
			c.text(t.Source)
		}
	case t.Type == parser.TextTokenType:
		c.strays(t.Source)
		c.text(t.Source)
		c.out.WriteString(t.Source)
	case t.Type == parser.ObjTokenType:
		c.output(t)
	case t.Name == "comment" || t.Name == "raw":
		c.skipping, c.skipFrom = t.Name, c.line
		c.out.WriteString(t.Source)
	default:
		c.tag(t)
	}
}

// whitespace refuses whitespace control where spaces part what must not become one, which
// is where this would no longer know what a browser reads.
func (c *checker) whitespace(t parser.Token, before htmlState) {
	if c.kind != HTML || t.Type == parser.TextTokenType {
		return
	}
	for _, side := range []struct {
		trims bool
		at    htmlState
	}{{t.Source[2] == '-', before}, {t.Source[len(t.Source)-3] == '-', c.html}} {
		if side.trims && !side.at.trims() {
			c.problemf("whitespace control (-) %s: leave it out", side.at.where())
			return
		}
	}
	c.trimming = c.trimming || t.Source[len(t.Source)-3] == '-'
}

// seam refuses a tag that parts what is read as one.
func (c *checker) seam(t parser.Token) {
	if c.kind != HTML || t.Type == parser.TextTokenType || c.skipping == "raw" && t.Name != "endraw" {
		return
	}
	if t.Source[2] == '-' {
		c.tail = strings.TrimSpace(c.tail)
	}
	if piece := c.html.parted(c.tail); piece != "" {
		c.problemf("%s is parted by a tag: write it in one piece", piece)
	}
	c.tail = ""
}

// mayFollowCase reports whether a token may stand before the first when.
func mayFollowCase(t parser.Token) bool {
	switch t.Type {
	case parser.TextTokenType:
		return strings.TrimSpace(t.Source) == ""
	case parser.TagTokenType:
		return t.Name == "when" || t.Name == "else" || t.Name == "endcase" || t.Name == "comment"
	}
	return false
}

// strays finds what would be a tag if it were closed.
func (c *checker) strays(text string) {
	from := c.line
	for _, mark := range []string{"{{", "{%"} {
		if i := strings.Index(text, mark); i >= 0 {
			c.line = from + strings.Count(text[:i], "\n")
			c.problemf("%s is not closed, or not on the same line", mark)
			c.line = from
		}
	}
	if strings.HasSuffix(text, "{") {
		c.line = from + strings.Count(text, "\n")
		c.problemf("{ before a tag: put a space between them")
		c.line = from
	}
}

// text goes on through the template's own text, line by line, so that problems have the
// right one.
func (c *checker) text(text string) {
	for i := len(c.blocks) - 1; i >= 0; i-- {
		if c.blocks[i].tag == "for" {
			c.parts[c.blocks[i].part].work += len(text) / 16
		}
	}
	if c.kind != HTML {
		return
	}
	begins := text
	if c.trimming {
		begins = strings.TrimSpace(text)
	}
	if c.html.mode == inComment && endsComment.MatchString(begins) {
		c.problemf("%s behind a tag is what might end a comment: write --> in one piece, or begin with something else", endsComment.FindString(begins))
	}
	c.tail, c.trimming = text, false
	from := c.line
	for line := range strings.Lines(text) {
		c.problem(c.html.text(line))
		c.line++
	}
	c.line = from
}

// emit writes a tag for the template library, with the whitespace control that it had.
func (c *checker) emit(t parser.Token, name string, number int) {
	left, right := "", ""
	if t.Source[2] == '-' {
		left = "-"
	}
	if t.Source[len(t.Source)-3] == '-' {
		right = "-"
	}
	if number >= 0 {
		name += " " + strconv.Itoa(number)
	}
	c.out.WriteString("{%" + left + " " + name + " " + right + "%}")
}

func (c *checker) add(p part) int {
	p.line = c.line
	c.parts = append(c.parts, p)
	return len(c.parts) - 1
}

// output checks a {{ }}.
func (c *checker) output(t parser.Token) {
	var p part
	if c.kind == HTML {
		var err error
		p.place, err = c.html.output()
		c.problem(err)
	}
	tokens, err := lex(t.Args)
	if err != nil {
		c.problem(err)
		return
	}
	tokens, p.last = c.finals(tokens)
	if p.captured = c.kind == HTML && len(tokens) == 1 && tokens[0].kind == tokenName && c.captured(tokens[0].text); !p.captured {
		c.noCaptures(tokens)
	} else if c.html.mode == inElement {
		p.place = placeAttr // it may have the element's end
	}
	if paths := names(tokens); len(paths) == 1 && len(filtersIn(tokens)) == 0 && c.given.object(paths[0]) {
		c.problemf("%s is an object: write a field of it", strings.Join(paths[0], "."))
	}
	p.expr = c.expr(&p, tokens, t.Args)
	c.writes(tokens)
	c.emit(t, outTag, c.add(p))
}

// finals takes the filters from the end of an output that say how it is written.
func (c *checker) finals(tokens []token) ([]token, string) {
	ends := func(name string) bool {
		n := len(tokens)
		return n > 2 && tokens[n-2].is("|") && tokens[n-1].kind == tokenName && tokens[n-1].text == name
	}
	if ends("raw") {
		return tokens[:len(tokens)-2], "raw"
	}
	if c.kind != HTML {
		return tokens, ""
	}
	last := ""
	if ends("newline_to_br") {
		tokens, last = tokens[:len(tokens)-2], "newline_to_br"
		if c.html.mode != inText {
			c.problemf("newline_to_br %s, where <br /> is no line break", c.html.where())
		}
	}
	switch {
	case ends("escape"): // as all that is written
		tokens = tokens[:len(tokens)-2]
	case ends("escape_once") && last == "":
		tokens, last = tokens[:len(tokens)-2], "escape_once"
	}
	for _, f := range filtersIn(tokens) {
		if f.name == "escape" || f.name == "escape_once" {
			c.problemf("%s is not the last filter, and {{ }} escapes what it writes: leave it out", f.name)
		}
	}
	return tokens, last
}

// captured reports whether a name is of a captured text.
func (c *checker) captured(name string) bool {
	return c.locals[name].by == "capture"
}

// noCaptures refuses captured texts in what makes other values of them: in HTML they are
// HTML, and would be cut in pieces and be escaped again.
func (c *checker) noCaptures(tokens []token) {
	if c.kind != HTML {
		return
	}
	for _, path := range names(tokens) {
		if c.captured(path[0]) {
			c.problemf("%s is HTML that was captured: write it as {{ %s }}, and use filters within the capture", path[0], path[0])
		}
	}
}

// expr checks an expression and makes it ready.
func (c *checker) expr(p *part, tokens []token, source string) expressions.Expression {
	if !c.tokens(p, tokens) {
		return nil
	}
	expr, err := parse(func() (expressions.Expression, error) { return expressions.Parse(expression(tokens)) })
	if err != nil {
		c.problemf("%q is not an expression", shown(source))
	}
	return expr
}

// parse is for the template library's parser, which panics for some errors.
func parse[T any](fn func() (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return fn()
}

func shown(source string) string {
	if len(source) > 60 {
		return strings.ToValidUTF8(source[:60], "") + "…"
	}
	return source
}

// tokens checks the names and filters of an expression, and counts its work.
func (c *checker) tokens(p *part, tokens []token) bool {
	before := len(c.problems)
	p.work += len(tokens)
	for _, t := range tokens {
		switch {
		case t.kind == tokenWord && t.text == "contains", t.kind == tokenMark && strings.ContainsAny(t.text, "=<>") && t.text != "=":
			p.comparisons++
		}
	}
	for _, path := range names(tokens) {
		c.problem(c.name(path))
	}
	for _, f := range filtersIn(tokens) {
		c.problem(c.filter(f))
	}
	return len(c.problems) == before
}

var loopFields = set("first", "last", "index", "index0", "rindex", "rindex0", "length")

func (c *checker) name(path []string) error {
	if path[0] == "forloop" {
		switch {
		case c.loops() == 0:
			return errors.New("forloop outside a for")
		case len(path) == 1 || !loopFields[path[1]]:
			return fmt.Errorf("forloop has %s", strings.Join(sortedKeys(loopFields), ", "))
		}
		return nil
	}
	if _, ok := c.locals[path[0]]; ok {
		return nil
	}
	if !c.given.allows(path) {
		return c.given.undefined(path)
	}
	c.used[path[0]] = true
	c.asked[strings.Join(path, ".")]++
	return nil
}

// writes notes what an output writes as it is, though it may be empty.
func (c *checker) writes(tokens []token) {
	for _, f := range filtersIn(tokens) {
		if f.name == "default" {
			return
		}
	}
	for _, path := range names(tokens) {
		if _, ok := c.locals[path[0]]; !ok {
			c.bare[strings.Join(path, ".")]++
		}
	}
}

// needs are the names that only outputs ask for, and never with a default.
func (c *checker) needs() []string {
	needs := map[string]bool{}
	for path, n := range c.bare {
		if c.asked[path] == n {
			needs[path] = true
		}
	}
	return sortedKeys(needs)
}

func (c *checker) loops() int {
	n := 0
	for _, b := range c.blocks {
		if b.tag == "for" {
			n++
		}
	}
	return n
}

func (c *checker) filter(f applied) error {
	if isFinal(f.name) {
		if f.name == "newline_to_br" && c.kind != HTML {
			return errors.New("newline_to_br makes HTML, and this is none")
		}
		return fmt.Errorf("%s can only be the last filter of {{ }}", f.name)
	}
	d, ok := c.filters[f.name]
	if !ok {
		known := make(map[string]bool)
		for name := range c.filters {
			known[name] = true
		}
		return fmt.Errorf("unknown filter %s: there is %s, raw, newline_to_br", f.name, strings.Join(sortedKeys(known), ", "))
	}
	if n := len(f.args); n < d.min || n > d.max {
		return fmt.Errorf("%s takes %s, and has %d", f.name, d.arguments(), n)
	}
	if f.name == "date" && len(f.args[0]) == 1 && f.args[0][0].kind == tokenString {
		_, err := strftime(f.args[0][0].text, epoch)
		return err
	}
	return nil
}

func (d definition) arguments() string {
	switch {
	case d.max == 0:
		return "no arguments"
	case d.min == d.max && d.max == 1:
		return "one argument"
	case d.min == d.max:
		return fmt.Sprintf("%d arguments", d.max)
	}
	return fmt.Sprintf("from %d to %d arguments", d.min, d.max)
}
