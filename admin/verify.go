package admin

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/upkeep"
)

// Horizon is how far the log is and what has not ended yet.
type Horizon struct {
	Position        int64         // the log's newest number
	PartitionsAhead int           // ahead of the one in use: of the log, or of the logs of runs, of which fewer are
	OldestPartition time.Duration // since the oldest partition that has its content was closed; 0 if there is none
	OldestRunning   string        // the oldest transaction id that has not ended; empty if all have
	OldestAge       time.Duration // age of the oldest transaction that this login may see
}

// Horizon reports what delays late commits and the removal of dead rows: the
// oldest transaction of the cluster. Only members of pg_read_all_stats see how
// old other logins' transactions are. Needs deed_worker or deed_admin.
func (c *Client) Horizon(ctx context.Context) (Horizon, error) {
	var h Horizon
	var seconds float64
	err := c.pool.QueryRow(ctx, query.Horizon).Scan(&h.Position, &h.OldestRunning, &seconds)
	if err != nil {
		return h, deed.WrapError("horizon", err)
	}
	h.OldestAge = time.Duration(seconds * float64(time.Second))
	if h.PartitionsAhead, err = upkeep.PartitionsAhead(ctx, c.pool); err != nil {
		return h, deed.WrapError("horizon", err)
	}
	err = c.pool.QueryRow(ctx, query.OldestPartition).Scan(&seconds)
	h.OldestPartition = time.Duration(seconds * float64(time.Second))
	return h, deed.WrapError("horizon", err)
}

// Violation is one broken invariant.
type Violation struct {
	Invariant    string `json:"invariant"`
	Subscription string `json:"subscription,omitempty"`
	Seq          int64  `json:"seq,omitempty,string"`
	Detail       string `json:"detail"`
}

// Verify checks every invariant of the message store; no violation, all is
// well. It may run beside publishers and workers; its cost grows with the log.
// Needs deed_worker or deed_admin.
func (c *Client) Verify(ctx context.Context) ([]Violation, error) {
	rows, err := c.pool.Query(ctx, query.Verify)
	if err != nil {
		return nil, deed.WrapError("verify", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Violation, error) {
		var v Violation
		err := row.Scan(&v.Invariant, &v.Subscription, &v.Seq, &v.Detail)
		return v, err
	})
	return list, deed.WrapError("verify", err)
}
