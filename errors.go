package deed

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Code says what a caller can do about an error.
type Code string

const (
	// NotFound: the named thing does not exist.
	NotFound Code = "not_found"
	// Conflict: the request contradicts what is stored.
	Conflict Code = "conflict"
	// Invalid: the request is wrong and repeating it will not help.
	Invalid Code = "invalid"
	// Forbidden: the caller's tenant or role does not allow it.
	Forbidden Code = "forbidden"
	// LeaseLost: the claim is no longer the caller's.
	LeaseLost Code = "lease_lost"
	// Internal: anything else.
	Internal Code = "internal"
)

// Error is a failure that a caller can act on. Anything else is Internal.
type Error struct {
	Op   string // what was attempted, such as "publish"
	Code Code
	Err  error
}

func (e *Error) Error() string { return "deed: " + e.Op + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first [Error] in err's chain, [Internal] when
// there is none, and "" when err is nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// codeBySQLState translates the states that deed's SQL functions raise.
var codeBySQLState = map[string]Code{
	"DDARG": Invalid,
	"DDNFD": NotFound,
	"DDTEN": Forbidden,
	"DDCON": Conflict,
	"DDLSE": LeaseLost,
	"DDMOD": Conflict,
}

// opError wraps a database error: one that deed's functions raised on purpose
// becomes an [Error] with its code, any other keeps its chain.
func opError(op string, err error) error {
	if err == nil {
		return nil
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		if code, ok := codeBySQLState[pg.Code]; ok {
			return &Error{Op: op, Code: code, Err: errors.New(pg.Message)}
		}
	}
	return fmt.Errorf("deed: %s: %w", op, withHint(err))
}

// withHint says what to do about a prepared statement that is missing, or there
// already, in a session that a pooler has chosen.
func withHint(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "26000" || pg.Code == "42P05") {
		return fmt.Errorf("%w; if a pooler in transaction mode is in between, add default_query_exec_mode=exec to the connection string", err)
	}
	return err
}

func invalidf(op, format string, args ...any) error {
	return &Error{Op: op, Code: Invalid, Err: fmt.Errorf(format, args...)}
}
