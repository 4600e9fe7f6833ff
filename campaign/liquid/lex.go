package liquid

import (
	"fmt"
	"strconv"
	"strings"
)

type tokenKind int

const (
	tokenString tokenKind = iota
	tokenNumber
	tokenName     // a name, or a filter's
	tokenProperty // .name
	tokenKeyword  // name:, of a filter with arguments or a loop's limit
	tokenWord     // and, or, contains, in, true, false, nil
	tokenMark     // ( ) [ ] , | = and comparisons
)

// token is a word of an expression; a string is without its quotes, a property without
// its point, a keyword without its colon.
type token struct {
	kind tokenKind
	text string
}

func (t token) is(mark string) bool { return t.kind == tokenMark && t.text == mark }

// ends reports whether a value may end with the token, so that what follows is not
// another operand.
func (t token) ends() bool {
	switch t.kind {
	case tokenMark:
		return t.text == ")" || t.text == "]"
	case tokenWord:
		return t.text == "true" || t.text == "false" || t.text == "nil"
	default:
		return t.kind != tokenKeyword
	}
}

// lex splits an expression into tokens as the template library does, and refuses what
// that would take otherwise, or without bound: other characters, ranges, huge numbers.
func lex(source string) ([]token, error) {
	var tokens []token
	for source = strings.TrimSpace(source); source != ""; source = strings.TrimLeft(source, " \t\r\n\v\f") {
		t, n, err := lexOne(source)
		if err != nil {
			return nil, err
		}
		if tokens = append(tokens, t); len(tokens) > maxTokens {
			return nil, fmt.Errorf("the expression has more than %d words", maxTokens)
		}
		source = source[n:]
	}
	return tokens, nil
}

func lexOne(s string) (token, int, error) {
	c := s[0]
	switch {
	case c == '"' || c == '\'':
		end := strings.IndexByte(s[1:], c)
		if end < 0 {
			return token{}, 0, fmt.Errorf("a string is not closed: %c is missing", c)
		}
		return token{tokenString, s[1 : 1+end]}, end + 2, nil
	case isDigit(c), c == '-' && len(s) > 1 && isDigit(s[1]):
		return lexNumber(s)
	case strings.HasPrefix(s, ".."):
		return token{}, 0, fmt.Errorf("ranges (a..b) are not supported: loop over an array")
	case c == '.' && len(s) > 1 && isLetter(s[1]):
		n := 1 + nameLength(s[1:])
		return token{tokenProperty, s[1:n]}, n, nil
	case isLetter(c):
		n := nameLength(s)
		if n < len(s) && s[n] == ':' {
			return token{tokenKeyword, s[:n]}, n + 1, nil
		}
		switch s[:n] {
		case "and", "or", "contains", "in", "true", "false", "nil":
			return token{tokenWord, s[:n]}, n, nil
		}
		return token{tokenName, s[:n]}, n, nil
	}
	for _, mark := range []string{"==", "!=", ">=", "<=", "<", ">", "(", ")", "[", "]", ",", "|", "=", ":"} {
		if strings.HasPrefix(s, mark) {
			return token{tokenMark, mark}, len(mark), nil
		}
	}
	return token{}, 0, fmt.Errorf("%q is not part of an expression", string([]rune(s[:min(len(s), 4)])[0]))
}

func lexNumber(s string) (token, int, error) {
	n := 1
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	if n+1 < len(s) && s[n] == '.' && isDigit(s[n+1]) {
		for n++; n < len(s) && isDigit(s[n]); {
			n++
		}
		if n > 30 {
			return token{}, 0, fmt.Errorf("the number %s… is too long", s[:30])
		}
		return token{tokenNumber, s[:n]}, n, nil
	}
	if _, err := strconv.Atoi(s[:n]); err != nil {
		return token{}, 0, fmt.Errorf("the number %s… is too large", s[:min(n, 30)])
	}
	return token{tokenNumber, s[:n]}, n, nil
}

func nameLength(s string) int {
	n := 0
	for n < len(s) && (isLetter(s[n]) || isDigit(s[n]) || s[n] == '-') {
		n++
	}
	if n < len(s) && s[n] == '?' {
		n++
	}
	return n
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }

// expression writes tokens for the template library. Filters get the rendering's state as
// their first argument.
func expression(tokens []token) string {
	var b strings.Builder
	for i, t := range tokens {
		filter := i > 0 && tokens[i-1].is("|")
		switch {
		case filter && t.kind == tokenName:
			b.WriteString(t.text + ": " + stateName)
		case filter && t.kind == tokenKeyword:
			b.WriteString(t.text + ": " + stateName + ",")
		case t.kind == tokenKeyword:
			b.WriteString(t.text + ":")
		case t.kind == tokenProperty:
			b.WriteString("." + t.text)
		case t.kind == tokenString && strings.Contains(t.text, `"`):
			b.WriteString("'" + t.text + "'")
		case t.kind == tokenString:
			b.WriteString(`"` + t.text + `"`)
		default:
			b.WriteString(t.text)
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// applied is a filter that an expression applies.
type applied struct {
	name string
	args [][]token
}

// names finds the paths of the names in tokens that are no filters and no modifiers of a
// loop. What follows a path in brackets is a part of it as long as it is a string.
func names(tokens []token) [][]string {
	var list [][]string
	for i, t := range tokens {
		if t.kind != tokenName || i > 0 && (tokens[i-1].is("|") || tokens[i-1].ends()) {
			continue
		}
		path, rest := []string{t.text}, tokens[i+1:]
		for len(rest) > 0 {
			if rest[0].kind == tokenProperty {
				path, rest = append(path, rest[0].text), rest[1:]
			} else if len(rest) > 2 && rest[0].is("[") && rest[1].kind == tokenString && rest[2].is("]") {
				path, rest = append(path, rest[1].text), rest[3:]
			} else {
				break
			}
		}
		list = append(list, path)
	}
	return list
}

// filtersIn finds the filters in tokens, with their arguments.
func filtersIn(tokens []token) []applied {
	var list []applied
	for i := 1; i < len(tokens); i++ {
		if !tokens[i-1].is("|") || tokens[i].kind != tokenName && tokens[i].kind != tokenKeyword {
			continue
		}
		f := applied{name: tokens[i].text}
		if tokens[i].kind == tokenKeyword {
			f.args = arguments(tokens[i+1:])
		}
		list = append(list, f)
	}
	return list
}

// arguments splits what follows a filter's colon, up to the next filter, a loop's
// modifier or the end of what is in parentheses.
func arguments(tokens []token) [][]token {
	args, depth := [][]token{nil}, 0
	for i, t := range tokens {
		switch {
		case t.is("("), t.is("["):
			depth++
		case t.is(")"), t.is("]"):
			if depth--; depth < 0 {
				return args
			}
		case depth == 0 && (t.is("|") || t.kind == tokenKeyword || t.kind == tokenWord && (t.text == "and" || t.text == "or") ||
			t.kind == tokenName && i > 0 && tokens[i-1].ends()):
			return args
		case depth == 0 && t.is(","):
			args = append(args, nil)
			continue
		}
		args[len(args)-1] = append(args[len(args)-1], t)
	}
	return args
}
