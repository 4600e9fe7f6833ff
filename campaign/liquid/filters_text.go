package liquid

import (
	"fmt"
	"html"
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const whitespace = " \t\r\n\v\f\u0085\u00a0"

// texts makes a filter of a function of texts whose result is a few times as long at most.
func texts(fn func(string) string) filter {
	return func(s *state, v any, _ []any) (any, error) {
		text, err := toText(v)
		if err != nil {
			return nil, err
		}
		if err := s.chargeText(len(text)); err != nil {
			return nil, err
		}
		return s.text(fn(text))
	}
}

// texts1 makes a filter of a function of two texts.
func texts1(fn func(s *state, v, arg string) (string, error)) filter {
	return func(s *state, v any, args []any) (any, error) {
		text, err := toText(v)
		if err != nil {
			return nil, err
		}
		arg, err := toText(args[0])
		if err != nil {
			return nil, err
		}
		out, err := fn(s, text, arg)
		if err != nil {
			return nil, err
		}
		return s.text(out)
	}
}

// join is two texts as one, which is measured before it is made.
func (s *state) join(a, b string) (string, error) {
	if len(a)+len(b) > maxText {
		return "", s.errorf("a text of more than 64 KiB")
	}
	return a + b, nil
}

// toText is how a value is written: nothing as nothing, numbers in full.
func toText(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		if math.Abs(v) < 1e21 {
			return strconv.FormatFloat(v, 'f', -1, 64), nil
		}
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	}
	return "", fmt.Errorf("%s is not a text", typeName(v))
}

func toCount(v any) (int, error) {
	n, err := toNumber(v)
	if err != nil {
		return 0, err
	}
	if !n.whole {
		return 0, fmt.Errorf("a whole number is needed")
	}
	return n.i, nil
}

func replaceFilter(times int) filter {
	return func(s *state, v any, args []any) (any, error) {
		text, err := toText(v)
		if err != nil {
			return nil, err
		}
		from, err := toText(args[0])
		if err != nil {
			return nil, err
		}
		to := ""
		if len(args) > 1 {
			if to, err = toText(args[1]); err != nil {
				return nil, err
			}
		}
		if err := s.chargeText(len(text) + len(from)); err != nil {
			return nil, err
		}
		n := strings.Count(text, from)
		if times >= 0 {
			n = min(n, times)
		}
		if len(text)+n*(len(to)-len(from)) > maxText {
			return nil, s.errorf("a text of more than 64 KiB")
		}
		return s.text(strings.Replace(text, from, to, n))
	}
}

func capitalize(v string) string {
	r, n := utf8.DecodeRuneInString(v)
	if n == 0 {
		return v
	}
	return string(unicode.ToTitle(r)) + v[n:]
}

func escape(v string) string     { return html.EscapeString(v) }
func escapeOnce(v string) string { return html.EscapeString(html.UnescapeString(v)) }
func urlEncode(v string) string  { return url.QueryEscape(v) }

// stripHTML leaves out everything between < and >.
func stripHTML(v string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(v, "<")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, after, closed := strings.Cut(rest, ">")
		if !closed {
			b.WriteString("<" + rest)
			return b.String()
		}
		v = after
	}
}

// shorten reads what both truncations take: a text, how long, and what shows the cut.
func shorten(v any, args []any, n int) (text string, _ int, end string, err error) {
	if text, err = toText(v); err != nil {
		return "", 0, "", err
	}
	if len(args) > 0 {
		if n, err = toCount(args[0]); err != nil {
			return "", 0, "", err
		}
	}
	end = "..."
	if len(args) > 1 {
		if end, err = toText(args[1]); err != nil {
			return "", 0, "", err
		}
	}
	return text, max(n, 0), end, nil
}

// truncate cuts a text to so many characters, with what shows the cut.
func truncate(s *state, v any, args []any) (any, error) {
	text, n, end, err := shorten(v, args, 50)
	if err != nil {
		return nil, err
	}
	if err := s.chargeText(len(text) + len(end)); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(text) <= n {
		return text, nil
	}
	runes := []rune(text)
	cut := string(runes[:max(n-utf8.RuneCountInString(end), 0)])
	if cut, err = s.join(cut, end); err != nil {
		return nil, err
	}
	return s.text(cut)
}

// truncateWords keeps so many words, with one space between them.
func truncateWords(s *state, v any, args []any) (any, error) {
	text, n, end, err := shorten(v, args, 15)
	if err != nil {
		return nil, err
	}
	if err := s.chargeText(len(text) + len(end)); err != nil {
		return nil, err
	}
	words := strings.Fields(text)
	if n = max(n, 1); len(words) <= n {
		return text, nil
	}
	cut, err := s.join(strings.Join(words[:n], " "), end)
	if err != nil {
		return nil, err
	}
	return s.text(cut)
}

// sliceFilter is so many characters of a text, or items of an array, from a place; a
// negative place is counted from the end.
func sliceFilter(s *state, v any, args []any) (any, error) {
	from, err := toCount(args[0])
	if err != nil {
		return nil, err
	}
	length := 1
	if len(args) > 1 {
		if length, err = toCount(args[1]); err != nil {
			return nil, err
		}
	}
	bounds := func(n int) (int, int) {
		if from < 0 {
			from += n
		}
		if from < 0 || from > n || length < 0 {
			return 0, 0
		}
		return from, from + min(length, n-from)
	}
	if a, ok := v.([]any); ok {
		i, j := bounds(len(a))
		return s.array(a[i:j:j])
	}
	text, err := toText(v)
	if err != nil {
		return nil, err
	}
	if err := s.chargeText(4 * len(text)); err != nil {
		return nil, err
	}
	runes := []rune(text)
	i, j := bounds(len(runes))
	return s.text(string(runes[i:j]))
}
