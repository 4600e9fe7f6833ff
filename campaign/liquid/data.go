package liquid

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// take copies what a template may see of a value, which is what JSON can say and nothing
// else: the template library would call methods and read fields of anything. Numbers
// become int or float64, arrays []any, objects map[string]any.
func (s *state) take(path string, value any, depth int) (any, error) {
	if s.values++; s.values > maxValues {
		return nil, s.errorf("the data hold more than %d values", maxValues)
	}
	if depth > maxDepth {
		return nil, s.errorf("%s is more than %d deep", path, maxDepth)
	}
	s.manyValues = s.values
	switch v := value.(type) {
	case nil, bool, int:
		return v, nil
	case int64:
		return int(v), nil
	case int32:
		return int(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, s.errorf("%s is not a number", path)
		}
		return v, nil
	case json.Number:
		return s.takeNumber(path, v)
	case string:
		return s.takeText(path, v)
	case []string:
		items := make([]any, len(v))
		for i, item := range v {
			items[i] = item
		}
		return s.takeArray(path, items, depth)
	case []any:
		return s.takeArray(path, v, depth)
	case map[string]string:
		object := make(map[string]any, len(v))
		for key, item := range v {
			object[key] = item
		}
		return s.takeObject(path, object, depth)
	case map[string]any:
		return s.takeObject(path, v, depth)
	default:
		return nil, s.errorf("%s is a %T, which a template cannot see: give what JSON can say", path, value)
	}
}

func (s *state) takeNumber(path string, n json.Number) (any, error) {
	if i, err := strconv.Atoi(n.String()); err == nil {
		return i, nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, s.errorf("%s is not a number", path)
	}
	return f, nil
}

func (s *state) takeText(path, text string) (any, error) {
	if s.bytes += len(text); len(text) > maxText || s.bytes > maxData {
		return nil, s.errorf("%s is too long: one text has up to 64 KiB, all of the data up to 1 MiB", path)
	}
	s.longText = max(s.longText, len(text))
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return text, nil
}

func (s *state) takeArray(path string, from []any, depth int) (any, error) {
	if len(from) > maxItems {
		return nil, s.errorf("%s has more than %d items", path, maxItems)
	}
	items := make([]any, len(from))
	for i, item := range from {
		var err error
		if items[i], err = s.take(path+"[]", item, depth+1); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func (s *state) takeObject(path string, from map[string]any, depth int) (any, error) {
	if len(from) > maxItems {
		return nil, s.errorf("%s has more than %d fields", path, maxItems)
	}
	object := make(map[string]any, len(from))
	for key, item := range from {
		if s.bytes += len(key); s.bytes > maxData {
			return nil, s.errorf("%s is too long: all of the data have up to 1 MiB", path)
		}
		var err error
		if object[key], err = s.take(path+"."+key, item, depth+1); err != nil {
			return nil, err
		}
	}
	return object, nil
}
