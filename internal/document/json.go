package document

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// parseJSON reads what is valid JSON.
func (r *Reader) parseJSON(data []byte) *Node {
	d := &jsonReader{Reader: r, data: data, line: 1, Decoder: json.NewDecoder(bytes.NewReader(data))}
	d.UseNumber()
	return d.node("", 0)
}

type jsonReader struct {
	*Reader
	*json.Decoder
	data []byte
	line int // of the offset counted
	at   int // that offset
}

// next is the next token, and its line.
func (d *jsonReader) next() (json.Token, int) {
	token, err := d.Token()
	if err != nil {
		return nil, d.line // not of valid JSON
	}
	upto := int(d.InputOffset())
	d.line += bytes.Count(d.data[d.at:upto], []byte("\n")) // no token has one in it
	d.at = upto
	return token, d.line
}

func (d *jsonReader) node(path string, depth int) *Node {
	token, line := d.next()
	n := &Node{Line: line}
	switch token := token.(type) {
	case json.Delim:
		switch {
		case depth > maxDepth:
			d.Problemf(line, path, "values are nested more than %d deep", maxDepth)
			d.skip()
		case token == '{':
			d.mapping(n, path, depth)
		default:
			n.Kind = List
			for d.More() {
				n.Items = append(n.Items, d.node(path, depth+1))
			}
			d.next()
		}
	case string:
		n.Kind, n.Text = Text, token
	case json.Number:
		n.Kind, n.Text = Float, token.String()
		if i, err := strconv.ParseInt(n.Text, 10, 64); err == nil {
			n.Kind, n.Number = Integer, i
		} else if u, err := strconv.ParseUint(n.Text, 10, 64); err == nil {
			n.Kind, n.Number = Integer, u
		}
	case bool:
		n.Kind, n.Text = Boolean, strconv.FormatBool(token)
	default:
		n.Kind, n.Text = Null, "null"
	}
	return n
}

// skip passes over the rest of a value that has begun.
func (d *jsonReader) skip() {
	for open := 1; open > 0; {
		token, _ := d.next()
		if delim, ok := token.(json.Delim); ok {
			if strings.ContainsRune("[{", rune(delim)) {
				open++
			} else {
				open--
			}
		}
	}
}

func (d *jsonReader) mapping(n *Node, path string, depth int) {
	n.Kind = Mapping
	lines := map[string]int{} // of the keys so far
	for d.More() {
		token, line := d.next()
		key, _ := token.(string)
		value := d.node(Join(path, key), depth+1)
		if first, twice := lines[key]; twice {
			d.Problemf(line, Join(path, key), "given twice; the first time in line %d", first)
			continue
		}
		lines[key] = line
		n.Entries = append(n.Entries, Entry{Key: key, Line: line, Value: value})
	}
	d.next()
}
