package run

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/tenant"
)

// Started is the run of a request, which begins when the transaction commits.
type Started struct {
	ID string
	// New is false for a request that had made it before.
	New bool
	// Status is [Running]; [Pending] where the plan wants a person's approval; where a repeat
	// finds it.
	Status Status
}

// Start makes the run that req asks for, or finds the one that it has made (R12), and begins it: in
// tx, the transaction of what it is about, so that it begins if and only if that commits. The
// tenant is the one that tx has set, and the plan and its version are stored by then, or are a Go function that
// an engine has registered (local.Func): the run keeps that plan. req has neither a PlanHash nor an Engine.
//
// Without a Version it is the one that the same request has started before; else of a function the newest that a worker serves
// (the newest, while none serves any), and of a plan the one that was stored last. A transaction that is REPEATABLE READ names it: it may
// not see what the same request has started ([deed.Invalid]).
//
// Errors: [deed.Invalid]; [deed.NotFound] for a plan or version that is neither stored nor registered;
// [deed.Conflict] for the same request with another input; [deed.Forbidden] without a tenant.
func Start(ctx context.Context, tx deed.DB, req Request) (Started, error) {
	return start(ctx, tx, nil, req)
}

// StartFor is [Start] for a tenant that tx has not set, for logins that cross tenants.
func StartFor(ctx context.Context, tx deed.DB, owner tenant.ID, req Request) (Started, error) {
	return start(ctx, tx, owner.String(), req)
}

func start(ctx context.Context, tx deed.DB, owner any, req Request) (s Started, err error) {
	args, err := startArgs(owner, req)
	if err != nil {
		return s, err
	}
	rows, err := tx.Query(ctx, query.Start, args...)
	if err == nil {
		s, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Started])
	}
	return s, wrap(opStart, err)
}

// SQL is a *sql.Tx of any PostgreSQL driver; or a *sql.DB or *sql.Conn, with which the run is a
// transaction of its own.
type SQL interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// StartSQL is [Start] inside a transaction of database/sql, with the same promises. The codes of
// its errors are known of drivers that are pgx's.
func StartSQL(ctx context.Context, tx SQL, req Request) (s Started, err error) {
	args, err := startArgs(nil, req)
	if err != nil {
		return s, err
	}
	err = tx.QueryRowContext(ctx, query.Start, args...).Scan(&s.ID, &s.New, &s.Status)
	return s, wrap(opStart, err)
}

const opStart = "start run"

// startArgs checks req. All arguments are texts, which every driver sends alike.
func startArgs(owner any, req Request) ([]any, error) {
	input, err := inputOf(req)
	err = errors.Join(err, checkOptionalID("original run", req.Original), checkOptionalID("parent run", req.Parent))
	if req.PlanHash != nil || req.Engine != "" {
		err = errors.Join(err, errors.New("PlanHash and Engine are Create's: a run that is started keeps the plan that is stored, and the engine is the local one"))
	}
	if err != nil {
		return nil, invalidf(opStart, "%w", err)
	}
	return []any{
		req.Plan, sqlvalue.NullIfZero(req.Version), req.ID, input, orDefault(req.Project), orDefault(req.Environment),
		sqlvalue.NullIfZero(req.Original), sqlvalue.NullIfZero(req.Parent), sqlvalue.NullIfZero(req.ParentStep), owner,
	}, nil
}
