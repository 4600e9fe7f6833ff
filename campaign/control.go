package campaign

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// Pause lets nothing of a run begin until [Resume]: once it has returned, nothing does but what
// is being sent, of which it returns how many deliveries there are. If db is a transaction,
// what was being written when that commits may begin still: Pause again afterwards waits for it. Its
// jobs go on to be expanded, and the run does not expire meanwhile. Again is harmless. Errors:
// [deed.NotFound]; [deed.Conflict] for a run that has ended or is cancelled;
// [deed.Forbidden] without a tenant.
func Pause(ctx context.Context, db deed.DB, scope Scope, run string, act audit.Act) (sending int64, err error) {
	return hold(ctx, db, "pause run", query.Pause, scope, run, act)
}

// Resume lets a run that is paused go on. Again is harmless. Errors: as [Pause].
func Resume(ctx context.Context, db deed.DB, scope Scope, run string, act audit.Act) error {
	_, err := control[any](ctx, db, "resume run", query.Resume, scope, run, act)
	return err
}

// Cancel ends a run: nothing of it begins any more, as of [Pause], but what is being sent, of
// which it returns how many deliveries there are. What is queued, and who was not reached, is skipped as
// cancelled by a [Worker]. There is no way back. Errors: as [Pause].
func Cancel(ctx context.Context, db deed.DB, scope Scope, run string, act audit.Act) (sending int64, err error) {
	return hold(ctx, db, "cancel run", query.Cancel, scope, run, act)
}

// hold asks for the hold, and once it stands for how much is under way.
func hold(ctx context.Context, db deed.DB, op, sql string, scope Scope, run string, act audit.Act) (sending int64, err error) {
	if sending, err = control[int64](ctx, db, op, sql, scope, run, act); err != nil {
		return 0, err
	}
	now, err := control[int64](ctx, db, op, sql, scope, run, act)
	if deed.CodeOf(err) == deed.Conflict {
		return sending, nil // it has ended meanwhile, or was cancelled
	}
	return now, err
}

func control[T any](ctx context.Context, db deed.DB, op, sql string, scope Scope, run string, act audit.Act) (answer T, err error) {
	if err := checkID("run", run); err != nil {
		return answer, invalidf(op, "%w", err)
	}
	rows, err := db.Query(ctx, sql, run, sqlvalue.NullIfZero(act.Reason), scope.tenant(), sqlvalue.NullIfZero(act.By))
	if err == nil {
		answer, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	}
	return answer, wrap(op, err)
}
