package delivery

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
	Reserve, Claim, Attempt, Extend, Note, Attempts, Settle, Pause, ClaimDoubts, MayRepeat, IsOurs, RegisterProvider, NoteIdle,
	RealCalls, Relane, ForgetLanes, Prove, RecordEvents, MatchLateEvents, Feedback, Addressee, Now, SettleDelivery, Retry, Redrive, Expire, ExpireSuppressions, GiveUp, Purge, PurgeContents, PutContent, LookAtContents, ContentBytes, RemoveContent, DeliveryContents, Suppress, Unsuppress,
	LookAtSuppressions, LookAtDeliveries, Deliveries, Draft, History, Providers, Rates, Resume, Unfinished string
}
