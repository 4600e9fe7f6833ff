package schema

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed roles.sql bootstrap.sql gone.sql triggers.sql grants.sql migrations/*.sql functions/*.sql
var files embed.FS

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

// functions returns what takes away those of other arguments, the text of all functions, in an order in which each can
// be created, then their triggers and grants.
func functions() (string, error) {
	entries, err := fs.ReadDir(files, "functions")
	if err != nil {
		return "", fmt.Errorf("schema: read functions: %w", err)
	}
	names := []string{"gone.sql"}
	for _, e := range entries {
		names = append(names, path.Join("functions", e.Name()))
	}
	var b strings.Builder
	for _, name := range append(names, "triggers.sql", "grants.sql") {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return "", fmt.Errorf("schema: read %s: %w", name, err)
		}
		b.Write(text)
		b.WriteByte('\n')
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

// apartLine is the second line of a migration that runs in no transaction,
// since it builds an index beside those who write to the table.
const apartLine = "-- transaction: no"

// anyPartition stands in such a migration for each partition of the log.
const anyPartition = "log_pN"

var buildsIndex = regexp.MustCompile(`(?m)^create (?:unique )?index concurrently ((?:log_pN)?[a-z0-9_]+) on deed\.(?:log_pN|[a-z0-9_]+) [^;]*;\s*$`)

// index returns the name of the index that the migration builds outside a
// transaction, or "".
func (m Migration) index() string {
	_, rest, _ := strings.Cut(m.SQL, "\n")
	if second, _, _ := strings.Cut(rest, "\n"); second != apartLine {
		return ""
	}
	return buildsIndex.FindStringSubmatch(m.SQL)[1]
}

// perPartition reports whether that index is one of each partition of the log.
func (m Migration) perPartition() bool { return strings.HasPrefix(m.index(), anyPartition) }

// check refuses what would not run as it is meant.
func (m Migration) check() error {
	if strings.Contains(m.SQL, " concurrently ") != strings.Contains(m.SQL, "\n"+apartLine+"\n") {
		return fmt.Errorf("schema: migration %s: what is done concurrently, and nothing else, has %q in its second line", m.Name, apartLine)
	}
	if strings.Contains(m.SQL, "\n"+apartLine+"\n") && (strings.Count(m.SQL, ";") != 1 || !buildsIndex.MatchString(m.SQL)) {
		return fmt.Errorf("schema: migration %s: outside a transaction it must be one \"create index concurrently NAME on deed.TABLE …;\"", m.Name)
	}
	return nil
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

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:16]
}
