package inbound

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	deepest       = 100  // arrays and objects in each other
	longestNumber = 1000 // characters
	mostExponents = 1 << 16
)

// object is a JSON object whose members are read by their exact names: a struct's
// fields would take those of other cases too, and so another value than the next
// reader.
type object map[string]json.RawMessage

// readObject returns a body that is one JSON object.
func readObject(body []byte) (object, error) {
	if err := checkJSON(body); err != nil {
		return nil, err
	}
	o := fields(body)
	if o == nil {
		return nil, invalid("the body is not a JSON object")
	}
	return o, nil
}

// fields returns an object's members, or nil if raw is none.
func fields(raw json.RawMessage) object {
	var o object
	if json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return o
}

// items returns an array's, or nil if raw is none.
func items(raw json.RawMessage) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}

// array returns an array's items; there may be none, but ok is false for anything else
// in its place.
func (o object) array(name string) (list []json.RawMessage, ok bool) {
	list = items(o[name])
	return list, list != nil || !o.has(name)
}

func (o object) has(name string) bool       { return o[name] != nil && string(o[name]) != "null" }
func (o object) object(name string) object  { return fields(o[name]) }
func (o object) text(name string) string    { return text(o[name]) }
func (o object) integer(name string) string { return integer(o[name]) }
func (o object) isTrue(name string) bool    { return string(o[name]) == "true" }

// text returns a string, or "" if raw is none.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

var wholeNumber = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,19})$`)

// integer returns a whole number with the digits that it has, or "" if raw is none:
// a float64 would make one of two ids over 2^53.
func integer(raw json.RawMessage) string {
	if !wholeNumber.Match(raw) {
		return ""
	}
	return string(raw)
}

// checkJSON refuses what is not one JSON value, what two readers could read
// differently, and what PostgreSQL could not hold.
func checkJSON(body []byte) error {
	switch {
	case !utf8.Valid(body):
		return invalid("the body is not UTF-8")
	case !json.Valid(body):
		return invalid("the body is not one JSON value")
	case badEscape(body) >= 0:
		return invalid("the body has an escaped NUL, or half of a surrogate pair")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var open []level
	exponents := 0
	for {
		token, err := dec.Token()
		if err != nil { // the end: the body is valid
			return nil
		}
		if open, err = nested(open, token); err != nil {
			return err
		}
		if n, ok := token.(json.Number); ok {
			if exponents += exponent(n.String()); len(n) > longestNumber || exponents > mostExponents {
				return invalid("the body has numbers of too many digits")
			}
		}
	}
}

// level is an array or an object that is not closed yet.
type level struct {
	names map[string]bool // of an object, those that it had; else nil
	named bool            // the next token is the value of the name before
}

// nested follows a token into arrays and objects and out of them.
func nested(open []level, token json.Token) ([]level, error) {
	if token == json.Delim('}') || token == json.Delim(']') {
		return open[:len(open)-1], nil
	}
	if len(open) > 0 {
		if top := &open[len(open)-1]; top.names != nil && !top.named {
			name := token.(string) // the body is valid
			if top.names[name] {
				return nil, invalid("the body has an object with the same name twice")
			}
			top.names[name], top.named = true, true
			return open, nil
		}
		open[len(open)-1].named = false
	}
	switch token {
	case json.Delim('{'):
		open = append(open, level{names: map[string]bool{}})
	case json.Delim('['):
		open = append(open, level{})
	}
	if len(open) > deepest {
		return nil, invalid("the body has over 100 arrays and objects in each other")
	}
	return open, nil
}

// exponent returns how far a number's exponent is from 0, where that is so far
// that its digits are worth to be counted.
func exponent(number string) int {
	i := strings.IndexAny(number, "eE")
	if i < 0 {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimLeft(number[i+1:], "+-"))
	switch {
	case err != nil || n > mostExponents:
		return mostExponents + 1
	case n < 100:
		return 0
	default:
		return n
	}
}

// mended returns a JSON text with U+FFFD in the place of what no text can have: bytes
// that are not UTF-8, an escaped NUL, half of a surrogate pair. Some platforms pass on
// whatever their users' programs send; what is no JSON is left as it is.
func mended(body []byte) []byte {
	if !json.Valid(body) || utf8.Valid(body) && badEscape(body) < 0 {
		return body
	}
	body = bytes.ToValidUTF8(body, []byte("\uFFFD")) // a copy
	for rest := body; ; {
		i := badEscape(rest)
		if i < 0 {
			return body
		}
		copy(rest[i:], `\ufffd`)
		rest = rest[i+6:]
	}
}

// badEscape returns where in a JSON text an escape stands that is no character which a
// text can have, or -1. A backslash stands in strings alone.
func badEscape(body []byte) int {
	for at := 0; ; {
		i := bytes.IndexByte(body[at:], '\\')
		if i < 0 {
			return -1
		}
		if at += i; body[at+1] != 'u' {
			at += 2
			continue
		}
		r := escaped(body[at:])
		if r == 0 || utf16.IsSurrogate(r) && utf16.DecodeRune(r, escaped(body[at+6:])) == utf8.RuneError {
			return at
		}
		if at += 6; utf16.IsSurrogate(r) {
			at += 6
		}
	}
}

// escaped returns what a text that begins with \u and four digits says, else -1.
func escaped(body []byte) rune {
	if len(body) < 6 || body[0] != '\\' || body[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(body[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// path is where in a JSON value something stands: names, and numbers of array
// elements.
type path []any

var pathStep = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:\.([^.\[\]\s\pC]+)|\[(0|[1-9][0-9]{0,5})\])`) })

// parsePath reads a path such as $.a.b[0].c.
func parsePath(text string) (path, error) {
	rest, ok := strings.CutPrefix(text, "$")
	var p path
	for ok && rest != "" {
		found := pathStep().FindStringSubmatch(rest)
		if ok = found != nil && len(p) < deepest; !ok {
			break
		}
		if found[1] != "" {
			p = append(p, found[1])
		} else {
			n, _ := strconv.Atoi(found[2]) // up to six digits
			p = append(p, n)
		}
		rest = rest[len(found[0]):]
	}
	if !ok || len(p) == 0 {
		return nil, errors.New("is not a path such as $.a.b[0].c")
	}
	return p, nil
}

// read returns the string or the whole number at a path, or "" if there is nothing
// or null. ok is false for what is neither.
func (p path) read(raw json.RawMessage) (value string, ok bool) {
	for _, step := range p {
		switch step := step.(type) {
		case string:
			raw = fields(raw)[step]
		case int:
			list := items(raw)
			if step >= len(list) {
				return "", true
			}
			raw = list[step]
		}
		if raw == nil {
			return "", true
		}
	}
	switch {
	case slices.Equal(raw, []byte("null")):
		return "", true
	case raw[0] == '"':
		return text(raw), true
	default:
		value = integer(raw)
		return value, value != ""
	}
}
