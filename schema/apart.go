package schema

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// applyIndex builds the migration's index, on each partition of the log if it is
// theirs, and records it.
func applyIndex(ctx context.Context, conn *pgx.Conn, m Migration) (applied bool, err error) {
	tables := []string{""}
	if m.perPartition() {
		if tables, err = partitions(ctx, conn); err != nil {
			return false, err
		}
	}
	for _, table := range tables {
		recorded, err := buildIndex(ctx, conn, m.Version, onPartition(m.index(), table), onPartition(m.SQL, table))
		pg, ok := errors.AsType[*pgconn.PgError](err)
		switch {
		case ok && pg.Code == "42P01" && table != "": // retention has dropped it meanwhile
		case err != nil, recorded:
			return false, err
		}
	}
	tag, err := conn.Exec(ctx, `
		insert into deed.migrations (version, name, breaking, hash) values ($1, $2, $3, $4) on conflict do nothing
	`, m.Version, m.Name, m.Breaking, hashOf(m.SQL))
	return err == nil && tag.RowsAffected() == 1, err
}

// partitions returns the names of the log's tables. Those that are made from now on
// have the index from deed.keep_partitions.
func partitions(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, `
		select c.relname::text
		from pg_catalog.pg_class c
		where c.relnamespace = 'deed'::regnamespace and c.relkind = 'r' and c.relname ~ '^log_p[0-9]+$'
		order by c.oid`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// onPartition puts the name of one of the log's tables where the migration has
// log_pN.
func onPartition(text, table string) string {
	if table == "" {
		return text
	}
	return strings.ReplaceAll(text, anyPartition, table)
}

// buildIndex builds an index without holding a lock that anybody who writes waits
// for, and reports whether another has recorded the migration meanwhile. No lock of
// ours could be held while it is built: who waits for one has a snapshot, for which
// PostgreSQL's building waits. So several may be at it, and all look until the
// index is there and valid; what somebody left half built is put aside, and removed.
func buildIndex(ctx context.Context, conn *pgx.Conn, version int, name, sql string) (recorded bool, err error) {
	for {
		var building, aside bool
		var valid *bool
		err := conn.QueryRow(ctx, `
			select exists (select from deed.migrations where version = $1),
			  (select i.indisvalid from pg_catalog.pg_index i where i.indexrelid = pg_catalog.to_regclass('deed.' || $2)),
			  exists (select from pg_catalog.pg_stat_progress_create_index b where b.index_relid = pg_catalog.to_regclass('deed.' || $2)),
			  pg_catalog.to_regclass('deed.' || $3) is not null
		`, version, name, name+halfBuilt).Scan(&recorded, &valid, &building, &aside)
		switch {
		case err != nil, recorded:
			return recorded, err
		case aside:
			_, err = conn.Exec(ctx, "drop index concurrently if exists deed."+name+halfBuilt)
		case valid != nil && *valid:
			return false, nil
		case building:
			err = errBusy
		case valid != nil:
			err = putAside(ctx, conn, name, sql)
		default:
			_, err = conn.Exec(ctx, sql)
		}
		if err = unlessRaced(err); err == errBusy {
			select {
			case <-ctx.Done():
				return false, ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		if err != nil {
			return false, err
		}
	}
}

// halfBuilt ends the name of an index that is put aside.
const halfBuilt = "_half_built"

// errBusy says that somebody is building the index, or removing what is left of one.
var errBusy = errors.New("another migrator is at it")

// putAside renames an index that is not valid, unless somebody is building it by the same
// statement: by its name the index could be a valid one by the time that it is dropped.
func putAside(ctx context.Context, conn *pgx.Conn, name, sql string) error {
	return inTx(ctx, conn, func(tx pgx.Tx) error {
		var table string
		err := tx.QueryRow(ctx, `
			select i.indrelid::regclass::text from pg_catalog.pg_index i where i.indexrelid = pg_catalog.to_regclass('deed.' || $1)`, name).Scan(&table)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		// Who builds an index has this lock until just before the commit that makes it valid.
		if _, err := tx.Exec(ctx, "lock table "+table+" in share update exclusive mode nowait"); err != nil {
			return err
		}
		var committing, valid bool
		err = tx.QueryRow(ctx, `
			select exists (select from pg_catalog.pg_stat_activity a where a.pid <> pg_catalog.pg_backend_pid() and a.datname = pg_catalog.current_database() and a.state = 'active' and a.query = $1)`, sql).Scan(&committing)
		if err != nil {
			return err
		}
		if committing {
			return errBusy
		}
		err = tx.QueryRow(ctx, `
			select coalesce((select i.indisvalid from pg_catalog.pg_index i where i.indexrelid = pg_catalog.to_regclass('deed.' || $1)), true)`, name).Scan(&valid)
		if err != nil || valid {
			return err
		}
		_, err = tx.Exec(ctx, "alter index if exists deed."+name+" rename to "+name+halfBuilt)
		return err
	})
}

// unlessRaced makes nil of an error that says that another was faster, or that the two
// waited for each other, and errBusy of one that says that another is at it.
func unlessRaced(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return err
	case pg.Code == "42P07", pg.Code == "40P01", pg.Code == "23505" && pg.SchemaName == "pg_catalog",
		pg.Code == "XX000" && strings.HasPrefix(pg.Message, "tuple concurrently "):
		return nil
	case pg.Code == "55P03":
		return errBusy
	}
	return err
}
