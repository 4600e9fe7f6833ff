package contact

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/tenant"
)

// Merge says that two contacts are one person: from becomes another name of into, and
// keeps what it has for [Unmerge]. It reports whether they were two. owner nil: the
// tenant that db has set. act must say why. Errors: [ErrInvalid], [ErrNotFound],
// [ErrConflict] where one was erased, [ErrForbidden].
func Merge(ctx context.Context, db DB, owner *tenant.ID, from, into string, act audit.Act) (bool, error) {
	const op = "merge contacts"
	if err := checkIDs(op, from, into); err != nil {
		return false, err
	}
	return one[bool](ctx, db, op, query.Merge, from, into, act.Reason, act.By, id(owner))
}

// Unmerge takes a contact apart from the one that it was merged into, and returns
// that one's id: it has again what it had, and what the other one got since stays
// there. owner nil: the tenant that db has set. act must say why. Errors:
// [ErrInvalid], [ErrNotFound], [ErrConflict] where it is merged into none or was
// erased, [ErrForbidden].
func Unmerge(ctx context.Context, db DB, owner *tenant.ID, from string, act audit.Act) (into string, err error) {
	const op = "unmerge contacts"
	if err := checkIDs(op, from); err != nil {
		return "", err
	}
	return one[string](ctx, db, op, query.Unmerge, from, act.Reason, act.By, id(owner))
}

// id is a tenant as an argument.
func id(owner *tenant.ID) any {
	if owner == nil {
		return nil
	}
	return owner.String()
}

// one runs a statement that returns one value.
func one[T any](ctx context.Context, db DB, op, sql string, args ...any) (v T, err error) {
	rows, err := db.Query(ctx, sql, args...)
	if err == nil {
		v, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	}
	return v, wrap(op, err)
}
