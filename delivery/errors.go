package delivery

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
)

// opError gives what deed's functions raise on purpose its code; any other
// error keeps its chain.
func opError(op string, err error) error {
	if err == nil {
		return nil
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		code, ours := map[string]deed.Code{
			"DDARG": deed.Invalid, "DDNFD": deed.NotFound, "DDTEN": deed.Forbidden, "DDCON": deed.Conflict,
		}[pg.Code]
		if ours {
			return &deed.Error{Op: op, Code: code, Err: errors.New(pg.Message)}
		}
	}
	return fmt.Errorf("deed: %s: %w", op, err)
}

func invalidf(op, format string, args ...any) error {
	return &deed.Error{Op: op, Code: deed.Invalid, Err: fmt.Errorf(format, args...)}
}

// passing reports whether waiting may cure err.
func passing(err error) bool {
	if deed.CodeOf(err) != deed.Internal {
		return false
	}
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
