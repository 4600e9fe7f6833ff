package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const pinSQL = `set local search_path = pg_catalog, pg_temp`

func inTx(ctx context.Context, conn *pgx.Conn, fn func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		// Nobody's function of the same name is called with the owner's rights.
		if _, err := tx.Exec(ctx, pinSQL); err != nil {
			return err
		}
		return fn(tx)
	})
}

// lockSQL lets one migrator in at a time, and bounds the waiting for it as for
// what others hold: whoever asks for a table behind one who waits for it waits,
// too.
const lockSQL = `
	set local lock_timeout = '500ms';
	select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('deed.migrate', 0))`

// patience is how long a step is tried.
const patience = time.Minute

// patiently takes a step again while what it needs is in use, so that one
// transaction that stays open holds up nobody behind the migration. For another
// migrator it waits as long as that takes; a vacuum of the server's own it has give way.
func patiently(ctx context.Context, conn *pgx.Conn, step func() error) error {
	who, begun := "", time.Now()
	for {
		err := step()
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "55P03" {
			if ctx.Err() != nil && who != "" {
				return fmt.Errorf("it waited for %s: %w", who, stopped(ctx, err))
			}
			return err
		}
		now, migrator := inTheWay(ctx, conn)
		if who = cmp.Or(now, who, "the transaction that uses it"); migrator {
			begun = time.Now()
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("what it needs is in use, and still was after %s; end %s and run it again: %w", patience, who, err)
		}
		if table := vacuumed(ctx, conn); table != "" && giveWay(ctx, conn, table) {
			continue // before the server begins anew
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it waited for %s: %w", who, stopped(ctx, err))
		case <-time.After(100*time.Millisecond + rand.N(400*time.Millisecond)):
		}
	}
}

// ofVacuums is of locks that the server has in deed for vacuums of its own, which have no login.
const ofVacuums = `l.granted and l.mode = 'ShareUpdateExclusiveLock' and a.usesysid is null and c.relnamespace = pg_catalog.to_regnamespace('deed')
	and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())`

// vacuumed is a table of deed's that the server vacuums; of several any. "" where it vacuums none, or that cannot be told.
func vacuumed(ctx context.Context, conn *pgx.Conn) (table string) {
	err := conn.QueryRow(ctx, `
		select l.relation::regclass::text
		from pg_catalog.pg_locks l
		join pg_catalog.pg_class c on c.oid = l.relation
		join pg_catalog.pg_stat_activity a on a.pid = l.pid
		where c.relkind = 'r' and `+ofVacuums+`
		order by random()
		limit 1
	`).Scan(&table)
	if err != nil {
		return ""
	}
	return table
}

// giveWay has the server give up its vacuum of a table, and reports whether it has: it does for whoever waits longer than it takes until it looks for deadlocks, unless it
// vacuums against a wraparound. Behind the lock that is waited for nobody waits but other migrations and vacuums.
func giveWay(ctx context.Context, conn *pgx.Conn, table string) bool {
	return inTx(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			select pg_catalog.set_config('lock_timeout', 500 + least(s.setting::bigint, 10000) || 'ms', true) from pg_catalog.pg_settings s where s.name = 'deadlock_timeout';
			lock table `+table+` in share update exclusive mode`)
		return err
	}) == nil
}

// stopped is err, and why ctx has ended.
func stopped(ctx context.Context, err error) error {
	why := context.Cause(ctx)
	if !errors.Is(why, ctx.Err()) {
		why = fmt.Errorf("%w: %w", ctx.Err(), why)
	}
	if errors.Is(err, why) {
		return err
	}
	return errors.Join(err, why)
}

// inTheWay names the session that has the migrators' lock, which any login may
// take, or else the one whose transaction has held a table longest, or a vacuum. It is
// another migrator if it has that lock and is of the same login. "" if that cannot be
// told, such as at the end of ctx.
func inTheWay(ctx context.Context, conn *pgx.Conn) (who string, migrator bool) {
	err := conn.QueryRow(ctx, `
		select case when a.usesysid is null then format('the server''s vacuum of %s (process %s)', l.relation::regclass, a.pid)
			else format('session %s of %s (%s)', a.pid, a.usename, concat_ws(', ', a.state,
				case when l.locktype = 'advisory' then 'which has the lock of migrations' end,
				'in its transaction for ' || date_trunc('second', clock_timestamp() - a.xact_start))) end,
			coalesce(l.locktype = 'advisory' and a.usename = session_user, false)
		from pg_catalog.pg_locks l
		left join pg_catalog.pg_class c on c.oid = l.relation
		join pg_catalog.pg_stat_activity a on a.pid = l.pid
		where l.granted and l.pid <> pg_backend_pid() and (
			c.relnamespace <> 'pg_catalog'::regnamespace and a.usesysid is not null
			or `+ofVacuums+`
			or l.locktype = 'advisory' and l.objsubid = 1
				and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
				and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('deed.migrate', 0))
		order by l.locktype = 'advisory' desc, a.usesysid is null, a.xact_start
		limit 1
	`).Scan(&who, &migrator)
	if err != nil {
		return "", false
	}
	return who, migrator
}
