package deed

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// failedTx takes the transaction's place in a [Tx] where a statement must not reach
// it: all of it answers err.
type failedTx struct{ err error }

func (t failedTx) Begin(context.Context) (pgx.Tx, error) { return nil, t.err }
func (t failedTx) Commit(context.Context) error          { return t.err }
func (t failedTx) Rollback(context.Context) error        { return t.err }
func (t failedTx) Conn() *pgx.Conn                       { return nil }
func (t failedTx) LargeObjects() pgx.LargeObjects        { return pgx.LargeObjects{} }

func (t failedTx) CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error) {
	return 0, t.err
}

func (t failedTx) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return failedBatch(t) }

func (t failedTx) Prepare(context.Context, string, string) (*pgconn.StatementDescription, error) {
	return nil, t.err
}

func (t failedTx) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, t.err
}

func (t failedTx) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return failedRows(t), t.err
}

func (t failedTx) QueryRow(context.Context, string, ...any) pgx.Row { return failedRows(t) }

type failedBatch struct{ err error }

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return failedRows(b), b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRows(b) }
func (b failedBatch) Tx() pgx.Tx                       { return failedTx(b) }
func (b failedBatch) Close() error                     { return b.err }

type failedRows struct{ err error }

func (r failedRows) Close()                                       {}
func (r failedRows) Err() error                                   { return r.err }
func (r failedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (r failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (r failedRows) Next() bool                                   { return false }
func (r failedRows) Scan(...any) error                            { return r.err }
func (r failedRows) Values() ([]any, error)                       { return nil, r.err }
func (r failedRows) RawValues() [][]byte                          { return nil }
func (r failedRows) TypeMap() *pgtype.Map                         { return pgtype.NewMap() }
func (r failedRows) Conn() *pgx.Conn                              { return nil }
