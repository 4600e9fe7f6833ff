// Package deedsql publishes messages, and keeps files, inside database/sql transactions,
// through any PostgreSQL driver.
package deedsql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/tenant"
)

// DB is what is published through: a *sql.Tx; or a *sql.DB or *sql.Conn, with
// which the messages, or the file, are a transaction of their own.
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

// PutContent keeps a file through db as delivery.PutContent does, and returns the SHA-256 by
// which attachments may name it. Errors of other drivers than pgx have no [deed.Code].
func PutContent(ctx context.Context, db DB, owner *tenant.ID, content []byte, mediaType string) (sha256 string, err error) {
	const op = "put content"
	var id any
	if owner != nil {
		id = owner.String()
	}
	rows, err := db.QueryContext(ctx, `select encode(c.sha256, 'hex') from deed.put_content($1::bytea, $2::text, $3::text::uuid) c`, content, sqlvalue.NullIfZero(mediaType), id)
	if err != nil {
		return "", deed.WrapError(op, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&sha256); err != nil {
			return "", deed.WrapError(op, err)
		}
	}
	return sha256, deed.WrapError(op, rows.Err())
}
