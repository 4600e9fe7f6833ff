// Package sqlstate reads what the server says of an error.
package sqlstate

import (
	"errors"
	"fmt"

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

// WithHint says what to do about a prepared statement that is missing, or there
// already, in a session that a pooler has chosen.
func WithHint(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "26000" || pg.Code == "42P05") {
		return fmt.Errorf("%w; if a pooler in transaction mode is in between, add default_query_exec_mode=exec to the connection string", err)
	}
	return err
}
