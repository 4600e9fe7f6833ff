package schema

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed faces
var faceFiles embed.FS

// A face is published SQL over deed's store, installed by name.
type face struct {
	name     string
	schema   string // where its functions are
	relation string // what it shows and takes, with its schema
	open     string // the column of the relation that is null until the end
	needs    []string
}

// faces are in the order in which they are installed.
var faces = []face{
	{
		"m10", "m10_recovery", "m10_recovery.outbox", "processed_at",
		[]string{"id", "event_type", "payload", "created_at", "processed_at"},
	},
	{
		"app", "app", "public.outbox", "delivered_at",
		[]string{"id", "topic", "payload", "created_at", "delivered_at"},
	},
}

// Faces returns the names of the published SQL faces.
func Faces() []string {
	names := make([]string, len(faces))
	for i, f := range faces {
		names[i] = f.name
	}
	return names
}

func faceNamed(name string) (face, error) {
	i := slices.IndexFunc(faces, func(f face) bool { return f.name == name })
	if i < 0 {
		return face{}, fmt.Errorf("there is no face %q; there are %s", name, strings.Join(Faces(), ", "))
	}
	return faces[i], nil
}

var faceFunction = regexp.MustCompile(`^\d_([a-z0-9_]+\.[a-z0-9_]+)\.sql$`)

func (f face) files() []string {
	entries, _ := fs.ReadDir(faceFiles, path.Join("faces", f.name))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// functions returns the face's functions with their schema.
func (f face) functions() []string {
	var names []string
	for _, file := range f.files() {
		if m := faceFunction.FindStringSubmatch(file); m != nil && m[1] != f.relation {
			names = append(names, m[1])
		}
	}
	return names
}

// sql returns the text that installs the face or brings it up to date.
func (f face) sql() (string, error) {
	var b strings.Builder
	for _, file := range f.files() {
		text, err := fs.ReadFile(faceFiles, path.Join("faces", f.name, file))
		if err != nil {
			return "", fmt.Errorf("schema: read face %s: %w", f.name, err)
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// FaceFunctions returns the names of the faces' functions, with their
// schemas. Like deed's own, each exists exactly once.
func FaceFunctions(installed []InstalledFace) []string {
	names := []string{}
	for _, i := range installed {
		if f, err := faceNamed(i.Name); err == nil {
			names = append(names, f.functions()...)
		}
	}
	return names
}

// An InstalledFace is a face that the database has.
type InstalledFace struct {
	Name     string
	Adopting string // the table that is being emptied into the log; "" if none is
	hash     string
}

// InstalledFaces lists the faces that are installed.
func InstalledFaces(ctx context.Context, q Querier) ([]InstalledFace, error) {
	rows, err := q.Query(ctx, `select pack, coalesce(adopting, ''), hash from deed.contracts order by pack`)
	if err == nil {
		var list []InstalledFace
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (InstalledFace, error) {
			var f InstalledFace
			return f, row.Scan(&f.Name, &f.Adopting, &f.hash)
		})
		if err == nil {
			return list, nil
		}
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "42P01" || pg.Code == "3F000") {
		return nil, ErrNotInstalled
	}
	return nil, fmt.Errorf("schema: read deed.contracts: %w", err)
}

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

// put runs the face's text and remembers it.
func (f face) put(ctx context.Context, tx pgx.Tx, adopting *string) error {
	text, err := f.sql()
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "set local check_function_bodies = off;\n"+text); err != nil {
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" {
			return fmt.Errorf("%w; the face puts a relation into %s and functions into %s: run this as a login that may create there",
				err, f.relation, f.schema)
		}
		return err
	}
	_, err = tx.Exec(ctx, `
		insert into deed.contracts (pack, hash, adopting) values ($1, $2, $3)
		on conflict (pack) do update set hash = excluded.hash
	`, f.name, hashOf(text), adopting)
	if err != nil {
		return err
	}
	return countFunctions(ctx, tx)
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

// drop removes the face's objects, and its schema if nothing else is in it.
func (f face) drop(ctx context.Context, tx pgx.Tx) error {
	var functions string
	err := tx.QueryRow(ctx, `
		select coalesce(string_agg(f.oid::regprocedure::text, ', '), '')
		from pg_catalog.pg_proc f
		join pg_catalog.pg_namespace n on n.oid = f.pronamespace
		where n.nspname || '.' || f.proname = any ($1)
	`, f.functions()).Scan(&functions)
	if err != nil {
		return err
	}
	statements := []string{`drop view if exists ` + f.relation + ` cascade`}
	if functions != "" {
		// The trigger and the functions that return the relation's rows go with the view.
		statements = []string{
			`drop trigger if exists outbox_written on ` + f.relation,
			`drop trigger if exists outbox_deleted on ` + f.relation,
			`drop function ` + functions,
			`drop view if exists ` + f.relation,
		}
	}
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `delete from deed.contracts where pack = $1`, f.name); err != nil {
		return err
	}
	var empty bool
	err = tx.QueryRow(ctx, `
		select n.nspname is not null
		  and not exists (select from pg_catalog.pg_class c where c.relnamespace = n.oid)
		  and not exists (select from pg_catalog.pg_proc f where f.pronamespace = n.oid)
		  and not exists (select from pg_catalog.pg_type t where t.typnamespace = n.oid)
		from (select $1::text as name) w
		left join pg_catalog.pg_namespace n on n.nspname = w.name
	`, f.schema).Scan(&empty)
	if err != nil || !empty {
		return err
	}
	_, err = tx.Exec(ctx, `drop schema `+f.schema)
	return err
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
