// Package schema installs and checks deed's part of a database: everything in
// the schema "deed", always under that name, and three roles.
//
// Migrations are forward only and applied in order, each in a transaction of
// its own under an advisory lock, or, where an index is built beside those who
// write, in none; any number of processes may start them at once. Functions live
// in one file each and are replaced whole afterwards. Nothing here reads or writes
// a message.
package schema

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
)

// minServer is the oldest server_version_num that is supported: 14 lacks
// security_invoker views and has left support.
const minServer = 150000

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
		switch {
		case m.perPartition(): // there are none yet
			text = "-- " + m.Name
		case m.index() != "":
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
