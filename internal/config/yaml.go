package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	maxFile  = 256 << 10 // bytes
	maxDepth = 100       // of values in values
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

// node is a value of the file.
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

// got is what a number is wanted instead of: a text may be a secret, and is not
// repeated.
func (n *node) got() string {
	if n.kind == integer || n.kind == float {
		return n.text
	}
	return string(n.kind)
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
	docs, err := decode(data)
	if err != nil {
		line, message := syntaxProblem(data, err)
		r.problemf(line, "", "%s", message)
		return nil
	}
	switch len(docs) {
	case 0:
		r.problemf(1, "", "the file is empty; it wants at least a topic and its sink, such as\n"+
			"  topics: {orders: {sink: printer}}\n"+
			"  sinks: {printer: {type: print}}")
		return nil
	case 1:
	default:
		r.problemf(docs[1].Line, "", "a second document begins here; put all into one")
		return nil
	}
	c := &converter{reader: r}
	root := c.node(docs[0], "", 0)
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

// decode returns the file's documents, but for those that are empty. It turns a
// panic of the parser into an error: the file is a user's, and no text of theirs
// may end the process.
func decode(data []byte) (docs []*yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			docs, err = nil, errors.New("yaml: the parser gave up on it")
		}
	}()
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil {
			return nil, err
		}
		if body := doc.Content[0]; body.ShortTag() != "!!null" {
			docs = append(docs, body)
		}
	}
}

// problemText is how the parser words an error. For what it did not find it counts
// lines from 0.
var (
	problemText  = regexp.MustCompile(`^yaml: (?:line (\d+): )?((did not find expected (?:key|'))?.*)$`)
	quotedName   = regexp.MustCompile(`['"]\S*\w\S*['"]`)
	unknownAlias = regexp.MustCompile(`^yaml: unknown anchor '(.*)' referenced$`)
)

// syntaxProblem takes from a parser's error what may be shown: it may quote the
// file, which may hold what should have been a secret.
func syntaxProblem(data []byte, err error) (line int, message string) {
	if alias := unknownAlias.FindStringSubmatch(err.Error()); alias != nil {
		before, _, _ := bytes.Cut(data, []byte("*"+alias[1]))
		return 1 + bytes.Count(before, []byte("\n")), noAnchors
	}
	parts := problemText.FindStringSubmatch(err.Error())
	if parts == nil || quotedName.MatchString(parts[2]) {
		return 1, "not valid YAML"
	}
	line, _ = strconv.Atoi(parts[1])
	if parts[3] != "" {
		line++
	}
	return max(1, line), "not valid YAML: " + parts[2]
}

const noAnchors = "anchors and aliases (&name, *name) have no meaning here; write the value out"

// converter turns the parser's tree into nodes.
type converter struct{ *reader }

func (c *converter) node(n *yaml.Node, path string, depth int) *node {
	out := &node{line: n.Line}
	switch {
	case depth > maxDepth:
		c.problemf(n.Line, path, "values are nested more than %d deep", maxDepth)
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		c.problemf(n.Line, path, "%s", noAnchors)
	case n.Kind == yaml.MappingNode && n.ShortTag() == "!!map":
		c.mapping(out, n, path, depth)
	case n.Kind == yaml.SequenceNode && n.ShortTag() == "!!seq":
		out.kind = list
		for _, item := range n.Content {
			out.items = append(out.items, c.node(item, path, depth+1))
		}
	case n.Kind == yaml.ScalarNode:
		c.scalar(out, n, path)
	default:
		c.problemf(n.Line, path, "this tag has no meaning here")
	}
	return out
}

func (c *converter) scalar(out *node, n *yaml.Node, path string) {
	out.text = n.Value
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		out.kind = text
	case "!!int":
		out.kind = integer
		var number any
		if err := n.Decode(&number); err != nil {
			out.kind = broken
			c.problemf(n.Line, path, "not a whole number")
		}
		switch number := number.(type) {
		case int:
			out.number = int64(number)
		case int64, uint64:
			out.number = number
		}
	case "!!float":
		out.kind = float
	case "!!bool":
		out.kind = boolean
	case "!!null":
		out.kind = null
	default:
		c.problemf(n.Line, path, "this tag has no meaning here")
	}
}

func (c *converter) mapping(out *node, n *yaml.Node, path string, depth int) {
	out.kind = mapping
	lines := map[string]int{} // of the keys so far: a file may have tens of thousands
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case k.ShortTag() == "!!merge":
			c.problemf(k.Line, path, "merge keys (<<) have no meaning here; write the entries out")
			continue
		case k.Kind != yaml.ScalarNode || k.Anchor != "":
			c.problemf(k.Line, path, "a key must be plain text")
			continue
		}
		if first, twice := lines[k.Value]; twice {
			c.problemf(k.Line, join(path, k.Value), "given twice; the first time in line %d", first)
			continue
		}
		lines[k.Value] = k.Line
		out.entries = append(out.entries, entry{key: k.Value, line: k.Line, value: c.node(n.Content[i+1], join(path, k.Value), depth+1)})
	}
}
