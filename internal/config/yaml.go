package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	maxFile  = 256 << 10 // bytes
	maxDepth = 100       // of values in values
	maxMerge = 10_000    // entries that merge keys bring in, in all
)

type kind string

const (
	broken  kind = "" // a problem has been reported
	null    kind = "nothing"
	text    kind = "text"
	integer kind = "a whole number"
	float   kind = "a number"
	boolean kind = "true or false"
	mapping kind = "a mapping"
	list    kind = "a list"
)

// node is a value of the file, with anchors, aliases, merges and tags resolved.
// An aliased value is shared, not copied, so that a small file stays small.
type node struct {
	kind    kind
	line    int
	text    string  // of a scalar
	number  any     // of an integer: int64 or uint64
	entries []entry // of a mapping, in the order of the file
	items   []*node // of a list
}

type entry struct {
	key   string
	line  int
	value *node
}

func (n *node) entry(key string) (entry, bool) {
	i := slices.IndexFunc(n.entries, func(e entry) bool { return e.key == key })
	if i < 0 {
		return entry{}, false
	}
	return n.entries[i], true
}

// parseYAML returns the file's mapping, or nil if a problem leaves nothing to
// look at.
func parseYAML(r *reader, data []byte) *node {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(data) > maxFile {
		r.problemf(1, "", "the file is larger than %d bytes", maxFile)
		return nil
	}
	if at := invalidUTF8(data); at >= 0 {
		r.problemf(1+bytes.Count(data[:at], []byte("\n")), "", "not UTF-8")
		return nil
	}
	// The parser miscounts lines where they end in CRLF.
	file, err := parseTokens(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data)))
	if err != nil {
		line, message := syntaxProblem(err)
		r.problemf(line, "", "%s", message)
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType {
			continue
		}
		if body != nil {
			r.problemf(lineOf(doc.Body), "", "a second document begins here; put all into one")
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		r.problemf(1, "", "the file is empty; it wants at least a topic and its sink, such as\n"+
			"  topics: {orders: {sink: printer}}\n"+
			"  sinks: {printer: {type: print}}")
		return nil
	}
	c := &converter{reader: r, anchors: map[string]*node{}}
	root := c.node(body, "", 0)
	if root.kind == mapping {
		return root
	}
	if root.kind != broken {
		r.problemf(root.line, "", "want a mapping with keys such as topics and sinks, got %s", root.kind)
	}
	return nil
}

func invalidUTF8(data []byte) int {
	for at := 0; at < len(data); {
		c, size := utf8.DecodeRune(data[at:])
		if c == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

// parseTokens turns a panic of the parser into an error: the file is a user's,
// and no text of theirs may end the process.
func parseTokens(text string) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, errors.New("not valid YAML: the parser gave up on it")
		}
	}()
	tokens := lexer.Tokenize(text)
	if line := tooDeep(tokens); line > 0 {
		return nil, &yaml.SyntaxError{
			Message: fmt.Sprintf("values are nested more than %d deep", maxDepth),
			Token:   &token.Token{Position: &token.Position{Line: line}},
		}
	}
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// tooDeep returns the line on which values are nested too deeply for a parser
// that recurses, or 0. Nesting takes brackets, indentation, or several marks
// on one line.
func tooDeep(tokens token.Tokens) int {
	brackets, marks, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			marks, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets = max(0, brackets-1)
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			marks++
		}
		if brackets > maxDepth || marks > 10*maxDepth || t.Position.Column > 10*maxDepth && t.Type == token.SequenceEntryType {
			return line
		}
	}
	return 0
}

// syntaxProblem takes from a parser's error what may be shown: its full text
// quotes the file, which may hold what should have been a secret.
func syntaxProblem(err error) (line int, message string) {
	e, ok := errors.AsType[*yaml.SyntaxError](err)
	if !ok {
		return 1, "not valid YAML"
	}
	line = 1
	if e.Token != nil && e.Token.Position != nil {
		line = max(1, e.Token.Position.Line)
	}
	if strings.ContainsAny(e.Message, "\"`") {
		return line, "not valid YAML"
	}
	return line, "not valid YAML: " + e.Message
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// converter turns the parser's tree into nodes.
type converter struct {
	*reader
	anchors map[string]*node
	merged  int // entries that merge keys have brought in
}

func (c *converter) node(n ast.Node, path string, depth int) *node {
	if n == nil {
		return &node{kind: null}
	}
	out := &node{line: lineOf(n)}
	if depth > maxDepth {
		c.problemf(out.line, path, "values are nested more than %d deep", maxDepth)
		return out
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		if whole, ok := plainText(n.Values); ok && n.Start.Type != token.MappingStartType {
			out.kind, out.text = text, whole
			break
		}
		c.mapping(out, n.Values, path, depth)
	case *ast.MappingValueNode:
		c.mapping(out, []*ast.MappingValueNode{n}, path, depth)
	case *ast.SequenceNode:
		out.kind = list
		for _, item := range n.Values {
			out.items = append(out.items, c.node(item, path, depth+1))
		}
	case *ast.AnchorNode:
		out = c.node(n.Value, path, depth+1)
		// Registered after its value, so that no value can hold itself.
		c.anchors[n.Name.GetToken().Value] = out
	case *ast.AliasNode:
		target, ok := c.anchors[n.Value.GetToken().Value]
		if !ok {
			c.problemf(out.line, path, "no anchor of this alias's name stands before it")
			return out
		}
		line := out.line
		*out = *target
		out.line = line
	case *ast.TagNode:
		return c.tagged(n, path, depth)
	default:
		c.scalar(out, n, path)
	}
	return out
}

// plainText undoes a mistake of the parser: in brackets within braces it takes
// host:9092 for a pair. A colon parts a key from a value only before a space.
func plainText(pairs []*ast.MappingValueNode) (string, bool) {
	if len(pairs) != 1 {
		return "", false
	}
	n := pairs[0]
	key, value := n.Key.GetToken(), n.Value.GetToken()
	if n.Start == nil || key.Next != n.Start || n.Start.Next != value || key.Type == token.DoubleQuoteType || key.Type == token.SingleQuoteType {
		return "", false
	}
	switch n.Value.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
	default:
		return "", false
	}
	k, colon, v := key.Position, n.Start.Position, value.Position
	if k.Line != v.Line || colon.Column != k.Column+len([]rune(key.Value)) || v.Column != colon.Column+1 {
		return "", false
	}
	return key.Value + ":" + value.Value, true
}

