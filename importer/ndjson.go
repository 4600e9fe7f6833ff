package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

type ndjson struct {
	lines *lines
}

func (n *ndjson) next(want []string) ([]byte, []string, int, error) {
	for {
		line := n.lines.line
		text, over, err := n.read()
		if err != nil {
			return nil, nil, line, err
		}
		if over {
			return nil, nil, line, &LineError{line, n.lines.overError("the line")}
		}
		text = bytes.Trim(text, " \t\r\n")
		if len(text) == 0 {
			continue
		}
		values, err := fields(text, want)
		if err != nil {
			return nil, nil, line, &LineError{line, err}
		}
		return text, values, line, nil
	}
}

func (n *ndjson) read() (text []byte, over bool, err error) {
	for {
		b, ends, err := n.lines.chunk()
		if err != nil {
			return nil, false, err
		}
		text, over = n.lines.keep(text, b, over)
		if ends {
			return text, over, nil
		}
	}
}

// fields checks that text is one JSON object and returns the values of the
// fields in want.
func fields(text []byte, want []string) ([]string, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("not UTF-8")
	}
	if text[0] != '{' {
		if json.Valid(text) {
			return nil, errors.New("not a JSON object but another JSON value")
		}
		return nil, errors.New("not a JSON object")
	}
	if len(want) == 0 {
		return nil, validity(json.Unmarshal(text, &struct{}{}))
	}
	var object map[string]json.RawMessage
	if err := validity(json.Unmarshal(text, &object)); err != nil {
		return nil, err
	}
	values := make([]string, len(want))
	for i, name := range want {
		raw, ok := object[name]
		if !ok {
			return nil, fmt.Errorf("field %q is missing", name)
		}
		v, err := scalar(raw)
		if err != nil {
			return nil, fmt.Errorf("field %q %w", name, err)
		}
		values[i] = v
	}
	return values, nil
}

func validity(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not a JSON object: %s at byte %d", e, e.Offset)
	}
	return fmt.Errorf("not a JSON object: %w", err)
}

// scalar returns a string's value, and a number or boolean as it is written:
// no digit of a large number is lost.
func scalar(raw json.RawMessage) (string, error) {
	switch raw[0] {
	case 'n':
		return "", errors.New("is null")
	case '{':
		return "", errors.New("is an object; it must be text, a number or a boolean")
	case '[':
		return "", errors.New("is an array; it must be text, a number or a boolean")
	case '"':
		var v string
		if err := json.Unmarshal(raw, &v); err != nil {
			return "", err
		}
		// Decoding makes U+FFFD of half a surrogate pair, and would so make
		// different ids the same.
		if strings.Count(v, "\ufffd") != strings.Count(string(raw), "\ufffd")+escapedReplacements(raw) {
			return "", errors.New("has half of a surrogate pair, which is no character")
		}
		return v, nil
	}
	return string(raw), nil
}

// escapedReplacements counts the escapes in raw that mean U+FFFD.
func escapedReplacements(raw []byte) int {
	count := 0
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if i+6 <= len(raw) && strings.EqualFold(string(raw[i:i+6]), `\ufffd`) {
			count++
		}
		i++
	}
	return count
}
