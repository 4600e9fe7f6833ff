package campaign

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/uuid"
)

func invalidf(op, format string, args ...any) error {
	return &deed.Error{Op: op, Code: deed.Invalid, Err: fmt.Errorf(format, args...)}
}

// wrap is [deed.WrapError]; what the server cannot store at all, such as a NUL in a text,
// is the caller's mistake, too.
func wrap(op string, err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(pg.Code, "22") {
		return invalidf(op, "%s", pg.Message)
	}
	return deed.WrapError(op, err)
}

func checkID(what, id string) error {
	if _, err := uuid.Parse(id); err != nil {
		return fmt.Errorf("%s %q: want a UUID", what, errortext.Clip(id))
	}
	return nil
}
