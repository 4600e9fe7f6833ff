package admin

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
	RemoveSubscription, RemoveTopic, CountRemoval, Removals, SetTopic, TopicMode, LookAtBlocked, OldestPartition, Horizon,
	Held, AdoptCluster, Retention, Status, OldestPauses, Unattended, OldestCalls, Verify, LookBegins, LogExtents, LookByNumber, LookByTopic, LookAtKept, Snapshot, MessagesAfter, NumbersAfter, TailWindow, MessagesAt,
	MessageStates, MessageReceipts, MessagePages, LookAtDead, CountDead, Redrive, CancelRedrive, Redrives, KnownRedrive, Discard,
	Reschedule, LookAtAudit, Topics, Subscriptions, SetSubscription, SetDoor, Settings, SetSettings string
}
