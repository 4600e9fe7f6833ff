package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DB is a pool or a connection.
type DB interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
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

func (e *exam) add(f Finding) { e.findings = append(e.findings, f) }

func (e *exam) addf(level Level, name, subject, remedy, format string, args ...any) {
	e.add(Finding{name, level, subject, fmt.Sprintf(format, args...), remedy})
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
