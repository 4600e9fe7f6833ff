package campaign

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
	Put, Audience, FindAudience, Sample, Audiences, RemoveAudience, Segment, Add, Finish, Deploy, Note, Served, Claim, Expand, GiveUp, PutBack, RollUp, PauseFailing, Decide, Sweep, ToSeal, Seal, Purge, Sealed, Unfinished, Content, Pause, Sending, Resume, Cancel, Winner, Retry, Runs, Run, Progress, Waits, Trace, Heard, Variants, Skips, Failures, Members, Verify, Proved, ProvedMembers string
}
