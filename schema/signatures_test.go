package schema_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/internal/pgtest"
)

const signaturesFile = "testdata/signatures.txt"

var (
	// A function of expected.sql: its name, its arguments and what it returns.
	signature = regexp.MustCompile(`(?m)^(?:function )?([a-z0-9_]+)\((.*?)\) returns (.*?)(?: (?:security definer|set |body |grant |immutable|stable|volatile|strict|parallel|leakproof|language ).*)?$`)
	drops     = regexp.MustCompile(`(?m)^\s*(drop function if exists deed\.[^;]+);`)
)

// Whoever comes from any schema that there has been has each function once: what a
// function took and returned before, unless it is as now, gone.sql drops, or a migration of
// before there was that.
// signatures.txt has all that there were; none is taken from it.
func TestUp_DropsWhatFunctionsWere(t *testing.T) {
	t.Parallel()
	expected, err := os.ReadFile("expected.sql")
	if err != nil {
		t.Fatal(err)
	}
	known, err := os.ReadFile(signaturesFile)
	if err != nil {
		t.Fatal(err)
	}
	now := map[string]bool{}
	all := strings.Split(strings.TrimSpace(string(known)), "\n")
	for _, m := range signature.FindAllStringSubmatch(string(expected), -1) {
		line := fmt.Sprintf("%s(%s) returns %s", m[1], m[2], m[3])
		now[line] = true
		if !slices.Contains(all, line) {
			all = append(all, line)
			if !*update {
				t.Errorf("%s lacks %s; go test ./schema -run 'Golden|DropsWhat' -update adds it", signaturesFile, line)
			}
		}
	}
	if *update {
		slices.Sort(all)
		if err := os.WriteFile(signaturesFile, []byte(strings.Join(all, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	db := pgtest.New(t)
	db.Broken()
	owner := db.Conn(t, pgtest.Owner)
	do := func(sql string) string {
		_, err := owner.Exec(t.Context(), sql)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
			return pg.Code
		} else if err != nil {
			t.Fatal(err)
		}
		return ""
	}
	files, _ := filepath.Glob("migrations/*.sql")
	var statements []string
	for _, file := range append(files, "gone.sql") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range drops.FindAllStringSubmatch(string(text), -1) {
			statements = append(statements, m[1])
		}
	}
	for _, line := range all {
		if now[line] {
			continue
		}
		m := signature.FindStringSubmatch(line)
		do(`begin`)
		do(`drop function if exists deed.` + m[1] + ` cascade`) // as it is now
		do(`savepoint made`)
		if state := do(`create function deed.` + m[1] + `(` + m[2] + `) returns text language plpgsql as 'begin end'`); state != "" { // it has OUT arguments
			do(`rollback to savepoint made`)
			do(`create function deed.` + m[1] + `(` + m[2] + `) language plpgsql as 'begin end'`)
		}
		for _, statement := range statements {
			if strings.HasPrefix(statement, "drop function if exists deed."+m[1]+"(") {
				do(statement)
			}
		}
		if pgtest.One[int](t, owner, `select count(*) from pg_proc where pronamespace = 'deed'::regnamespace and proname = $1`, m[1]) != 0 {
			t.Errorf("gone.sql does not drop deed.%s, which there was", line)
		}
		do(`rollback`)
	}
}
