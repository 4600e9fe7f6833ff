// Package inbox processes messages exactly once where their effects are in
// PostgreSQL.
//
// deed delivers at least once: after a crash a message may come again, under
// the same id. A consumer that writes to a PostgreSQL database, deed's own or
// any other, notes the id in the transaction of its effects, and a repeat finds
// it: the effects and the note commit together or not at all. [Install] makes
// the table in the consumer's database, [Once] and [OnceSQL] use it, [Purge]
// forgets old ids. docs/inbox.md says what this promises.
package inbox

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
)

// Horizon is how long ids should be remembered, unless there is reason to
// choose otherwise: longer than a message can take to come again, which is as
// old as a backup that might be restored.
const Horizon = 30 * 24 * time.Hour

//go:embed inbox.sql
var installSQL string

// SQL returns what [Install] runs, for those who let nobody else change their
// database. It is to be run in one transaction.
func SQL() string { return installSQL }

// Install makes the schema deed_inbox in the consumer's database, or brings it
// up to date, and lets roles use it. conn's user must be allowed to create it.
// Any number may do it at once.
func Install(ctx context.Context, conn *pgx.Conn, roles ...string) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, installSQL); err != nil {
			return err
		}
		for _, role := range roles {
			name := pgx.Identifier{role}.Sanitize()
			_, err := tx.Exec(ctx, "grant usage on schema deed_inbox to "+name+
				"; grant execute on all functions in schema deed_inbox to "+name)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("inbox: install: %w", err)
	}
	return nil
}

const onceSQL = `select deed_inbox.once($1, $2::text::uuid)`

// Once runs fn if the consumer has not processed the message yet, and notes in
// tx that it has. fresh says whether fn ran. What fn did and the note are one:
// if fn returns an error, which Once returns, or panics, neither is left in tx,
// and the message is new to the next who asks. They hold once tx commits; only
// then may the message be acknowledged.
//
// Who asks while another transaction is processing the same message waits for
// it. Under REPEATABLE READ and SERIALIZABLE that may end in an error with the
// SQLSTATE 40001, after which the transaction is to be run again.
//
// consumer names what the effects are, such as "invoices": one message may be
// processed once by each. Processes that share the work share the name.
func Once(ctx context.Context, tx pgx.Tx, consumer string, id deed.ID, fn func(tx pgx.Tx) error) (fresh bool, err error) {
	err = pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { // a savepoint
		if err := inner.QueryRow(ctx, onceSQL, consumer, id.String()).Scan(&fresh); err != nil {
			return fmt.Errorf("inbox: once: %w", orInstall(err))
		}
		if !fresh {
			return nil
		}
		return fn(inner)
	})
	return fresh && err == nil, err
}

// OnceSQL is [Once] for database/sql, through any PostgreSQL driver.
func OnceSQL(ctx context.Context, tx *sql.Tx, consumer string, id deed.ID, fn func(tx *sql.Tx) error) (fresh bool, err error) {
	if _, err := tx.ExecContext(ctx, "savepoint deed_inbox"); err != nil {
		return false, fmt.Errorf("inbox: once: %w", err)
	}
	done := false
	defer func() {
		end := "rollback to savepoint deed_inbox"
		if done {
			end = "release savepoint deed_inbox"
		}
		// Whoever cancels ctx may still want the rest of tx.
		if _, endErr := tx.ExecContext(context.WithoutCancel(ctx), end); endErr != nil {
			fresh, err = false, errors.Join(err, fmt.Errorf("inbox: once: %w", endErr))
		}
	}()
	if err := tx.QueryRowContext(ctx, onceSQL, consumer, id.String()).Scan(&fresh); err != nil {
		return false, fmt.Errorf("inbox: once: %w", orInstall(err))
	}
	if fresh {
		if err := fn(tx); err != nil {
			return false, err
		}
	}
	done = true
	return fresh, nil
}

// orInstall says what to do where the inbox is not there, or not for this login.
// Drivers of database/sql other than pgx tell the state by a method as well.
func orInstall(err error) error {
	state, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok {
		return err
	}
	switch state.SQLState() {
	case "3F000", "42883": // no such schema, no such function
		return fmt.Errorf("%w; the inbox is not installed in this database: inbox.Install, or deed inbox install", err)
	case "42501":
		return fmt.Errorf("%w; this login may not use the inbox: inbox.Install with its name, or deed inbox install --grant", err)
	}
	return err
}

// purgeBatch is how many ids one statement forgets.
const purgeBatch = 5000

// Purge forgets what was processed longer ago than horizon, in batches, and
// returns how many ids that were. A message that comes again after that is
// processed again.
func Purge(ctx context.Context, db deed.DB, horizon time.Duration) (int64, error) {
	var total int64
	for {
		n, err := purge(ctx, db, horizon)
		total += n
		if err != nil {
			return total, fmt.Errorf("inbox: purge: %w", orInstall(err))
		}
		if n < purgeBatch {
			return total, nil
		}
	}
}

func purge(ctx context.Context, db deed.DB, horizon time.Duration) (int64, error) {
	rows, err := db.Query(ctx, `select deed_inbox.purge(make_interval(secs => $1::float8), $2::int)`, horizon.Seconds(), purgeBatch)
	if err != nil {
		return 0, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
}
