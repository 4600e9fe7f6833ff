package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// InstallFaces installs faces by name; those that are installed it leaves
// as they are ([Up] keeps them up to date). If a table of the name of a face's
// relation exists, the face is refused unless adopt is given: then the table is
// renamed in the transaction that installs the face, and [Adopt] moves its
// undelivered rows over. The same goes for functions of the faces' names, which
// adopting replaces. If a row cannot be published, nothing is changed.
func InstallFaces(ctx context.Context, conn *pgx.Conn, names []string, adopt *Takeover) (installed []string, err error) {
	var chosen []face
	var errs []error
	for _, name := range names {
		f, err := faceNamed(name)
		errs = append(errs, err)
		chosen = append(chosen, f)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, f := range chosen {
		done := false
		err := patiently(ctx, conn, func() error {
			return inTx(ctx, conn, func(tx pgx.Tx) (err error) {
				done, err = installFace(ctx, tx, f, adopt)
				return err
			})
		})
		if err != nil {
			return installed, fmt.Errorf("install the face %s: %w", f.name, err)
		}
		if done {
			installed = append(installed, f.name)
		}
	}
	return installed, nil
}

func installFace(ctx context.Context, tx pgx.Tx, f face, adopt *Takeover) (bool, error) {
	if _, err := tx.Exec(ctx, lockSQL); err != nil {
		return false, err
	}
	have, err := InstalledFaces(ctx, tx)
	if err != nil || slices.ContainsFunc(have, func(i InstalledFace) bool { return i.Name == f.name }) {
		return false, err
	}
	if err := f.checkOwner(ctx, tx); err != nil {
		return false, err
	}
	adopting, err := f.makeRoom(ctx, tx, adopt)
	if err != nil {
		return false, err
	}
	if err := f.put(ctx, tx, adopting); err != nil || adopting == nil {
		return err == nil, err
	}
	_, err = tx.Exec(ctx, `update deed.contracts set adopting_topics = $2 where pack = $1`, f.name, adopt.Topics)
	return err == nil, err
}

// checkOwner refuses a schema of somebody else, who could put other functions in the place of the face's: they are
// called by deed's workers, with their rights. Who owns the database, or is a superuser, is trusted with it. A member of the owner's role
// is not: whoever has a login for it owns the schema, too.
func (f face) checkOwner(ctx context.Context, tx pgx.Tx) error {
	var owner, ours string
	err := tx.QueryRow(ctx, `
		select o.rolname, d.rolname
		from pg_catalog.pg_namespace n
		join pg_catalog.pg_roles o on o.oid = n.nspowner
		cross join (select r.* from pg_catalog.pg_namespace s join pg_catalog.pg_roles r on r.oid = s.nspowner where s.nspname = 'deed') d
		where n.nspname = $1 and not o.rolsuper and o.rolname not in ('pg_database_owner', current_user) and o.oid <> d.oid
		  and o.oid <> (select b.datdba from pg_catalog.pg_database b where b.datname = current_database())
	`, f.schema).Scan(&owner, &ours)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("the schema %s belongs to %s, who could replace the face's functions, which deed's workers call: give it to the owner of the schema deed, with: alter schema %[1]s owner to %s",
		f.schema, owner, pgx.Identifier{ours}.Sanitize())
}

// upgradeFaces brings the installed faces up to date, or puts all of them
// again: their grants go with the roles.
func upgradeFaces(ctx context.Context, tx pgx.Tx, again bool) (replaced []string, err error) {
	have, err := InstalledFaces(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, i := range have {
		f, err := faceNamed(i.Name)
		if err != nil {
			continue // a newer program's
		}
		text, err := f.sql()
		if err != nil {
			return nil, err
		}
		if i.hash == hashOf(text) && !again {
			continue
		}
		if err := f.put(ctx, tx, nil); err != nil {
			return nil, fmt.Errorf("face %s: %w", f.name, err)
		}
		replaced = append(replaced, f.name)
	}
	return replaced, nil
}

// UninstallFaces takes faces away, their messages stay. It returns those
// that were there; a face whose adopted table still has rows to move is not
// taken away.
func UninstallFaces(ctx context.Context, conn *pgx.Conn, names []string) (removed []string, err error) {
	err = patiently(ctx, conn, func() error {
		return inTx(ctx, conn, func(tx pgx.Tx) error {
			removed = nil
			if _, err := tx.Exec(ctx, lockSQL); err != nil {
				return err
			}
			have, err := InstalledFaces(ctx, tx)
			if err != nil {
				return err
			}
			for _, name := range names {
				f, err := faceNamed(name)
				if err != nil {
					return err
				}
				i := slices.IndexFunc(have, func(i InstalledFace) bool { return i.Name == name })
				if i < 0 {
					continue
				}
				if have[i].Adopting != "" {
					return fmt.Errorf("face %s is adopting %s, whose rows are not all moved; finish with: deed migrate up", name, have[i].Adopting)
				}
				if err := f.drop(ctx, tx); err != nil {
					return fmt.Errorf("face %s: %w", name, err)
				}
				removed = append(removed, name)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("uninstall faces: %w", err)
	}
	return removed, nil
}

// dropFaces removes all faces that are installed, with the schema deed.
func dropFaces(ctx context.Context, tx pgx.Tx) error {
	var present bool
	if err := tx.QueryRow(ctx, `select to_regclass('deed.contracts') is not null`).Scan(&present); err != nil || !present {
		return err
	}
	have, err := InstalledFaces(ctx, tx)
	if err != nil {
		return err
	}
	for _, i := range have {
		f, err := faceNamed(i.Name)
		if err != nil {
			return err
		}
		if err := f.drop(ctx, tx); err != nil {
			return fmt.Errorf("face %s: %w", f.name, err)
		}
	}
	return nil
}
