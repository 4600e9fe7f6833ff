package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxBytes is how large a file may be.
const MaxBytes = 256 << 10

const maxDepth = 100 // of values in values

// Kind is what a value is.
type Kind string

const (
	Broken  Kind = "" // a problem has been reported
	Null    Kind = "nothing"
	Text    Kind = "text"
	Integer Kind = "a whole number"
	Float   Kind = "a number"
	Boolean Kind = "true or false"
	Mapping Kind = "a mapping"
	List    Kind = "a list"
)

// Node is a value of a file.
type Node struct {
	Kind    Kind
	Line    int
	Text    string  // of a scalar
	Number  any     // of an integer: int64 or uint64
	Entries []Entry // of a mapping, in the order of the file
	Items   []*Node // of a list
}

// Entry is a key of a mapping and its value.
type Entry struct {
	Key   string
	Line  int
	Value *Node
}

// Got is what a number is wanted instead of: a text may be a secret, and is not
// repeated.
func (n *Node) Got() string {
	if n.Kind == Integer || n.Kind == Float {
		return n.Text
	}
	return string(n.Kind)
}

// Entry is the one of key.
func (n *Node) Entry(key string) (Entry, bool) {
	i := slices.IndexFunc(n.Entries, func(e Entry) bool { return e.Key == key })
	if i < 0 {
		return Entry{}, false
	}
	return n.Entries[i], true
}

// Parse returns the mapping that data is, in JSON or YAML, or nil if a problem leaves
// nothing to look at. The words say what an empty file lacks, and which keys a mapping
// would have.
func (r *Reader) Parse(data []byte, empty, keys string) *Node {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(data) > MaxBytes {
		r.Problemf(1, "", "the file is larger than %d bytes", MaxBytes)
		return nil
	}
	if at := invalidUTF8(data); at >= 0 {
		r.Problemf(1+bytes.Count(data[:at], []byte("\n")), "", "not UTF-8")
		return nil
	}
	root := r.parse(data, empty)
	if root == nil || root.Kind == Mapping {
		return root
	}
	if root.Kind != Broken {
		r.Problemf(root.Line, "", "want a mapping with keys such as %s, got %s", keys, root.Kind)
	}
	return nil
}

func (r *Reader) parse(data []byte, empty string) *Node {
	if json.Valid(data) { // of which YAML does not know every escape
		return r.parseJSON(data)
	}
	docs, err := decode(data)
	if err != nil {
		line, message := syntaxProblem(data, err)
		r.Problemf(line, "", "%s", message)
		return nil
	}
	switch len(docs) {
	case 0:
		r.Problemf(1, "", "the file is empty; %s", empty)
		return nil
	case 1:
	default:
		r.Problemf(docs[1].Line, "", "a second document begins here; put all into one")
		return nil
	}
	c := &converter{Reader: r}
	return c.node(docs[0], "", 0)
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
type converter struct{ *Reader }

func (c *converter) node(n *yaml.Node, path string, depth int) *Node {
	out := &Node{Line: n.Line}
	switch {
	case depth > maxDepth:
		c.Problemf(n.Line, path, "values are nested more than %d deep", maxDepth)
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		c.Problemf(n.Line, path, "%s", noAnchors)
	case n.Kind == yaml.MappingNode && n.ShortTag() == "!!map":
		c.mapping(out, n, path, depth)
	case n.Kind == yaml.SequenceNode && n.ShortTag() == "!!seq":
		out.Kind = List
		for _, item := range n.Content {
			out.Items = append(out.Items, c.node(item, path, depth+1))
		}
	case n.Kind == yaml.ScalarNode:
		c.scalar(out, n, path)
	default:
		c.Problemf(n.Line, path, "this tag has no meaning here")
	}
	return out
}

func (c *converter) scalar(out *Node, n *yaml.Node, path string) {
	out.Text = n.Value
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		out.Kind = Text
	case "!!int":
		number := c.decode(out, n, path, Integer, "not a whole number")
		switch number := number.(type) {
		case int:
			out.Number = int64(number)
		case int64, uint64:
			out.Number = number
		}
	case "!!float":
		c.decode(out, n, path, Float, "not a number")
	case "!!bool":
		if truth, ok := c.decode(out, n, path, Boolean, "not true or false").(bool); ok {
			out.Text = strconv.FormatBool(truth)
		}
	case "!!null":
		c.decode(out, n, path, Null, "not null")
	default:
		c.Problemf(n.Line, path, "this tag has no meaning here")
	}
}

// decode is the value of n, which becomes of that kind, unless a tag claims what its text is not: the parser takes any.
func (c *converter) decode(out *Node, n *yaml.Node, path string, kind Kind, problem string) (value any) {
	out.Kind = kind
	if err := n.Decode(&value); err != nil {
		out.Kind = Broken
		c.Problemf(n.Line, path, "%s", problem)
	}
	return value
}

func (c *converter) mapping(out *Node, n *yaml.Node, path string, depth int) {
	out.Kind = Mapping
	lines := map[string]int{} // of the keys so far: a file may have tens of thousands
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case k.ShortTag() == "!!merge":
			c.Problemf(k.Line, path, "merge keys (<<) have no meaning here; write the entries out")
			continue
		case k.Kind != yaml.ScalarNode || k.Anchor != "":
			c.Problemf(k.Line, path, "a key must be plain text")
			continue
		}
		if first, twice := lines[k.Value]; twice {
			c.Problemf(k.Line, Join(path, k.Value), "given twice; the first time in line %d", first)
			continue
		}
		lines[k.Value] = k.Line
		out.Entries = append(out.Entries, Entry{Key: k.Value, Line: k.Line, Value: c.node(n.Content[i+1], Join(path, k.Value), depth+1)})
	}
}
