package schema

import (
	"cmp"
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
	schema   string // where its functions are; "": it has none of its own
	relation string // what it shows and takes, with its schema
	open     string // the column of the relation that is null until the end; "": a table of the name cannot be adopted
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
	{name: "contacts", relation: "public.contact_identities"},
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

// put runs the face's text and remembers it.
func (f face) put(ctx context.Context, tx pgx.Tx, adopting *string) error {
	text, err := f.sql()
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "set local check_function_bodies = off;\n"+text); err != nil {
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" {
			return fmt.Errorf("%w; the face puts %s there, and functions into its schema %s: run this as a login that may create there",
				err, f.relation, cmp.Or(f.schema, "deed"))
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

// countFunctions names functions of which there are two, deed's and those of
// the faces that are installed, and functions in the schema deed that are not
// deed's. Other schemas may have functions of their owner's beside a face's.
func countFunctions(ctx context.Context, tx pgx.Tx) error {
	have, err := InstalledFaces(ctx, tx)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `
		select n.nspname || '.' || p.proname, count(*), string_agg(p.oid::regprocedure::text, ', ' order by p.oid)
		from pg_catalog.pg_proc p
		join pg_catalog.pg_namespace n on n.oid = p.pronamespace
		where n.nspname = 'deed' or n.nspname || '.' || p.proname = any ($1)
		group by n.nspname, p.proname
	`, FaceFunctions(have))
	if err != nil {
		return err
	}
	defer rows.Close()
	known := FunctionNames()
	var problems []error
	for rows.Next() {
		var name, signatures string
		var count int
		if err := rows.Scan(&name, &count, &signatures); err != nil {
			return err
		}
		if own, ok := strings.CutPrefix(name, "deed."); ok && !slices.Contains(known, own) {
			problems = append(problems, fmt.Errorf("function %s is not deed's; drop it or move it to a schema of yours: %s", name, signatures))
		} else if count != 1 {
			problems = append(problems, fmt.Errorf("function %s has %d signatures, it may have one: %s", name, count, signatures))
		}
	}
	return errors.Join(append(problems, rows.Err())...)
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
