// Package deedsql publishes messages inside database/sql transactions, through
// any PostgreSQL driver.
package deedsql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/deedhq/deed"
)

// DB is what is published through: a *sql.Tx; or a *sql.DB or *sql.Conn, with
// which the messages are a transaction of their own.
type DB interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Publish stores msgs through db as [deed.Publish] does, with the same promises and
// errors.
func Publish(ctx context.Context, db DB, msgs ...deed.Message) ([]deed.Published, error) {
	st, err := deed.NewStatement(ctx, msgs...)
	if err != nil || len(msgs) == 0 {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, st.SQL, st.TextArgs()...)
	if err != nil {
		return nil, fmt.Errorf("deed: publish: %w", err)
	}
	published, err := st.Published(rows)
	if closeErr := rows.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("deed: publish: %w", closeErr)
	}
	return published, err
}
