package inbound

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
	Accept, Claim, Extend, Unrenewed, Finish, Outcomes, Purge, Now, Unregistered, TooMany, List, Message, Replies, History, Retry string
}
