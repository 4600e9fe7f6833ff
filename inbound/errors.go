package inbound

import (
	"context"
	"errors"
	"fmt"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlstate"
)

func invalidf(op, format string, args ...any) error {
	return &deed.Error{Op: op, Code: deed.Invalid, Err: fmt.Errorf(format, args...)}
}

// errBusy says that a message was not stored as others were being stored for as long as it may wait.
var errBusy = errors.New("others are being stored")

// passing reports whether waiting may cure err.
func passing(err error) bool {
	return deed.CodeOf(err) == deed.Internal && (sqlstate.Passing(err) || errors.Is(err, context.DeadlineExceeded))
}
