// Package doctor examines a deed installation and the PostgreSQL under it: the
// schema, the roles, the settings, the room that is left, and who holds back
// what.
//
// It only reads, it shows no payload and no query's text, and each of its
// statements is bounded. It works with a login that holds deed_worker or
// deed_admin, and sees more with pg_monitor; what it was not allowed to see is
// a finding too. docs/operations.md says what each finding means.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Examine makes every check and returns what it found, the worst first: of a
// name of which there is nothing to report, one finding of the level [OK]. A
// check that could not be made is a finding named not-examined instead; those
// of the schema are left out while it is not installed. The error is of the
// options, or of a database that does not answer.
func Examine(ctx context.Context, db DB, opts Options) (Findings, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	e := &exam{db: db, opts: opts, skipped: map[string]bool{}}
	defer e.end(ctx)
	for _, c := range checks {
		if e.tx == nil {
			if err := e.begin(ctx); err != nil {
				return nil, fmt.Errorf("doctor: %w", err)
			}
		}
		e.run(ctx, c)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("doctor: %w", context.Cause(ctx))
		}
	}
	e.conclude()
	return e.findings, nil
}

// run makes one check.
func (e *exam) run(ctx context.Context, c check) {
	if c.deed && !e.installed {
		e.skip(c) // schema-version has said so
		return
	}
	bounded, cancel := e.bound(ctx)
	defer cancel()
	err := c.run(bounded, e)
	if err == nil {
		return
	}
	e.end(ctx)
	e.skip(c)
	e.add(Finding{
		Name: "not-examined", Level: Warn, Subject: strings.Join(c.names, ", "),
		Detail: "this check could not be made: " + err.Error(), Remedy: e.remedyFor(err),
	})
}

func (e *exam) skip(c check) {
	for _, name := range c.names {
		e.skipped[name] = true
	}
}

// remedyFor says what would let a check be made.
func (e *exam) remedyFor(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "42501": // insufficient privilege
			return fmt.Sprintf("grant deed_admin, pg_monitor to %s;", cmp.Or(e.login, "this login"))
		case "57014": // cancelled by the statement's time-out
			return fmt.Sprintf("look again when the server is less busy; the statement was ended after %s", e.opts.Deadline)
		}
	}
	return "run deed doctor again; if the schema is old, run deed migrate up first"
}

// conclude says of every name of which nothing was found that all is well.
func (e *exam) conclude() {
	found := map[string]bool{}
	for _, f := range e.findings {
		found[f.Name] = true
	}
	for _, c := range checks {
		for i, name := range c.names {
			if !found[name] && !e.skipped[name] {
				e.add(Finding{Name: name, Level: OK, Detail: c.well[i]})
			}
		}
	}
	e.findings.sort()
}
