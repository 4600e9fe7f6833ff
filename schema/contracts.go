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

//go:embed contracts
var contractFiles embed.FS

// A pack is a published SQL face over deed's store, installed by name.
type pack struct {
	name     string
	schema   string // where its functions are
	relation string // what it shows and takes, with its schema
	open     string // the column of the relation that is null until the end
	needs    []string
}

// packs are in the order in which they are installed.
var packs = []pack{
	{
		"m10", "m10_recovery", "m10_recovery.outbox", "processed_at",
		[]string{"id", "event_type", "payload", "created_at", "processed_at"},
	},
	{
		"app", "app", "public.outbox", "delivered_at",
		[]string{"id", "topic", "payload", "created_at", "delivered_at"},
	},
}

// Packs returns the names of the contracts packs.
func Packs() []string {
	names := make([]string, len(packs))
	for i, p := range packs {
		names[i] = p.name
	}
	return names
}

func packNamed(name string) (pack, error) {
	i := slices.IndexFunc(packs, func(p pack) bool { return p.name == name })
	if i < 0 {
		return pack{}, fmt.Errorf("contracts: there is no pack %q; there are %s", name, strings.Join(Packs(), ", "))
	}
	return packs[i], nil
}

var packFunction = regexp.MustCompile(`^\d_([a-z0-9_]+\.[a-z0-9_]+)\.sql$`)

