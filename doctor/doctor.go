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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Level says how bad a finding is.
type Level string

const (
	OK   Level = "ok"   // all is well, or worth knowing
	Warn Level = "warn" // it works, and somebody should look
	Fail Level = "fail" // something does not work, or will stop soon
)

// A Finding is what one check has to say about one thing.
type Finding struct {
	Name    string `json:"name"`              // one of [Names]
	Level   Level  `json:"level"`             // how bad it is
	Subject string `json:"subject,omitempty"` // the table, session or setting
	Detail  string `json:"detail"`            // what is so, since when, how much
	Remedy  string `json:"remedy,omitempty"`  // what to do next
}

// Options says from where on something is trouble. The zero value works.
type Options struct {
	// Long is how long a transaction may stay open, a backfill unfinished or a
	// table with many dead rows unvacuumed. Default 5m.
	Long time.Duration

	// OldXIDs is how many transactions back one may hold the horizon. Default
	// 1,000,000.
	OldXIDs int64

	// DeadRows is how many dead rows a table may have before it matters when
	// it was last vacuumed. Default 100,000.
	DeadRows int64

	// ClockSkew is how far this process's clock may be from the database's.
	// Default 2s.
	ClockSkew time.Duration

	// Environment is that of the processes here; empty: they name none. Another
	// one than the installation's holds them. Default: it is not asked.
	Environment *string

	// Deadline bounds every statement. Default 5s.
	Deadline time.Duration
}

func (o Options) withDefaults() (Options, error) {
	o.Long = cmp.Or(o.Long, 5*time.Minute)
	o.OldXIDs = cmp.Or(o.OldXIDs, 1_000_000)
	o.DeadRows = cmp.Or(o.DeadRows, 100_000)
	o.ClockSkew = cmp.Or(o.ClockSkew, 2*time.Second)
	o.Deadline = cmp.Or(o.Deadline, 5*time.Second)
	var errs []error
	for name, d := range map[string]time.Duration{"Long": o.Long, "ClockSkew": o.ClockSkew} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("option %s %s is negative", name, d))
		}
	}
	if o.OldXIDs < 0 || o.DeadRows < 0 {
		errs = append(errs, fmt.Errorf("option OldXIDs %d or DeadRows %d is negative", o.OldXIDs, o.DeadRows))
	}
	if o.Deadline < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("option Deadline %s is below 10ms", o.Deadline))
	}
	return o, errors.Join(errs...)
}

// DB is a pool or a connection.
type DB interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

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

// exam is one examination: a read-only transaction, and what it has found. A
// statement that fails ends the transaction; the next check gets another.
type exam struct {
	db       DB
	opts     Options
	tx       pgx.Tx // nil between a failure and the next check
	findings Findings
	skipped  map[string]bool // names whose check was not made

	login     string // quoted, for statements that people run
	installed bool   // the schema deed is there
	reads     bool   // the login holds deed_worker or deed_admin, or needs neither
	monitors  bool   // the login sees what other logins' sessions do
}

// begin opens the transaction in which the next checks read.
func (e *exam) begin(ctx context.Context) error {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	tx, err := e.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	e.tx = tx
	// The server's own time-out ends a statement without costing the connection.
	if err := e.queryRow(ctx, query.Bound, []any{e.opts.Deadline.Milliseconds()}, new(string)); err != nil {
		e.end(ctx)
		return err
	}
	return nil
}

// bound gives the server's time-out the time to arrive before the context ends.
func (e *exam) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.opts.Deadline+time.Second)
}

// end gives the connection back.
func (e *exam) end(ctx context.Context) {
	if e.tx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = e.tx.Rollback(ctx) // nothing was written; a lost connection is noticed by the next statement
	e.tx = nil
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

func (e *exam) add(f Finding) { e.findings = append(e.findings, f) }

func (e *exam) addf(level Level, name, subject, remedy, format string, args ...any) {
	e.add(Finding{name, level, subject, fmt.Sprintf(format, args...), remedy})
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

// query runs a statement of queries.sql and has scan called for each row.
func (e *exam) query(ctx context.Context, statement string, args []any, scan func(pgx.Rows) error) error {
	rows, err := e.tx.Query(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// queryRow runs a statement that answers with one row.
func (e *exam) queryRow(ctx context.Context, statement string, args []any, dest ...any) error {
	return e.tx.QueryRow(ctx, statement, args...).Scan(dest...)
}
