// Package schema installs and checks deed's part of a database: everything in
// the schema "deed", always under that name, and three roles.
//
// Migrations are forward only and applied in order, each in a transaction of
// its own under an advisory lock, or, where an index is built beside those who
// write, in none; any number of processes may start them at once. Functions live in one file each and are replaced whole
// afterwards. Nothing here reads or writes a message.
package schema

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed roles.sql bootstrap.sql triggers.sql grants.sql migrations/*.sql functions/*.sql
var files embed.FS

// minServer is the oldest server_version_num that is supported: 14 lacks
// security_invoker views and has left support.
const minServer = 150000

// ErrNotInstalled says that the database has no schema deed.
var ErrNotInstalled = errors.New("the schema deed is not installed in this database; run: deed migrate up")

// ErrBehind says that the database lacks migrations or functions that this
// program needs.
var ErrBehind = errors.New("the schema deed is older than this program; run: deed migrate up")

// ErrAhead says that a newer program has made a breaking change.
var ErrAhead = errors.New("the schema deed has a breaking change that this program does not know; upgrade the program")

// Migration is one step of the schema.
type Migration struct {
	Version  int
	Name     string // such as "0001_ground"
	Breaking bool   // programs that do not know it must not run
	SQL      string
}

// Migrations returns the steps this program knows, in order.
func Migrations() ([]Migration, error) { return readMigrations(files) }

var migrationName = regexp.MustCompile(`^(\d{4})_[a-z0-9_]+\.sql$`)

func readMigrations(fsys fs.FS) ([]Migration, error) {
	entries, err := fs.ReadDir(fsys, "migrations")
	if err != nil {
		return nil, fmt.Errorf("schema: read migrations: %w", err)
	}
	var list []Migration
	for _, e := range entries {
		parts := migrationName.FindStringSubmatch(e.Name())
		if parts == nil {
			return nil, fmt.Errorf("schema: migration %q: want a name such as 0001_ground.sql", e.Name())
		}
		text, err := fs.ReadFile(fsys, path.Join("migrations", e.Name()))
		if err != nil {
			return nil, fmt.Errorf("schema: read %s: %w", e.Name(), err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		if first != "-- breaking: yes" && first != "-- breaking: no" {
			return nil, fmt.Errorf("schema: migration %s: the first line must be \"-- breaking: yes\" or \"-- breaking: no\"", e.Name())
		}
		version, _ := strconv.Atoi(parts[1])
		if version != len(list)+1 {
			return nil, fmt.Errorf("schema: migration %s: the next number is %04d", e.Name(), len(list)+1)
		}
		m := Migration{version, strings.TrimSuffix(e.Name(), ".sql"), first == "-- breaking: yes", string(text)}
		if err := m.check(); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// functions returns the text of all functions, in an order in which each can
// be created, then their triggers and grants.
func functions() (string, error) {
	entries, err := fs.ReadDir(files, "functions")
	if err != nil {
		return "", fmt.Errorf("schema: read functions: %w", err)
	}
	var b strings.Builder
	for _, e := range entries {
		text, err := fs.ReadFile(files, path.Join("functions", e.Name()))
		if err != nil {
			return "", fmt.Errorf("schema: read %s: %w", e.Name(), err)
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	for _, name := range []string{"triggers.sql", "grants.sql"} {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return "", fmt.Errorf("schema: read %s: %w", name, err)
		}
		b.Write(text)
	}
	return b.String(), nil
}

// FunctionNames returns the names of deed's SQL functions, without the schema,
// sorted. Each exists exactly once.
func FunctionNames() []string {
	entries, _ := fs.ReadDir(files, "functions")
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(strings.TrimPrefix(e.Name(), "deed."), ".sql")
	}
	slices.Sort(names)
	return names
}

// Hash identifies everything that [Up] installs.
func Hash() string {
	h := sha256.New()
	for _, fsys := range []fs.FS{files, faceFiles} {
		_ = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				text, _ := fs.ReadFile(fsys, name)
				fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
			}
			return err
		})
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:16]
}

// functionsNumber is the number of the functions and faces, and the hash of their
// text for which it is theirs. Of two programs with the same migrations the one
// with the higher number has the newer functions; whoever changes one gives it
// the next (go test ./schema -run Golden -update).
//
//go:embed functions.number
var functionsNumber string

// number is that of this program's functions.
func number() int {
	var n int
	_, _ = fmt.Sscan(functionsNumber, &n) // a test reads the file
	return n
}

// Result says what [Up] did.
type Result struct {
	Newer     bool     // a newer program has been here: its functions and faces were left
	Applied   []string // the migrations, by name
	Functions bool     // the functions were replaced
	Roles     []string // the roles that were made for a schema that was there, as after a restore in a new cluster; sorted
	Rights    int      // how many policies and grants were made again
	Faces     []string // the installed faces that were brought up to date
}

// Up installs the schema or brings it up to date; when there is nothing to do
// it changes nothing. Roles, policies and grants that are gone it makes again. It is safe beside running programs and other migrators.
// conn's user must own the schema, or be allowed to create it, and to create
// the roles unless they exist. Errors: [ErrAhead], or what PostgreSQL says.
func Up(ctx context.Context, conn *pgx.Conn) (Result, error) {
	var done Result
	if err := checkServer(ctx, conn); err != nil {
		return done, err
	}
	migrations, err := Migrations()
	if err != nil {
		return done, err
	}
	if done.Roles, err = bootstrap(ctx, conn, migrations); err != nil {
		return done, err
	}
	for _, m := range migrations {
		var applied bool
		err := patiently(ctx, conn, func() (err error) {
			applied, err = apply(ctx, conn, m)
			return err
		})
		if err != nil {
			return done, fmt.Errorf("migrate: %s: %w", m.Name, err)
		}
		if applied {
			done.Applied = append(done.Applied, m.Name)
		}
	}
	err = patiently(ctx, conn, func() (err error) {
		return replaceFunctions(ctx, conn, migrations, &done)
	})
	if err != nil {
		return done, fmt.Errorf("migrate: functions: %w", err)
	}
	return done, nil
}

func checkServer(ctx context.Context, conn *pgx.Conn) error {
	var version int
	var encoding string
	var recovery bool
	err := conn.QueryRow(ctx, `
		select current_setting('server_version_num')::int, current_setting('server_encoding'), pg_is_in_recovery()
	`).Scan(&version, &encoding, &recovery)
	switch {
	case err != nil:
		return fmt.Errorf("migrate: ask the server for its version: %w", err)
	case version < minServer:
		return fmt.Errorf("migrate: the server is PostgreSQL %d; deed needs 15 or newer", version/10000)
	case encoding != "UTF8":
		return fmt.Errorf("migrate: the database's encoding is %s; deed needs UTF8", encoding)
	case recovery:
		return errors.New("migrate: the server is a standby; connect to the primary")
	}
	return nil
}

const pinSQL = `set local search_path = pg_catalog, pg_temp`

func apply(ctx context.Context, conn *pgx.Conn, m Migration) (applied bool, err error) {
	if m.index() != "" {
		return applyIndex(ctx, conn, m)
	}
	err = inTx(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSQL); err != nil {
			return err
		}
		var present bool
		if err := tx.QueryRow(ctx, `select exists (select from deed.migrations where version = $1)`, m.Version).Scan(&present); err != nil {
			return err
		}
		if present {
			return nil
		}
		if _, err := tx.Exec(ctx, m.SQL); err != nil {
			return err
		}
		applied = true
		_, err := tx.Exec(ctx, `
			insert into deed.migrations (version, name, breaking, hash) values ($1, $2, $3, $4)
		`, m.Version, m.Name, m.Breaking, hashOf(m.SQL))
		return err
	})
	return applied, err
}

//go:embed strangers.sql
var dismissStrangersSQL string

// replaceFunctions installs the functions unless exactly they are there, or a
// newer program's, then counts signatures: an overload would be a second truth.
func replaceFunctions(ctx context.Context, conn *pgx.Conn, migrations []Migration, done *Result) error {
	text, err := functions()
	if err != nil {
		return err
	}
	return inTx(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSQL); err != nil {
			return err
		}
		*done = Result{Applied: done.Applied, Roles: done.Roles} // it may be tried again
		var newest, installedNumber int
		var installed string
		err := tx.QueryRow(ctx, `
			select coalesce(max(version), 0), coalesce(max(hash) filter (where version = 0), ''), coalesce(max(number) filter (where version = 0), 0)
			from deed.migrations
		`).Scan(&newest, &installed, &installedNumber)
		if err != nil {
			return err
		}
		if done.Newer = newest > len(migrations) || installedNumber > number(); done.Newer {
			return nil
		}
		if done.Rights, err = restoreRights(ctx, tx, installed == hashOf(text)); err != nil {
			return err
		}
		if installed != hashOf(text) || done.Rights > 0 {
			if _, err := tx.Exec(ctx, "set local check_function_bodies = off;\n"+text); err != nil {
				return err
			}
			done.Functions = true
		}
		if installed != hashOf(text) || installedNumber != number() {
			_, err := tx.Exec(ctx, `
				insert into deed.migrations (version, name, breaking, hash, number) values (0, 'functions', false, $1, $2)
				on conflict (version) do update
				set hash = excluded.hash, number = excluded.number, applied_at = clock_timestamp()
			`, hashOf(text), number())
			if err != nil {
				return err
			}
		}
		if done.Faces, err = upgradeFaces(ctx, tx, done.Rights > 0); err != nil {
			return err
		}
		if err := countFunctions(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, dismissStrangersSQL); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `select deed.keep_partitions()`)
		return err
	})
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

func inTx(ctx context.Context, conn *pgx.Conn, fn func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		// Nobody's function of the same name is called with the owner's rights.
		if _, err := tx.Exec(ctx, pinSQL); err != nil {
			return err
		}
		return fn(tx)
	})
}

// State is one migration, as [Status] sees it.
type State struct {
	Version   int    `json:"version"`
	Name      string `json:"name"`
	Breaking  bool   `json:"breaking"`
	AppliedAt string `json:"applied_at,omitempty"` // RFC 3339; empty: not applied
	Known     bool   `json:"known"`                // this program has it
	number    int    // of the functions
}

// Querier is what reads need: a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Status lists what is applied and what is not, in order. An empty database
// has everything still to come.
func Status(ctx context.Context, q Querier) ([]State, error) {
	migrations, err := Migrations()
	if err != nil {
		return nil, err
	}
	var states []State
	for _, m := range migrations {
		states = append(states, State{Version: m.Version, Name: m.Name, Breaking: m.Breaking, Known: true})
	}
	applied, err := readApplied(ctx, q)
	if errors.Is(err, ErrNotInstalled) {
		return states, nil
	}
	if err != nil {
		return nil, err
	}
	for _, a := range applied {
		if a.Version == 0 {
			continue
		}
		if a.Version <= len(states) {
			states[a.Version-1].AppliedAt = a.AppliedAt
			continue
		}
		states = append(states, a)
	}
	return states, nil
}

func readApplied(ctx context.Context, q Querier) ([]State, error) {
	rows, err := q.Query(ctx, `
		select version, name, breaking, to_char(applied_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
		  coalesce((to_jsonb(m) ->> 'number')::int, 0) -- the column came later
		from deed.migrations m
		order by version
	`)
	if err == nil {
		var states []State
		states, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (State, error) {
			var s State
			err := row.Scan(&s.Version, &s.Name, &s.Breaking, &s.AppliedAt, &s.number)
			return s, err
		})
		if err == nil {
			return states, nil
		}
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "42P01", "3F000": // no such table, no such schema
			return nil, ErrNotInstalled
		case "42501":
			return nil, fmt.Errorf("this login may not read the schema deed; grant it deed_app, deed_worker or deed_admin: %w", err)
		}
	}
	return nil, fmt.Errorf("schema: read deed.migrations: %w", err)
}

// Check says whether this program can work with the installed schema. newer
// is true when the database has compatible migrations, or functions, that the
// program does not know. Errors: [ErrNotInstalled], [ErrBehind], [ErrAhead].
func Check(ctx context.Context, q Querier) (newer bool, err error) {
	migrations, err := Migrations()
	if err != nil {
		return false, err
	}
	applied, err := readApplied(ctx, q)
	if err != nil {
		return false, err
	}
	have := map[int]State{}
	for _, a := range applied {
		have[a.Version] = a
	}
	for _, m := range migrations {
		if _, ok := have[m.Version]; !ok {
			return false, fmt.Errorf("%w (it lacks %s)", ErrBehind, m.Name)
		}
		delete(have, m.Version)
	}
	if _, ok := have[0]; !ok {
		return false, fmt.Errorf("%w (it lacks the functions)", ErrBehind)
	}
	newer = have[0].number > number()
	delete(have, 0)
	for _, a := range applied { // the first
		if _, unknown := have[a.Version]; unknown && a.Breaking {
			return true, fmt.Errorf("%w (%s)", ErrAhead, a.Name)
		}
	}
	return newer || len(have) > 0, nil
}

// SQL returns everything that [Up] would run on an empty database, and what
// installs the faces that are named, as one script for psql.
func SQL(faces ...string) (string, error) {
	migrations, err := Migrations()
	if err != nil {
		return "", err
	}
	roles, err := files.ReadFile("roles.sql")
	if err != nil {
		return "", fmt.Errorf("schema: read roles.sql: %w", err)
	}
	boot, err := files.ReadFile("bootstrap.sql")
	if err != nil {
		return "", fmt.Errorf("schema: read bootstrap.sql: %w", err)
	}
	funcs, err := functions()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- deed: the whole schema, for an empty database. Run with: psql -v ON_ERROR_STOP=1 -1 -f FILE\n\n%s;\n\n%s\n%s\n", pinSQL, roles, boot)
	for _, m := range migrations {
		text := m.SQL
		if m.index() != "" {
			text = strings.Replace(text, " concurrently ", " ", 1) // nobody else is there
		}
		fmt.Fprintf(&b, "%s\ninsert into deed.migrations (version, name, breaking, hash) values (%d, '%s', %t, '%s');\n\n",
			text, m.Version, m.Name, m.Breaking, hashOf(m.SQL))
	}
	fmt.Fprintf(&b, "set local check_function_bodies = off;\n%s\n", funcs)
	fmt.Fprintf(&b, "insert into deed.migrations (version, name, breaking, hash, number) values (0, 'functions', false, '%s', %d);\n",
		hashOf(funcs), number())
	b.WriteString("select deed.keep_partitions();\n")
	for _, name := range faces {
		p, err := faceNamed(name)
		if err != nil {
			return "", err
		}
		text, err := p.sql()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n%s\ninsert into deed.contracts (pack, hash) values ('%s', '%s');\n", text, name, hashOf(text))
	}
	return b.String(), nil
}

// Uninstall drops the schema with everything in it, and the published SQL
// faces. The roles stay: other databases of the cluster may use them.
func Uninstall(ctx context.Context, conn *pgx.Conn) error {
	err := patiently(ctx, conn, func() error {
		return inTx(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, lockSQL); err != nil {
				return err
			}
			if err := dropFaces(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `drop schema if exists deed cascade`)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	return nil
}
