package plan

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/deedhq/deed/internal/document"
)

// canonical writes plans: the same plan is the same bytes, whatever it was written in.
type canonical struct {
	*document.Reader
	out bytes.Buffer
}

func (c *canonical) node(n *document.Node, path string) {
	switch n.Kind {
	case document.Mapping:
		entries := slices.Clone(n.Entries)
		if path != "steps" {
			slices.SortFunc(entries, func(a, b document.Entry) int { return strings.Compare(a.Key, b.Key) })
		}
		c.out.WriteByte('{')
		for i, e := range entries {
			if i > 0 {
				c.out.WriteByte(',')
			}
			c.text(e.Key, e.Line, path)
			c.out.WriteByte(':')
			c.node(e.Value, document.Join(path, e.Key))
		}
		c.out.WriteByte('}')
	case document.List:
		c.out.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				c.out.WriteByte(',')
			}
			c.node(item, path)
		}
		c.out.WriteByte(']')
	case document.Text:
		c.text(n.Text, n.Line, path)
	case document.Integer:
		switch v := n.Number.(type) {
		case int64:
			c.out.WriteString(strconv.FormatInt(v, 10))
		case uint64:
			c.out.WriteString(strconv.FormatUint(v, 10))
		}
	case document.Float:
		v, err := strconv.ParseFloat(n.Text, 64)
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			c.Problemf(n.Line, path, "%s is no number that JSON has", n.Text)
			v = 0
		}
		if v == 0 {
			v = 0 // without a sign: -0 is read again as a whole number, and written 0
		}
		text, _ := json.Marshal(v)
		c.out.Write(text)
	case document.Boolean:
		c.out.WriteString(n.Text)
	default:
		c.out.WriteString("null")
	}
}

func (c *canonical) text(s string, line int, path string) {
	if strings.ContainsRune(s, 0) {
		c.Problemf(line, path, "no text may have a NUL in it: the database cannot keep it")
	}
	e := json.NewEncoder(&c.out)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a text
	c.out.Truncate(c.out.Len() - 1)
}
