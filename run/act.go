package run

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// Cancel ends a run: none of its steps begins any more. What is being done is not undone; its
// worker hears of it when it renews its lease. It is false for a run that was cancelled before. For operators; it is in the audit
// log. Errors: [deed.Invalid] without a reason; [deed.NotFound]; [deed.Forbidden] for another tenant's run than the transaction has set; [deed.Conflict] for a run
// that has ended otherwise.
func Cancel(ctx context.Context, db deed.DB, id string, act audit.Act) (bool, error) {
	return actOn[bool](ctx, db, "cancel run", id, query.Stop, act)
}

// Approve is a person's approval of a run whose plan wants one: it begins. For operators; it is in the audit log.
// Errors: [deed.Invalid] without a reason; [deed.NotFound]; [deed.Forbidden] for another tenant's run than the transaction has set; [deed.Conflict] for a run
// that waits for no approval.
func Approve(ctx context.Context, db deed.DB, id string, act audit.Act) error {
	_, err := actOn[bool](ctx, db, "approve run", id, query.Approve, act)
	return err
}

// RetryStep has a step tried again that has failed and waits for a person, and returns which logical attempt
// that is (R5). Its effects keep their key, by which the other end knows a repeat, unless newKey says that
// they are to be done anew, those of its inner steps that have not succeeded, too. For operators; it is in the audit log. Errors: [deed.Invalid] without a reason;
// [deed.NotFound]; [deed.Forbidden] for another tenant's run than the transaction has set; [deed.Conflict] for a step that waits for nobody.
func RetryStep(ctx context.Context, db deed.DB, id, step string, newKey bool, act audit.Act) (attempt int, err error) {
	return actOn[int](ctx, db, "retry step", id, query.Retry, act, step, newKey)
}

func actOn[T any](ctx context.Context, db deed.DB, op, id, sql string, act audit.Act, more ...any) (result T, err error) {
	if err := checkID("run", id); err != nil {
		return result, invalidf(op, "%w", err)
	}
	rows, err := db.Query(ctx, sql, append([]any{id, act.Reason, sqlvalue.NullIfZero(act.By)}, more...)...)
	if err == nil {
		result, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	}
	return result, wrap(op, err)
}
