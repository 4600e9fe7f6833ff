package run

import (
	_ "embed"

	"github.com/deedhq/deed/internal/sqlfile"
)

//go:embed queries.sql
var queriesText string

// query holds the statements of queries.sql; read-only.
var query = sqlfile.Load[statements](queriesText)

// statements are those of queries.sql, in its order.
type statements struct {
	Create, Start, StartMany, StartAndClaim, Stop, Approve, Retry, Append, TryAppend, List, Unserved, Workers, Run, Newest, Events, Snapshots, Tails, Store, Stale, Stored, Replace, Ids, Redact, Retain, Due string
}