func (c *converter) scalar(out *node, n ast.Node, path string) {
	switch n := n.(type) {
	case *ast.StringNode:
		out.kind, out.text = text, n.Value
	case *ast.LiteralNode:
		out.kind, out.text = text, n.Value.Value
	case *ast.IntegerNode:
		out.kind, out.text, out.number = integer, n.Token.Value, n.Value
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind, out.text = float, n.GetToken().Value
	case *ast.BoolNode:
		out.kind, out.text = boolean, n.Token.Value
	case *ast.NullNode:
		out.kind = null
	default:
		c.problemf(out.line, path, "this kind of YAML has no meaning here")
	}
}

func (c *converter) tagged(n *ast.TagNode, path string, depth int) *node {
	out := c.node(n.Value, path, depth+1)
	switch token.ReservedTagKeyword(n.Start.Value) {
	case token.StringTag:
		if out.kind == integer || out.kind == float || out.kind == boolean {
			out.kind = text
		}
	case token.IntegerTag, token.FloatTag, token.BooleanTag, token.NullTag, token.MappingTag, token.SequenceTag:
	default:
		c.problemf(lineOf(n), path, "this tag has no meaning here")
		return &node{line: lineOf(n)}
	}
	return out
}

func (c *converter) mapping(out *node, values []*ast.MappingValueNode, path string, depth int) {
	out.kind = mapping
	var merged []*node
	at := map[string]int{} // where an entry of out stands
	for _, v := range values {
		line := lineOf(v.Key)
		if v.Key.IsMergeKey() {
			merged = append(merged, c.mergees(v.Value, path, depth)...)
			continue
		}
		key, ok := c.key(v.Key)
		if !ok {
			c.problemf(line, path, "a key must be plain text")
			continue
		}
		value := c.node(v.Value, join(path, key), depth+1)
		if value.line == 0 {
			value.line = line
		}
		if first, twice := at[key]; twice {
			c.problemf(line, join(path, key), "given twice; the first time in line %d", out.entries[first].line)
			continue
		}
		at[key] = len(out.entries)
		out.entries = append(out.entries, entry{key: key, line: line, value: value})
	}
	// A mapping's own keys go before merged ones, and an earlier merge before a
	// later one.
	for _, m := range merged {
		if c.merged += len(m.entries); c.merged > maxMerge {
			c.problemf(out.line, path, "merge keys bring in more than %d entries", maxMerge)
			return
		}
		for _, e := range m.entries {
			if _, have := at[e.key]; !have {
				at[e.key] = len(out.entries)
				out.entries = append(out.entries, e)
			}
		}
	}
}

// mergees returns the mappings that the value of a merge key names.
func (c *converter) mergees(value ast.Node, path string, depth int) []*node {
	n := c.node(value, path, depth+1)
	nodes := []*node{n}
	if n.kind == list {
		nodes = n.items
	}
	for _, m := range nodes {
		if m.kind != mapping && m.kind != broken {
			c.problemf(max(1, m.line), path, "<<: wants a mapping, or a list of mappings, got %s", m.kind)
		}
	}
	return nodes
}

func (c *converter) key(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.MappingKeyNode:
		if n.Value != nil {
			return c.key(n.Value)
		}
	case *ast.AnchorNode:
		key, ok := c.key(n.Value)
		c.anchors[n.Name.GetToken().Value] = &node{kind: text, line: lineOf(n), text: key}
		return key, ok
	case *ast.AliasNode:
		target, ok := c.anchors[n.Value.GetToken().Value]
		return targetText(target), ok && target.kind == text
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func targetText(n *node) string {
	if n == nil {
		return ""
	}
	return n.text
}
