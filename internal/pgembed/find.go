package pgembed

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// MinMajor is the oldest major version that is used.
const MinMajor = 15

// Binaries are the server's programs of one installation.
type Binaries struct {
	Postgres string // path of postgres
	Initdb   string // path of initdb
	Major    int    // such as 17
}

// Find returns the programs of the newest PostgreSQL on this machine, or those
// in the folder that DEED_PG_BIN names. It looks in PATH, then in the places
// where packages of the usual systems put them. Versions below [MinMajor] do
// not count.
func Find() (Binaries, error) { return hostFinder().find(0) }

// A finder looks for PostgreSQL. Its fields are the parts of the machine that
// the answer depends on.
type finder struct {
	root   string // goes before every absolute folder below
	os     string
	getenv func(string) string
}

func hostFinder() finder { return finder{os: runtime.GOOS, getenv: os.Getenv} }

// places are the folders outside PATH; each "*" stands for a version.
var places = []string{
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/pgsql-*/bin",          // Red Hat
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin", // Homebrew on Intel
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/usr/local/pgsql/bin", // built from source
}

// find returns the newest installation, or, unless major is 0, the first one
// of that major version.
func (f finder) find(major int) (Binaries, error) {
	if dir := f.getenv("DEED_PG_BIN"); dir != "" {
		b, err := inspect(dir)
		switch {
		case err != nil:
			return Binaries{}, fmt.Errorf("pgembed: DEED_PG_BIN: %w", err)
		case b.Major < MinMajor:
			return Binaries{}, fmt.Errorf("pgembed: DEED_PG_BIN: %s holds PostgreSQL %d; deed needs %d or newer", dir, b.Major, MinMajor)
		case major != 0 && b.Major != major:
			return Binaries{}, fmt.Errorf("pgembed: DEED_PG_BIN: %s holds PostgreSQL %d; the data folder was made by PostgreSQL %d", dir, b.Major, major)
		}
		return b, nil
	}

	var found []Binaries
	tooOld := 0
	for _, dir := range f.folders() {
		b, err := inspect(dir)
		switch {
		case err != nil: // not a whole installation
		case b.Major < MinMajor:
			tooOld = max(tooOld, b.Major)
		case major == 0 || b.Major == major:
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		return Binaries{}, f.nothing(major, tooOld)
	}
	// Stable, so PATH goes before a package's folder of the same version.
	slices.SortStableFunc(found, func(a, b Binaries) int { return cmp.Compare(b.Major, a.Major) })
	return found[0], nil
}

// folders lists where an installation may be, PATH first.
func (f finder) folders() []string {
	var dirs []string
	for _, dir := range filepath.SplitList(f.getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue // a program of the current folder is nobody's installation
		}
		if server := filepath.Join(dir, "postgres"); executable(server) {
			dirs = append(dirs, dir)
			if target, err := filepath.EvalSymlinks(server); err == nil {
				dirs = append(dirs, filepath.Dir(target))
			}
		}
		if config := filepath.Join(dir, "pg_config"); executable(config) {
			if out, err := exec.Command(config, "--bindir").Output(); err == nil {
				dirs = append(dirs, strings.TrimSpace(string(out)))
			}
		}
	}
	for _, place := range places {
		matches, _ := filepath.Glob(f.root + place) // the patterns are valid
		dirs = append(dirs, matches...)
	}
	var unique []string
	for _, dir := range dirs {
		if !slices.Contains(unique, dir) {
			unique = append(unique, dir)
		}
	}
	return unique
}

// nothing says in one sentence what the user can do.
func (f finder) nothing(major, tooOld int) error {
	what := "no PostgreSQL server"
	switch {
	case major != 0:
		what = fmt.Sprintf("no server of PostgreSQL %d, which made the data folder,", major)
	case tooOld != 0:
		what = fmt.Sprintf("no PostgreSQL server of version %d or newer (only %d)", MinMajor, tooOld)
	}
	_, err := os.Stat(f.root + "/etc/debian_version")
	install := fmt.Sprintf("install PostgreSQL %d or newer", max(MinMajor, major))
	switch {
	case f.os == "darwin":
		install = fmt.Sprintf("run: brew install postgresql@%d", cmp.Or(major, 17))
	case err == nil && major != 0:
		install = fmt.Sprintf("run: apt-get install postgresql-%d", major)
	case err == nil:
		install = "run: apt-get install postgresql"
	}
	return errors.New("pgembed: " + what + " was found; " + install + " (or set DEED_PG_BIN to the folder that holds postgres and initdb)")
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect returns the installation in dir.
func inspect(dir string) (Binaries, error) {
	b := Binaries{Postgres: filepath.Join(dir, "postgres"), Initdb: filepath.Join(dir, "initdb")}
	for _, program := range []string{b.Postgres, b.Initdb} {
		if !executable(program) {
			return Binaries{}, fmt.Errorf("%s has no program %s", dir, filepath.Base(program))
		}
	}
	out, err := exec.Command(b.Postgres, "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("%s --version: %w", b.Postgres, err)
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return Binaries{}, fmt.Errorf("%s --version answers %q, which names no version", b.Postgres, strings.TrimSpace(string(out)))
	}
	b.Major, err = strconv.Atoi(m[1])
	return b, err
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
