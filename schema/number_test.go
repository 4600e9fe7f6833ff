package schema_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// The number of the functions grows with every change of one: functions.number
// has it, and the hash of what it is the number of. When two branches are merged
// that both changed one, take the higher and renew it once more.
func TestGolden_FunctionsNumber(t *testing.T) {
	t.Parallel()
	var names []string
	for _, pattern := range []string{"functions/*.sql", "faces/*/*.sql", "gone.sql", "triggers.sql", "grants.sql"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.ToSlash(name), len(text), text)
	}
	want := hex.EncodeToString(h.Sum(nil))[:16]
	text, err := os.ReadFile("functions.number")
	if err != nil {
		t.Fatal(err)
	}
	var number int
	var hash string
	if _, err := fmt.Sscan(string(text), &number, &hash); err != nil || number < 1 {
		t.Fatalf("functions.number is %q, want a number and a hash: %v", text, err)
	}
	switch {
	case hash == want:
	case *update:
		if err := os.WriteFile("functions.number", fmt.Appendf(nil, "%d %s\n", number+1, want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("a function has changed since number %d was given: run go test ./schema -run Golden -update", number)
	}
}

// Of two programs with the same migrations the older one leaves the newer one's
// functions and faces, and says so; the newer one replaces the older one's.
func TestUp_LeavesANewerProgramsFunctions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := withFaces(t)
	conn := db.Conn(t, pgtest.Owner)
	changed := func() bool {
		return pgtest.One[bool](t, conn, `select 'jit=off' = any (proconfig) from pg_proc where oid = 'deed.doors'::regproc`)
	}
	as := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(ctx, `alter function deed.doors() set jit = off; update deed.contracts set hash = 'another'; `+sql); err != nil {
			t.Fatal(err)
		}
	}
	as(`update deed.migrations set hash = 'another', number = number + 1 where version = 0`)
	if result := up(t, conn); !result.Newer || result.Functions || len(result.Faces) > 0 || !changed() {
		t.Errorf("beside a newer program's functions Up did %+v; they are still there: %t", result, changed())
	}
	if newer, err := schema.Check(ctx, db.Pool(pgtest.App)); !newer || err != nil {
		t.Errorf("newer %t, %v", newer, err)
	}
	for _, lower := range []string{"number - 1", "0"} {
		as(`update deed.migrations set hash = 'another', number = ` + lower + ` where version = 0`)
		if result := up(t, conn); result.Newer || !result.Functions || len(result.Faces) != len(schema.Faces()) || changed() {
			t.Errorf("beside an older program's functions, %s, Up did %+v; they are still there: %t", lower, result, changed())
		}
		if result := up(t, conn); result.Functions || len(result.Faces) > 0 || result.Newer {
			t.Errorf("again: %+v", result)
		}
	}
	text, err := os.ReadFile("functions.number")
	if err != nil {
		t.Fatal(err)
	}
	if number := pgtest.One[string](t, conn, `select number::text from deed.migrations where version = 0`); !strings.HasPrefix(string(text), number+" ") {
		t.Errorf("the database says %s, functions.number %s", number, text)
	}
}
