package schema

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lockSQL waits for another migrator as long as that takes; for what others
// hold it bounds the waiting: whoever asks for a table behind one who waits for
// it waits, too.
const lockSQL = `
	select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('deed.migrate', 0));
	set local lock_timeout = '500ms'`

// patience is how long a step is tried.
const patience = time.Minute

// patiently takes a step again while a table that it needs is in use, so that
// one transaction that stays open holds up nobody behind the migration.
func patiently(ctx context.Context, conn *pgx.Conn, step func() error) error {
	for begun := time.Now(); ; {
		err := step()
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "55P03" {
			return err
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("a table is in use, and still was after %s; end %s and run it again: %w", patience, inTheWay(ctx, conn), err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(100*time.Millisecond + rand.N(400*time.Millisecond)):
		}
	}
}

// inTheWay names the session whose transaction has held a table longest.
func inTheWay(ctx context.Context, conn *pgx.Conn) string {
	var who string
	err := conn.QueryRow(ctx, `
		select format('session %s of %s (%s, in its transaction for %s)', a.pid, a.usename, a.state, date_trunc('second', clock_timestamp() - a.xact_start))
		from pg_catalog.pg_locks l
		join pg_catalog.pg_class c on c.oid = l.relation
		join pg_catalog.pg_stat_activity a on a.pid = l.pid
		where c.relnamespace <> 'pg_catalog'::regnamespace and l.granted and l.pid <> pg_backend_pid() and a.xact_start is not null
		order by a.xact_start
		limit 1
	`).Scan(&who)
	if err != nil {
		return "the transaction that uses it"
	}
	return who
}