func (p pack) files() []string {
	entries, _ := fs.ReadDir(contractFiles, path.Join("contracts", p.name))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// functions returns the pack's functions with their schema.
func (p pack) functions() []string {
	var names []string
	for _, file := range p.files() {
		if m := packFunction.FindStringSubmatch(file); m != nil && m[1] != p.relation {
			names = append(names, m[1])
		}
	}
	return names
}

// sql returns the text that installs the pack or brings it up to date.
func (p pack) sql() (string, error) {
	var b strings.Builder
	for _, file := range p.files() {
		text, err := fs.ReadFile(contractFiles, path.Join("contracts", p.name, file))
		if err != nil {
			return "", fmt.Errorf("schema: read pack %s: %w", p.name, err)
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// ContractFunctions returns the names of the packs' functions, with their
// schemas. Like deed's own, each exists exactly once.
func ContractFunctions(installed []InstalledPack) []string {
	names := []string{}
	for _, i := range installed {
		if p, err := packNamed(i.Name); err == nil {
			names = append(names, p.functions()...)
		}
	}
	return names
}

// An InstalledPack is a pack that the database has.
type InstalledPack struct {
	Name     string
	Adopting string // the table that is being emptied into the log; "" if none is
	hash     string
}

// Contracts lists the packs that are installed.
func Contracts(ctx context.Context, q Querier) ([]InstalledPack, error) {
	rows, err := q.Query(ctx, `select pack, coalesce(adopting, ''), hash from deed.contracts order by pack`)
	if err == nil {
		var list []InstalledPack
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (InstalledPack, error) {
			var p InstalledPack
			return p, row.Scan(&p.Name, &p.Adopting, &p.hash)
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

// InstallContracts installs packs by name; those that are installed it leaves
// as they are ([Up] keeps them up to date). If a table of the name of a pack's
// relation exists, the pack is refused unless adopt is given: then the table is
// renamed in the transaction that installs the pack, and [Adopt] moves its
// undelivered rows over. The same goes for functions of the packs' names, which
// adopting replaces. If a row cannot be published, nothing is changed.
func InstallContracts(ctx context.Context, conn *pgx.Conn, names []string, adopt *Takeover) (installed []string, err error) {
	var chosen []pack
	var errs []error
	for _, name := range names {
		p, err := packNamed(name)
		errs = append(errs, err)
		chosen = append(chosen, p)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, p := range chosen {
		done := false
		err := patiently(ctx, conn, func() error {
			return inTx(ctx, conn, func(tx pgx.Tx) (err error) {
				done, err = installPack(ctx, tx, p, adopt)
				return err
			})
		})
		if err != nil {
			return installed, fmt.Errorf("contracts: pack %s: %w", p.name, err)
		}
		if done {
			installed = append(installed, p.name)
		}
	}
	return installed, nil
}

func installPack(ctx context.Context, tx pgx.Tx, p pack, adopt *Takeover) (bool, error) {
	if _, err := tx.Exec(ctx, lockSQL); err != nil {
		return false, err
	}
	have, err := Contracts(ctx, tx)
	if err != nil || slices.ContainsFunc(have, func(i InstalledPack) bool { return i.Name == p.name }) {
		return false, err
	}
	adopting, err := p.makeRoom(ctx, tx, adopt)
	if err != nil {
		return false, err
	}
	if err := p.put(ctx, tx, adopting); err != nil || adopting == nil {
		return err == nil, err
	}
	_, err = tx.Exec(ctx, `update deed.contracts set adopting_topics = $2 where pack = $1`, p.name, adopt.Topics)
	return err == nil, err
}

// put runs the pack's text and remembers it.
func (p pack) put(ctx context.Context, tx pgx.Tx, adopting *string) error {
	text, err := p.sql()
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "set local check_function_bodies = off;\n"+text); err != nil {
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" {
			return fmt.Errorf("%w; the pack puts a relation into %s and functions into %s: run this as a login that may create there",
				err, p.relation, p.schema)
		}
		return err
	}
	_, err = tx.Exec(ctx, `
		insert into deed.contracts (pack, hash, adopting) values ($1, $2, $3)
		on conflict (pack) do update set hash = excluded.hash
	`, p.name, hashOf(text), adopting)
	if err != nil {
		return err
	}
	return countFunctions(ctx, tx)
}

// upgradeContracts brings the installed packs up to date, or puts all of them
// again: their grants go with the roles.
func upgradeContracts(ctx context.Context, tx pgx.Tx, again bool) (replaced []string, err error) {
	have, err := Contracts(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, i := range have {
		p, err := packNamed(i.Name)
		if err != nil {
			continue // a newer program's
		}
		text, err := p.sql()
		if err != nil {
			return nil, err
		}
		if i.hash == hashOf(text) && !again {
			continue
		}
		if err := p.put(ctx, tx, nil); err != nil {
			return nil, fmt.Errorf("pack %s: %w", p.name, err)
		}
		replaced = append(replaced, p.name)
	}
	return replaced, nil
}

// UninstallContracts takes packs away, their messages stay. It returns those
// that were there; a pack whose adopted table still has rows to move is not
// taken away.
func UninstallContracts(ctx context.Context, conn *pgx.Conn, names []string) (removed []string, err error) {
	err = patiently(ctx, conn, func() error {
		return inTx(ctx, conn, func(tx pgx.Tx) error {
			removed = nil
			if _, err := tx.Exec(ctx, lockSQL); err != nil {
				return err
			}
			have, err := Contracts(ctx, tx)
			if err != nil {
				return err
			}
			for _, name := range names {
				p, err := packNamed(name)
				if err != nil {
					return err
				}
				i := slices.IndexFunc(have, func(i InstalledPack) bool { return i.Name == name })
				if i < 0 {
					continue
				}
				if have[i].Adopting != "" {
					return fmt.Errorf("pack %s is adopting %s, whose rows are not all moved; finish with: deed migrate up", name, have[i].Adopting)
				}
				if err := p.drop(ctx, tx); err != nil {
					return fmt.Errorf("pack %s: %w", name, err)
				}
				removed = append(removed, name)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("uninstall contracts: %w", err)
	}
	return removed, nil
}

// drop removes the pack's objects, and its schema if nothing else is in it.
func (p pack) drop(ctx context.Context, tx pgx.Tx) error {
	var functions string
	err := tx.QueryRow(ctx, `
		select coalesce(string_agg(f.oid::regprocedure::text, ', '), '')
		from pg_catalog.pg_proc f
		join pg_catalog.pg_namespace n on n.oid = f.pronamespace
		where n.nspname || '.' || f.proname = any ($1)
	`, p.functions()).Scan(&functions)
	if err != nil {
		return err
	}
	statements := []string{`drop view if exists ` + p.relation + ` cascade`}
	if functions != "" {
		// The trigger and the functions that return the relation's rows go with the view.
		statements = []string{
			`drop trigger if exists outbox_written on ` + p.relation,
			`drop trigger if exists outbox_deleted on ` + p.relation,
			`drop function ` + functions,
			`drop view if exists ` + p.relation,
		}
	}
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `delete from deed.contracts where pack = $1`, p.name); err != nil {
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
	`, p.schema).Scan(&empty)
	if err != nil || !empty {
		return err
	}
	_, err = tx.Exec(ctx, `drop schema `+p.schema)
	return err
}

// dropContracts removes all packs that are installed, with the schema deed.
func dropContracts(ctx context.Context, tx pgx.Tx) error {
	var present bool
	if err := tx.QueryRow(ctx, `select to_regclass('deed.contracts') is not null`).Scan(&present); err != nil || !present {
		return err
	}
	have, err := Contracts(ctx, tx)
	if err != nil {
		return err
	}
	for _, i := range have {
		p, err := packNamed(i.Name)
		if err != nil {
			return err
		}
		if err := p.drop(ctx, tx); err != nil {
			return fmt.Errorf("pack %s: %w", p.name, err)
		}
	}
	return nil
}
