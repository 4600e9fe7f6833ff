package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// longLock is how long one of deed's own locks is held at the most by whom all
// is well with: a relay holds one for milliseconds.
const longLock = 10 * time.Second

func checkLocksHeld(ctx context.Context, e *exam) error {
	return e.query(ctx, query.LocksHeld, []any{min(e.opts.Long, longLock).Seconds()}, func(row pgx.Rows) error {
		var pid int
		var gid, application, login, state, names string
		var open float64
		if err := row.Scan(&pid, &gid, &application, &login, &state, &open, &names); err != nil {
			return err
		}
		subject := fmt.Sprintf("pid %d (%s)", pid, unnamed(application))
		remedy := fmt.Sprintf("let it commit; or, which undoes it: select pg_terminate_backend(%d);", pid)
		if gid != "" {
			subject, state = gid, "prepared"
			remedy = fmt.Sprintf("commit prepared %s; or, which undoes it: rollback prepared %[1]s;", literal(gid))
		}
		e.addf(Warn, "lock-held", subject, remedy, "has held %s for %s (%s, login %s): what others do under that lock is put off until it ends",
			names, ago(open), state, login)
		return nil
	})
}

func checkLockWaits(ctx context.Context, e *exam) error {
	return e.query(ctx, query.LockWaits, []any{min(e.opts.Long, longLock).Seconds()}, func(row pgx.Rows) error {
		var pid int
		var application, blockers string
		var waits float64
		if err := row.Scan(&pid, &application, &waits, &blockers); err != nil {
			return err
		}
		e.addf(Warn, "lock-wait", fmt.Sprintf("pid %d (%s)", pid, unnamed(application)),
			"let whom it waits for commit, or end it: select pg_terminate_backend(<pid>); or rollback prepared …",
			"has waited for %s for %s", ago(waits), blockers)
		return nil
	})
}
