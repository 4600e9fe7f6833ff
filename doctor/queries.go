package doctor

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
	Bound, Login, Roles, SuperuserLogins, Functions, RowSecurity, InvalidIndexes, Partitions, RunPartitions, Retention,
	Sequence, Cluster, Backfills, Removals, Version, Recovery, Settings, Clock, Connections, Autovacuum,
	DeadRows, Wraparound, Horizon, PublishedSince, Publishers, Suppressions, LocksHeld, LockWaits, Calls, SinkPauses,
	Unattended, Unread, OldDead, Pauses, IdleRelays, ForeignDeliveries, DeadDeliveries, BadRates, HeldMessages, FailedMessages, WaitingMessages, StaleRuns, ProjectorLag, UnservedSteps, PausedRuns, LoadingAudiences, Unsealed string
}
