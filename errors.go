package deed

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/internal/sqlstate"
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

// functionName is what the SQL functions begin their messages with. In an
// [Error] the operation stands in its place.
var functionName = regexp.MustCompile(`^[a-z]+(_[a-z]+)*: `)

// WrapError makes an error that deed's SQL functions raised on purpose an [Error]
// with its code and the next step that they name; any other keeps its chain. op
// is what was attempted. It is for those who call the functions themselves, and
// returns nil for nil.
func WrapError(op string, err error) error {
	if err == nil {
		return nil
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		if code, ok := codeBySQLState[pg.Code]; ok {
			return &Error{Op: op, Code: code, Err: errors.New(functionName.ReplaceAllString(pg.Message, "") + sqlstate.NextStep(pg.Hint))}
		}
	}
	return fmt.Errorf("deed: %s: %w", op, sqlstate.WithHint(err))
}

func invalidf(op, format string, args ...any) error {
	return &Error{Op: op, Code: Invalid, Err: fmt.Errorf(format, args...)}
}

// passing reports whether waiting may cure err.
func passing(err error) bool { return CodeOf(err) == Internal && sqlstate.Passing(err) }
