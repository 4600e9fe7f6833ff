package admin

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/page"
)

// An AuditEntry is a row of the audit log: who did what, when and why, and to how many.
type AuditEntry struct {
	N           int64           `json:"n,string"`
	At          time.Time       `json:"at"`
	Actor       string          `json:"actor"`
	Login       string          `json:"login"` // whose session it was
	Action      string          `json:"action"`
	SubjectType string          `json:"subject_type"`
	SubjectID   string          `json:"subject_id,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Affected    int64           `json:"affected"`
	Details     json.RawMessage `json:"details"`
}

// AuditFilter selects rows of the audit log.
type AuditFilter struct {
	// Subject is what the rows concern: a message's number, a request, a
	// delivery. Default: anything.
	Subject string
	// All brings what the program did with deliveries, too; else only what
	// people did, unless there is a Subject.
	All    bool
	Cursor string // [page.Of.Next] of the page before
	Limit  int    // at least 1
}

// Audit lists the append-only audit log, newest first: who did what, when and
// why. Errors: [deed.Invalid].
func (c *Client) Audit(ctx context.Context, f AuditFilter) (page page.Of[AuditEntry], err error) {
	if err := checkCount("audit", "limit", f.Limit, 1); err != nil {
		return page, err
	}
	upto, err := readNumber("audit", f.Cursor)
	if err != nil {
		return page, err
	}
	rows, err := c.pool.Query(ctx, query.LookAtAudit, upto, f.Limit, sqlvalue.NullIfZero(f.Subject), f.All)
	if err != nil {
		return page, deed.WrapError("audit", err)
	}
	page.Items, err = pgx.CollectRows(rows, pgx.RowToStructByPos[AuditEntry])
	if len(page.Items) == f.Limit && page.Items[f.Limit-1].N > 1 {
		page.Next = strconv.FormatInt(page.Items[f.Limit-1].N-1, 10)
	}
	return page, deed.WrapError("audit", err)
}
