package claim

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/sqlfile"
)

//go:embed queries.sql
var queriesText string

// query holds the statements of queries.sql; read-only.
var query = sqlfile.Load[statements](queriesText)

// statements are those of queries.sql, in its order.
type statements struct {
	Removed, Claim, OtherTenant, AMinuteAgo, NextClaimable, Extend, Unrenewed, Finish, Fail, NextDue string
}

// CheckStatements has the server parse all statements of the package against the
// schema that is installed.
func CheckStatements(ctx context.Context, conn *pgx.Conn) error {
	return sqlfile.Check(ctx, conn, query)
}
