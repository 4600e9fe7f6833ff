package liquid

import (
	"errors"
	"fmt"
	"strings"

	"github.com/osteele/liquid/expressions"
	"github.com/osteele/liquid/parser"
)

// outTag is what a {{ }} becomes; no template can say it.
const outTag = "_out"

// tag checks a {% %}.
func (c *checker) tag(t parser.Token) {
	switch t.Name {
	case "if", "unless", "case":
		c.open(t, c.conditional(t))
	case "for":
		c.openFor(t)
	case "capture":
		c.openCapture(t)
	case "elsif", "else", "when":
		c.branch(t)
	case "endif", "endunless", "endcase", "endfor", "endcapture":
		c.close(t)
	case "assign":
		c.assign(t)
	case "cycle":
		c.cycle(t)
	case "break", "continue":
		c.leave(t)
	case "include", "render", "layout", "section":
		c.problemf("%s would read a file: a template is one text", t.Name)
	case "tablerow", "endtablerow":
		c.problemf("tablerow is not supported: write the table's rows with for")
	default:
		c.problemf("unknown tag %s: there is assign, break, capture, case, comment, continue, cycle, for, if, raw, unless", t.Name)
	}
}

func (c *checker) conditional(t parser.Token) part {
	var p part
	tokens, err := lex(t.Args)
	switch {
	case err != nil:
		c.problem(err)
	case len(tokens) == 0:
		c.problemf("%s without a condition", t.Name)
	default:
		p.expr = c.expr(&p, tokens, t.Args)
	}
	return p
}

func (c *checker) open(t parser.Token, p part) {
	if len(c.blocks) >= maxNesting {
		c.problemf("%s within more than %d others", t.Name, maxNesting-1)
	}
	number := c.add(p)
	c.emit(t, t.Name, number)
	c.blocks = append(c.blocks, block{tag: t.Name, line: c.line, part: number, start: c.html})
}

// openFor checks a loop: name in array, and reversed, limit: and offset: in any order.
func (c *checker) openFor(t parser.Token) {
	var p part
	if c.loops() >= maxLoops {
		c.problemf("for within %d others: at most %d loops are within each other", c.loops(), maxLoops)
	}
	tokens, err := lex(t.Args)
	if err != nil {
		c.problem(err)
	} else if len(tokens) < 3 || tokens[0].kind != tokenName || tokens[1].kind != tokenWord || tokens[1].text != "in" {
		c.problemf("for is written as: for item in items")
	} else {
		c.noCaptures(tokens[2:])
		if c.tokens(&p, tokens[2:]) {
			stmt, err := parse(func() (*expressions.Statement, error) {
				return expressions.ParseStatement(expressions.LoopStatementSelector, expression(tokens))
			})
			if err != nil || stmt.Cols != nil {
				c.problemf("%q is not a loop: write for item in items, with reversed, limit: and offset: if need be", shown(t.Args))
			} else {
				p.loop = stmt.Loop
			}
		}
	}
	c.open(t, p)
	if err == nil && len(tokens) > 0 {
		if was, ok := c.locals[tokens[0].text]; ok {
			c.blocks[len(c.blocks)-1].hidden = &was
		}
		c.problem(c.declare(tokens[0].text, "for"))
		c.parts[len(c.parts)-1].name = tokens[0].text
	}
}

// openCapture checks a capture. In HTML what is captured is HTML by itself.
func (c *checker) openCapture(t parser.Token) {
	name := strings.TrimSpace(t.Args)
	c.problem(c.declare(name, "capture"))
	if c.html.mode != inText && c.html.mode != inQuotes {
		c.problemf("capture %s: put it before", c.html.where())
	}
	c.open(t, part{name: name})
	c.html = htmlState{}
}

func (c *checker) branch(t parser.Token) {
	if len(c.blocks) == 0 {
		c.problemf("%s outside a block", t.Name)
		return
	}
	b := &c.blocks[len(c.blocks)-1]
	allowed := map[string]string{"if": "elsif else", "unless": "elsif else", "case": "when else", "for": "else"}[b.tag]
	switch {
	case !strings.Contains(" "+allowed+" ", " "+t.Name+" "):
		c.problemf("%s is not part of %s, which began in line %d", t.Name, b.tag, b.line)
		return
	case b.last:
		c.problemf("%s after else", t.Name)
	}
	b.ends = append(b.ends, c.html)
	c.html = b.start
	b.last = t.Name == "else"
	switch t.Name {
	case "else":
		if t.Args != "" {
			c.problemf("else has no condition: write elsif")
		}
		c.emit(t, t.Name, -1)
	case "elsif":
		c.emit(t, t.Name, c.add(c.conditional(t)))
	case "when":
		c.emit(t, t.Name, c.add(c.when(t)))
	}
}

func (c *checker) when(t parser.Token) part {
	var p part
	tokens, err := lex(t.Args)
	if err != nil {
		c.problem(err)
		return p
	}
	if !c.tokens(&p, tokens) {
		return p
	}
	stmt, err := parse(func() (*expressions.Statement, error) {
		return expressions.ParseStatement(expressions.WhenStatementSelector, expression(tokens))
	})
	if err != nil {
		c.problemf("%q is no list of values: write when 1, 2", shown(t.Args))
		return p
	}
	p.when, p.comparisons = stmt.Exprs, p.comparisons+len(stmt.Exprs)
	return p
}

