package delivery

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// checkCount refuses a number that the functions have no room for.
func checkCount(op, what string, n, least int) error {
	if err := sqlvalue.Count(what, n, least); err != nil {
		return invalidf(op, "%w", err)
	}
	return nil
}

func invalidf(op, format string, args ...any) error {
	return &deed.Error{Op: op, Code: deed.Invalid, Err: fmt.Errorf(format, args...)}
}

// passing reports whether waiting may cure err.
func passing(err error) bool { return deed.CodeOf(err) == deed.Internal && sqlstate.Passing(err) }

// maxError is how much of an error is kept.
const maxError = 1000

func clip(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "�")
	if len(text) <= maxError {
		return text
	}
	text = text[:maxError]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}
