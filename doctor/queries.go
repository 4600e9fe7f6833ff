package doctor

import (
	_ "embed"

	"github.com/deedhq/deed/internal/sqlfile"
)

//go:embed queries.sql
var queriesText string

//go:embed runs.sql
var runsText string

//go:embed campaigns.sql
var campaignsText string

//go:embed unfinished.sql
var unfinishedText string

// query holds the statements of queries.sql, runs.sql, campaigns.sql and unfinished.sql; read-only.
var query = sqlfile.Load[statements](queriesText + "\n" + runsText + "\n" + campaignsText + "\n" + unfinishedText)

// statements are those of queries.sql, in its order, and then those of runs.sql, of campaigns.sql and of unfinished.sql.
type statements struct {
	Bound, Login, Roles, SuperuserLogins, Functions, RowSecurity, InvalidIndexes, Partitions, RunPartitions, Retention,
	Sequence, Cluster, Version, Recovery, Settings, Clock, Connections, Autovacuum,
	DeadRows, Wraparound, Horizon, PublishedSince, Publishers, Suppressions, LocksHeld, LockWaits, Calls, SinkPauses,
	Unattended, Unread, OldDead, Pauses, IdleRelays, ForeignDeliveries, DeferredDeliveries, DeadDeliveries, BadRates, HeldMessages, FailedMessages, WaitingMessages, Unsealed,
	StaleRuns, ProjectorLag, UnservedSteps, StuckSteps, DamagedPlans,
	PausedRuns, LoadingAudiences, WaitingJobs,
	Backfills, Changes, Removals string
}
