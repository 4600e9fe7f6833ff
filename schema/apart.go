package schema

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// applyIndex builds the migration's index without holding a lock that anybody
// who writes waits for. No lock of ours could be held meanwhile either: who
// waits for one has a snapshot, for which PostgreSQL's building waits. So
// several may be at it, and all look until the index is there and valid; what
// somebody left half built is removed first.
func applyIndex(ctx context.Context, conn *pgx.Conn, m Migration) (applied bool, err error) {
	for {
		var recorded, building bool
		var valid *bool
		err := conn.QueryRow(ctx, `
			select exists (select from deed.migrations where version = $1),
			  (select i.indisvalid from pg_catalog.pg_index i where i.indexrelid = pg_catalog.to_regclass('deed.' || $2)),
			  exists (select from pg_catalog.pg_stat_progress_create_index b where b.index_relid = pg_catalog.to_regclass('deed.' || $2))
		`, m.Version, m.index()).Scan(&recorded, &valid, &building)
		switch {
		case err != nil:
			return false, err
		case recorded:
			return false, nil
		case valid != nil && *valid:
			tag, err := conn.Exec(ctx, `
				insert into deed.migrations (version, name, breaking, hash) values ($1, $2, $3, $4) on conflict do nothing
			`, m.Version, m.Name, m.Breaking, hashOf(m.SQL))
			return err == nil && tag.RowsAffected() == 1, err
		case building:
			select {
			case <-ctx.Done():
				return false, ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
			continue
		case valid != nil:
			_, err = conn.Exec(ctx, "drop index concurrently if exists deed."+m.index())
		default:
			_, err = conn.Exec(ctx, m.SQL)
		}
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok &&
			(pg.Code == "42P07" || pg.Code == "40P01" || (pg.Code == "23505" && pg.SchemaName == "pg_catalog") ||
				pg.Code == "XX000" && strings.HasPrefix(pg.Message, "tuple concurrently ")) {
			err = nil // another was faster, as at removing what is half built, or the two waited for each other
		}
		if err != nil {
			return false, err
		}
	}
}
