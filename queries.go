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
	Subscribe, RemovedAt, Watch, TakeLanes, ReleaseLane, PauseLane, LeaveRelays, Window, LanePosition, BlockedHashes,
	Page, FinishPage, Attend, LockKeys, ReleaseKeys, HealKeys, DeclareTopic, Owing, Backfill, Unfinished, Behind,
	ReportCalls string
}
