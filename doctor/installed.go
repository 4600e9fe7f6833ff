package doctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/schema"
)

func checkVersion(ctx context.Context, e *exam) error {
	if !e.installed {
		e.addf(Fail, "schema-version", "schema deed", "deed migrate up", "the schema deed is not installed in this database")
		return nil
	}
	newer, err := schema.Check(ctx, e.tx)
	switch {
	case errors.Is(err, schema.ErrBehind):
		e.addf(Fail, "schema-version", "schema deed", "deed migrate up", "%v", err)
	case errors.Is(err, schema.ErrAhead):
		e.addf(Fail, "schema-version", "schema deed", "upgrade this program", "%v", err)
	case err != nil:
		return err
	case newer:
		e.addf(Warn, "schema-version", "schema deed", "upgrade this program soon",
			"the schema has migrations that this program does not know; they are compatible with it")
	}
	return nil
}

// checkDrift compares the schema with what this program installs, if the two
// are of one version at all. Functions too many are checkFunctions's.
func checkDrift(ctx context.Context, e *exam) error {
	newer, err := schema.Check(ctx, e.tx)
	if errors.Is(err, schema.ErrBehind) || errors.Is(err, schema.ErrAhead) || newer {
		e.addf(OK, "schema-drift", "schema deed", "", "not compared: the schema is of another version than this program")
		return nil
	}
	if err != nil {
		return err
	}
	differences, err := schema.Validate(ctx, e.tx)
	if err != nil {
		return err
	}
	differences = slices.DeleteFunc(differences, func(line string) bool {
		name, isFunction := functionOf(line)
		return isFunction && line[0] == '+' && !slices.ContainsFunc(differences, func(other string) bool {
			missing, isFunction := functionOf(other)
			return isFunction && other[0] == '-' && missing == name
		})
	})
	if len(differences) == 0 {
		return nil
	}
	shown := differences[:min(3, len(differences))]
	for i, line := range shown {
		shown[i] = clip(line, 120)
	}
	detail := fmt.Sprintf("%d differences from what was installed (- is missing, + should not be there): %s", len(differences), strings.Join(shown, "; "))
	if more := len(differences) - len(shown); more > 0 {
		detail += fmt.Sprintf("; and %d more", more)
	}
	e.add(Finding{
		"schema-drift", Fail, "schema deed", detail,
		"deed migrate up makes missing policies and grants again; deed migrate validate lists the others: undo them by hand. Functions alone: delete from deed.migrations where version = 0; then deed migrate up",
	})
	return nil
}

// functionLine is a difference in a function, of the schema or of a face.
var functionLine = regexp.MustCompile(`^[-+] (?:[a-z0-9]+: )?function ([^(]+)\(`)

func functionOf(line string) (name string, ok bool) {
	m := functionLine.FindStringSubmatch(line)
	if m == nil {
		return "", false
	}
	return m[1], true
}

func clip(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

func checkFunctions(ctx context.Context, e *exam) error {
	var faces []schema.InstalledFace
	if _, err := schema.Check(ctx, e.tx); !errors.Is(err, schema.ErrBehind) { // that one may know of no faces
		if faces, err = schema.InstalledFaces(ctx, e.tx); err != nil {
			return err
		}
	}
	known := schema.FunctionNames()
	return e.query(ctx, query.Functions, []any{schema.FaceFunctions(faces)}, func(row pgx.Rows) error {
		var space, name, signatures string
		var count int
		if err := row.Scan(&space, &name, &count, &signatures); err != nil {
			return err
		}
		if space == "deed" && !slices.Contains(known, name) {
			e.addf(Warn, "function-foreign", "deed."+name, fmt.Sprintf("alter function deed.%s set schema <one of yours>; -- or drop it: deed migrate up refuses it", name),
				"the schema deed has a function that is not deed's: %s", signatures)
		} else if count > 1 {
			e.addf(Fail, "function-overload", space+"."+name, "drop the signature that docs/sql.md does not have; deed migrate validate names it",
				"%s.%s has %d signatures, it may have one: %s", space, name, count, signatures)
		}
		return nil
	})
}

func checkRowSecurity(ctx context.Context, e *exam) error {
	return e.query(ctx, query.RowSecurity, nil, func(row pgx.Rows) error {
		var table string
		var enabled bool
		if err := row.Scan(&table, &enabled); err != nil {
			return err
		}
		what := "not enabled"
		if enabled {
			what = "enabled and not forced: its owner sees every tenant"
		}
		e.addf(Fail, "row-security", "deed."+table,
			fmt.Sprintf("alter table deed.%s enable row level security, force row level security;", table),
			"row-level security of deed.%s is %s", table, what)
		return nil
	})
}

func checkIndexes(ctx context.Context, e *exam) error {
	return e.query(ctx, query.InvalidIndexes, nil, func(row pgx.Rows) error {
		var index, table string
		var unique bool
		if err := row.Scan(&index, &table, &unique); err != nil {
			return err
		}
		what := "nothing uses it, and every write keeps it up"
		if unique {
			what = "nothing uses it, and it keeps nothing unique that was there before"
		}
		e.addf(Fail, "invalid-index", "deed."+index,
			fmt.Sprintf("reindex index concurrently deed.%[1]s; -- or, if it is yours: drop index concurrently deed.%[1]s;", index),
			"the index of deed.%s is invalid, as a concurrent build leaves it that has failed: %s", table, what)
		return nil
	})
}