func (c *checker) close(t parser.Token) {
	tag := strings.TrimPrefix(t.Name, "end")
	if len(c.blocks) == 0 || c.blocks[len(c.blocks)-1].tag != tag {
		if len(c.blocks) == 0 {
			c.problemf("%s without %s", t.Name, tag)
			return
		}
		b := c.blocks[len(c.blocks)-1]
		c.problemf("%s closes %s, but %s, which began in line %d, is not closed", t.Name, tag, b.tag, b.line)
		for i := len(c.blocks) - 1; i >= 0; i-- {
			if c.blocks[i].tag == tag {
				c.blocks = c.blocks[:i]
				return
			}
		}
		return
	}
	b := c.blocks[len(c.blocks)-1]
	c.blocks = c.blocks[:len(c.blocks)-1]
	c.emit(t, t.Name, -1)
	c.settle(b)
	if b.tag == "for" {
		name := c.parts[b.part].name
		if delete(c.locals, name); b.hidden != nil {
			c.locals[name] = *b.hidden
		}
	}
}

// settle finds where the page is after a block: the same place, whichever way it went.
func (c *checker) settle(b block) {
	if c.kind != HTML {
		return
	}
	ends := append(b.ends, c.html)
	switch b.tag {
	case "capture":
		if c.html.mode != inText {
			c.problemf("the capture that began in line %d ends %s: capture whole tags", b.line, c.html.where())
		}
		c.html = b.start
		return
	case "for":
		ends = append(ends, b.start)
	case "case": // its first piece is before the first when, and never written
		ends = ends[1:]
	}
	if !b.last && b.tag != "for" {
		ends = append(ends, b.start)
	}
	at, ok := meet(ends)
	if !ok {
		c.problemf("the %s that began in line %d ends in different places, as its branches go: %s; write whole tags and attributes into each branch",
			b.tag, b.line, places(ends))
	}
	c.html = at
}

func places(ends []htmlState) string {
	var list []string
	for _, h := range ends {
		list = append(list, h.where())
	}
	return strings.Join(list, ", ")
}

func (c *checker) assign(t parser.Token) {
	var p part
	tokens, err := lex(t.Args)
	if err != nil {
		c.problem(err)
		return
	}
	if len(tokens) < 3 || tokens[0].kind != tokenName || !tokens[1].is("=") {
		c.problemf("assign is written as: assign name = value")
		return
	}
	value := tokens[2:]
	c.noCaptures(value)
	for _, f := range filtersIn(value) {
		if c.kind == HTML && (f.name == "escape" || f.name == "escape_once") {
			c.problemf("%s in assign: {{ }} escapes what it writes, so leave it out", f.name)
		}
	}
	if c.tokens(&p, value) {
		stmt, err := parse(func() (*expressions.Statement, error) {
			return expressions.ParseStatement(expressions.AssignStatementSelector, expression(tokens))
		})
		if err != nil {
			c.problemf("%q is no assignment", shown(t.Args))
		} else {
			p.expr = stmt.ValueFn
		}
	}
	p.name = tokens[0].text
	c.problem(c.declare(p.name, "assign"))
	c.emit(t, "assign", c.add(p))
}

// cycle writes one of several texts of the template's own, the next one each time.
func (c *checker) cycle(t parser.Token) {
	tokens, err := lex(t.Args)
	if err != nil {
		c.problem(err)
		return
	}
	var p part
	if p.cycle, p.group, err = cycleOf(tokens); err != nil {
		c.problem(err)
		return
	}
	if c.loops() == 0 {
		c.problemf("cycle outside a for")
	}
	if c.kind == HTML {
		before := c.html
		for _, text := range p.cycle {
			after := before
			c.problem(after.text(text))
			if after != before {
				c.problemf("cycle writes a piece of a tag: write texts, or values of an attribute")
				break
			}
		}
	}
	c.emit(t, "cycle", c.add(p))
}

func cycleOf(tokens []token) (values []string, group string, err error) {
	err = errors.New(`cycle is written as: cycle "odd", "even"`)
	if len(tokens) > 2 && tokens[0].kind == tokenString && tokens[1].is(":") {
		group, tokens = tokens[0].text, tokens[2:]
	}
	for i, t := range tokens {
		if i%2 == 0 && t.kind != tokenString || i%2 == 1 && !t.is(",") {
			return nil, "", err
		}
		if i%2 == 0 {
			values = append(values, t.text)
		}
	}
	if len(tokens)%2 == 0 {
		return nil, "", err
	}
	if group == "" {
		group = strings.Join(values, "\x00")
	}
	return values, group, nil
}

// leave checks break and continue, after which the page is where the loop began.
func (c *checker) leave(t parser.Token) {
	var loop *block
	for i := range c.blocks {
		switch c.blocks[i].tag {
		case "for":
			loop = &c.blocks[i]
		case "capture":
			loop = nil
		}
	}
	switch {
	case loop == nil:
		c.problemf("%s outside a for", t.Name)
		return
	case t.Args != "":
		c.problemf("%s takes nothing", t.Name)
	case c.kind == HTML && c.html != loop.start:
		c.problem(fmt.Errorf("%s %s: leave the loop where it began", t.Name, c.html.where()))
	}
	c.emit(t, t.Name, c.add(part{}))
}
