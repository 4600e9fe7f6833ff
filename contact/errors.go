package contact

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/internal/sqlstate"
)

// What the functions' errors are.
var (
	// ErrInvalid says that something given is not what it must be: the message names
	// the contact and the field. Nothing was changed.
	ErrInvalid = errors.New("invalid")
	// ErrForbidden says that no tenant is set, or another one's.
	ErrForbidden = errors.New("forbidden")
	// ErrNotFound says that the tenant has no such contact.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that a contact's state does not allow it.
	ErrConflict = errors.New("conflict")
)

var bySQLState = map[string]error{"DDARG": ErrInvalid, "DDTEN": ErrForbidden, "DDNFD": ErrNotFound, "DDCON": ErrConflict}

// wrap says what was attempted, and which of the errors above it is.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && bySQLState[pg.Code] != nil {
		_, text, found := strings.Cut(pg.Message, ": ") // the function's name
		if !found {
			text = pg.Message
		}
		return fmt.Errorf("deed: %s: %w: %s%s", op, bySQLState[pg.Code], text, sqlstate.NextStep(pg.Hint))
	}
	if ok && pg.ConstraintName == "contacts_data_is_object" { // far over, before the function has measured it
		return fmt.Errorf("deed: %s: %w: with what it has by now the data of a contact are over the limit of 65536 bytes", op, ErrInvalid)
	}
	if ok && (pg.Code[:2] == "22" || pg.Code[:2] == "54") { // a datum; the message may have it
		return fmt.Errorf("deed: %s: %w: what is given has a text or a number that the database cannot hold (SQLSTATE %s)", op, ErrInvalid, pg.Code)
	}
	return fmt.Errorf("deed: %s: %w", op, sqlstate.WithHint(err))
}

func invalidf(op, format string, args ...any) error {
	return fmt.Errorf("deed: %s: %w: %s", op, ErrInvalid, fmt.Sprintf(format, args...))
}
