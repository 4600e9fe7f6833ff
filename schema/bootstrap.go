package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// bootstrap makes what the migrations need, and the roles. It returns the roles
// that a schema that was there lacked: they are the cluster's, and a dump of a
// database has none.
func bootstrap(ctx context.Context, conn *pgx.Conn, migrations []Migration) (made []string, err error) {
	if err := checkOwner(ctx, conn); err != nil {
		return nil, err
	}
	var installed bool
	var missing []string
	err = conn.QueryRow(ctx, `
		select to_regclass('deed.migrations') is not null, array(
		  select w.name from unnest(array['deed_admin', 'deed_app', 'deed_worker']) w(name)
		  where not exists (select from pg_catalog.pg_roles r where r.rolname = w.name)
		  order by w.name collate "C"
		)
	`).Scan(&installed, &missing)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	if installed {
		if err := checkRights(ctx, conn, migrations); err != nil || len(missing) == 0 {
			return nil, err
		}
		if err := runFiles(ctx, conn, "this cluster lacks the roles "+strings.Join(missing, ", "), "roles.sql"); err != nil {
			return nil, err
		}
		return missing, nil
	}
	return nil, runFiles(ctx, conn, "this login may not set up the schema", "roles.sql", "bootstrap.sql")
}

// checkOwner refuses a schema of somebody else, who may change whatever is made
// in it.
func checkOwner(ctx context.Context, conn *pgx.Conn) error {
	var owner *string
	err := conn.QueryRow(ctx, `
		select (
		  select pg_get_userbyid(n.nspowner) from pg_catalog.pg_namespace n
		  where n.nspname = 'deed' and n.nspowner <> (select r.oid from pg_catalog.pg_roles r where r.rolname = current_user)
		    and (not pg_has_role(n.nspowner, 'member')
		      or (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user)
		        and not (select o.rolsuper from pg_catalog.pg_roles o where o.oid = n.nspowner))
		)
	`).Scan(&owner)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if owner != nil {
		return fmt.Errorf("migrate: the schema deed belongs to %s: run this as %[1]s, or, if that is not who owns deed here, "+
			"rename that schema, or give it away with: alter schema deed owner to …", *owner)
	}
	return nil
}

// makeRolesSQL is what a login that may make roles runs for one that may not.
const makeRolesSQL = "create role deed_app nologin; create role deed_worker nologin; create role deed_admin nologin;"

// checkRights refuses migrations of a schema whose policies are gone with the
// roles: they change what is not there. The table is found by the statement's own snapshot: that of to_regclass may be
// older, and lack what another migrator has committed since.
func checkRights(ctx context.Context, conn *pgx.Conn, migrations []Migration) error {
	var lost bool
	err := conn.QueryRow(ctx, `
		select (select max(m.version) from deed.migrations m) <> $1
		  and not exists (
		    select from pg_catalog.pg_namespace n
		    join pg_catalog.pg_class c on c.relnamespace = n.oid
		    join pg_catalog.pg_policy p on p.polrelid = c.oid
		    where n.nspname = 'deed' and c.relname = 'settings' and p.polname = 'settings_worker'
		  )
		  and exists (select from deed.migrations m where m.version = 1)
	`, len(migrations)).Scan(&lost)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if lost {
		return fmt.Errorf("migrate: the schema deed has lost its policies and grants, as in a restore into a cluster without its roles, and is of another version than this program: "+
			"run deed migrate up of the version that the dump is from, then this one; or, as a login that may, %s and restore the dump again", makeRolesSQL)
	}
	return nil
}

// runFiles runs files of this package in one transaction; problem is what there
// is if this login may not.
func runFiles(ctx context.Context, conn *pgx.Conn, problem string, names ...string) error {
	err := patiently(ctx, conn, func() error {
		return inTx(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, lockSQL); err != nil {
				return err
			}
			for _, name := range names {
				text, err := files.ReadFile(name)
				if err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, string(text)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" {
		return fmt.Errorf("migrate: %s (%w); as a login that may, run once: %s "+
			"grant create on database <this database> to <this login>; and then deed migrate up again", problem, err, makeRolesSQL)
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
