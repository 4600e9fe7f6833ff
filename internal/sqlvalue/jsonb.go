package sqlvalue

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// IsText reports whether PostgreSQL takes s for a text.
func IsText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// mostDepth is how many arrays and objects may be in each other.
const mostDepth = 1000

// JSONBProblem says what a JSON text has that jsonb cannot hold and give back: what
// takes a few bytes to write can take a server's stack, or its memory. mostDigits is of
// numbers, in bytes, as PostgreSQL writes them.
func JSONBProblem(data []byte, mostDigits int) string {
	depth, digits := 0, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			end, problem := stringEnd(data, i+1)
			if problem != "" {
				return problem
			}
			i = end
		case c == '{' || c == '[':
			if depth++; depth > mostDepth {
				return fmt.Sprintf("over %d arrays and objects in each other", mostDepth)
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(data) && strings.IndexByte("0123456789+-.eE", data[end]) >= 0 {
				end++
			}
			if digits += digitsOf(string(data[i:end])); digits > mostDigits {
				return fmt.Sprintf("numbers with so many digits that they are over the limit of %d bytes", mostDigits)
			}
			i = end - 1
		}
	}
	return ""
}

// stringEnd is where a string's closing quote is, or what jsonb cannot hold of it.
func stringEnd(data []byte, i int) (end int, problem string) {
	high := false // the escape before was the first half of a surrogate pair
	for ; i < len(data); i++ {
		var code uint64
		escape := data[i] == '\\' && i+6 <= len(data) && data[i+1] == 'u'
		if escape {
			code, _ = strconv.ParseUint(string(data[i+2:i+6]), 16, 16)
		}
		low := escape && code >= 0xdc00 && code < 0xe000
		switch {
		case high != low:
			return i, "half of a surrogate pair, which is no character"
		case escape && code == 0 && string(data[i+2:i+6]) == "0000":
			return i, `the escape \u0000, which PostgreSQL's jsonb cannot hold`
		case data[i] == '"':
			return i, ""
		}
		high = escape && code >= 0xd800 && code < 0xdc00
		switch {
		case escape:
			i += 5
		case data[i] == '\\':
			i++
		}
	}
	return i, ""
}

// digitsOf is about how many bytes a number has as PostgreSQL writes it, if it is
// written with very many digits, as deed.json_digits counts them.
func digitsOf(number string) int {
	mantissa, exponent, has := strings.Cut(strings.ToLower(number), "e")
	if !has && len(number) <= 32 {
		return 0
	}
	const vast = 131072
	exp := 0
	if has {
		var err error
		if exp, err = strconv.Atoi(exponent); err != nil || exp > 20_000 || exp < -16_000 {
			return vast
		}
	}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	whole = strings.TrimLeft(whole, "0")
	size := len(whole) // digits before the point
	if whole == "" {
		size = len(strings.TrimLeft(fraction, "0")) - len(fraction)
	}
	if strings.Trim(whole+fraction, "0") == "" {
		size, exp = 0, min(exp, 0)
	}
	scale := max(len(fraction)-exp, 0)
	switch {
	case size+exp > 310, scale > 16_383: // which is all that there may be behind the point
		return vast
	case scale > 400:
		return vast / 8
	case size+exp > 32 || scale > 32:
		return 400
	}
	return 0
}
