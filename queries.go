package deed

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
	Subscribe, RemovedAt, DeclareTopic, Backlogs, Backfill, Stored, Unfinished, Behind, ReportPauses, ReportCalls string
}
