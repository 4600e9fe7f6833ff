package deed

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// endedTx takes the transaction's place in a [Tx] once [InTx] has ended it: its
// connection is another's by then, which a statement must not reach. All of it
// answers [pgx.ErrTxClosed], as pgx's own transactions do.
type endedTx struct{}

func (endedTx) Begin(context.Context) (pgx.Tx, error) { return nil, pgx.ErrTxClosed }
func (endedTx) Commit(context.Context) error          { return pgx.ErrTxClosed }
func (endedTx) Rollback(context.Context) error        { return pgx.ErrTxClosed }
func (endedTx) Conn() *pgx.Conn                       { return nil }
func (endedTx) LargeObjects() pgx.LargeObjects        { return pgx.LargeObjects{} }

func (endedTx) CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error) {
	return 0, pgx.ErrTxClosed
}

func (endedTx) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return endedBatch{} }

func (endedTx) Prepare(context.Context, string, string) (*pgconn.StatementDescription, error) {
	return nil, pgx.ErrTxClosed
}

func (endedTx) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, pgx.ErrTxClosed
}

func (endedTx) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return endedRows{}, pgx.ErrTxClosed
}

func (endedTx) QueryRow(context.Context, string, ...any) pgx.Row { return endedRows{} }

type endedBatch struct{}

func (endedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, pgx.ErrTxClosed }
func (endedBatch) Query() (pgx.Rows, error)         { return endedRows{}, pgx.ErrTxClosed }
func (endedBatch) QueryRow() pgx.Row                { return endedRows{} }
func (endedBatch) Tx() pgx.Tx                       { return endedTx{} }
func (endedBatch) Close() error                     { return pgx.ErrTxClosed }

type endedRows struct{}

func (endedRows) Close()                                       {}
func (endedRows) Err() error                                   { return pgx.ErrTxClosed }
func (endedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (endedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (endedRows) Next() bool                                   { return false }
func (endedRows) Scan(...any) error                            { return pgx.ErrTxClosed }
func (endedRows) Values() ([]any, error)                       { return nil, pgx.ErrTxClosed }
func (endedRows) RawValues() [][]byte                          { return nil }
func (endedRows) TypeMap() *pgtype.Map                         { return pgtype.NewMap() }
func (endedRows) Conn() *pgx.Conn                              { return nil }
