// Package sqlstate reads what the server says of an error.
package sqlstate

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

// Passing reports whether waiting may cure err: everything about connections
// and servers that come and go, but no refusal of ours or of permission.
func Passing(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true
	}
	switch pg.Code[:2] {
	case "08", "53", "55", "57", "40", "58", "XX": // connection, resources, locks, shutdown, serialisation, system
		return true
	}
	return false
}

// Again reports whether the transaction is to be run once more: it was undone for another
// that ran at the same time.
func Again(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40001" || pg.Code == "40P01")
}

// Locked reports whether somebody else has locked what was wanted, for longer than was
// waited for it.
func Locked(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "55P03"
}

// WithHint says what can be done: about a prepared statement that is missing, or
// there already, in a session that a pooler has chosen; about a right that the
// login lacks; or what the server says itself.
func WithHint(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return err
	case pg.Code == "26000" || pg.Code == "42P05":
		return fmt.Errorf("%w; if a pooler in transaction mode is in between, add default_query_exec_mode=exec to the connection string", err)
	case pg.Hint != "":
		return fmt.Errorf("%w%s", err, NextStep(pg.Hint))
	case pg.Code == "42501" && strings.HasPrefix(pg.Message, "permission denied"):
		return fmt.Errorf(`%w; grant the login one of deed's roles, as docs/operations.md, "Roles and logins", has it`, err)
	}
	return err
}

// NextStep is a hint as the end of a message.
func NextStep(hint string) string {
	first, size := utf8.DecodeRuneInString(hint)
	if size == 0 {
		return ""
	}
	return "; " + string(unicode.ToLower(first)) + strings.TrimSuffix(hint[size:], ".")
}
