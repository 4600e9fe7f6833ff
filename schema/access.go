package schema

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A right is a policy or a grant, as Describe prints it below what it is on.
type right struct{ on, text string }

// name is what two rights on one thing must not share: policies have names.
func (r right) name() string {
	if m := policyLine.FindStringSubmatch(r.text); m != nil {
		return r.on + " policy " + m[1]
	}
	return r.on + " " + r.text
}

var (
	describedThing = regexp.MustCompile(`^(?:schema deed$|(?:table|view|sequence) deed\.[a-z0-9_]+)`)
	policyLine     = regexp.MustCompile(`^policy (\S+) for (\S) to (.+?)(?: using (.+?))?(?: check (.+))?$`)
	policyCommands = map[string]string{"*": "all", "r": "select", "a": "insert", "w": "update", "d": "delete"}
)

// rightsOf reads the policies and grants in a description, and what it describes.
func rightsOf(description string) (rights []right, things map[string]bool) {
	things = map[string]bool{}
	on := ""
	for line := range strings.Lines(description) {
		line = strings.TrimSuffix(line, "\n")
		if thing := describedThing.FindString(line); thing != "" {
			on = thing
			things[on] = true
			continue
		}
		if function, grantees, _ := strings.Cut(line, " grant to "); strings.HasPrefix(function, "function ") {
			things[function] = true
			for role := range strings.FieldsFuncSeq(grantees, func(c rune) bool { return c == ',' || c == ' ' }) {
				rights = append(rights, right{function, "grant execute to " + role})
			}
			continue
		}
		if text := strings.TrimPrefix(line, "  "); strings.HasPrefix(text, "policy ") || strings.HasPrefix(text, "grant ") {
			rights = append(rights, right{on, text})
		}
	}
	return rights, things
}

// missingRights are those that this program installs on what is there, and that
// are not.
func missingRights(got string) []right {
	have, things := rightsOf(got)
	names := map[string]bool{}
	for _, r := range have {
		names[r.name()] = true
	}
	wanted, _ := rightsOf(expected)
	var missing []right
	for _, r := range wanted {
		if things[r.on] && !names[r.name()] {
			missing = append(missing, r)
		}
	}
	return missing
}

func (r right) ofFunction() bool { return strings.HasPrefix(r.on, "function ") }

// sql makes a right on a relation or the schema.
func (r right) sql() string {
	if m := policyLine.FindStringSubmatch(r.text); m != nil {
		role := m[3]
		if role == "owner" {
			role = "current_user" // owner.sql knows better
		}
		sql := fmt.Sprintf("create policy %s on %s for %s to %s", m[1], strings.TrimPrefix(r.on, "table "), policyCommands[m[2]], role)
		if m[4] != "" {
			sql += " using (" + m[4] + ")"
		}
		if m[5] != "" {
			sql += " with check (" + m[5] + ")"
		}
		return sql
	}
	privilege, role, _ := strings.Cut(r.text, " to ")
	return privilege + " on " + strings.Replace(r.on, "view ", "table ", 1) + " to " + role
}

//go:embed owner.sql
var settleOwnerSQL string

// restoreRights makes the policies and grants on relations that are gone, as
// after a restore into a cluster without the roles; it comes before everything
// else, for the owner, too, sees no rows without its policies. It returns how
// many were missing, if the functions are this program's those on functions as
// well: who replaces these makes them.
func restoreRights(ctx context.Context, tx pgx.Tx, functions bool) (count int, err error) {
	got, err := Describe(ctx, tx)
	if err != nil {
		return 0, err
	}
	for _, r := range missingRights(got) {
		if r.ofFunction() {
			if functions {
				count++
			}
			continue
		}
		if _, err := tx.Exec(ctx, r.sql()); err != nil {
			return 0, fmt.Errorf("%s on %s: %w", r.text, r.on, err)
		}
		count++
	}
	_, err = tx.Exec(ctx, settleOwnerSQL)
	return count, err
}
