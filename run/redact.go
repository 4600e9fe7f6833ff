package run

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
)

// Redact takes away what people have put into a run that has ended: its input, and what its
// events say but for what the run is by them. Hashes, times, types and numbers stay (D12). It returns
// how many events it emptied. act must say why. The messages that were published of the run go
// with the retention of [Topic]. Errors: [deed.NotFound], [deed.Invalid], [deed.Conflict]
// for a run that has not ended. Needs deed_admin.
func Redact(ctx context.Context, db deed.DB, id string, act audit.Act) (n int64, err error) {
	const op = "redact run"
	if err := checkID("run", id); err != nil {
		return 0, invalidf(op, "%w", err)
	}
	rows, err := db.Query(ctx, query.Redact, id, act.Reason, act.By)
	if err == nil {
		n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return 0, wrap(op, err)
	}
	_, err = Rebuild(ctx, db, id, false)
	return n, err
}
