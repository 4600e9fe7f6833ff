package admin

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/upkeep"
)

// Partition is a partition of the log, and what keeps it.
type Partition struct {
	N          int        `json:"n"`
	FromSeq    int64      `json:"from_seq,string"` // the first number that it may hold
	UptoSeq    int64      `json:"upto_seq,string"` // the first number of the next one
	State      string     `json:"state"`           // in use, kept, due, leaving or empty
	OpenedAt   *time.Time `json:"opened_at,omitempty"`
	ClosedAt   *time.Time `json:"closed_at,omitempty"` // when the next one was opened
	Bytes      int64      `json:"bytes"`
	Unfinished int64      `json:"unfinished"`      // messages to be moved out; at most 10,000 a subscription are counted
	Overdue    Seconds    `json:"overdue_seconds"` // for how long its topics' retention has been over
	KeptBy     []string   `json:"kept_by"`
	TriedAt    *time.Time `json:"tried_at,omitempty"` // when a transaction that used it was in the way, or the database refused
}

// Partitions lists the partitions of the log, oldest first, with what keeps
// each. Needs deed_worker or deed_admin.
func (c *Client) Partitions(ctx context.Context) ([]Partition, error) {
	rows, err := c.pool.Query(ctx, query.Retention)
	if err != nil {
		return nil, deed.WrapError("retention", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Partition, error) {
		var p Partition
		err := row.Scan(&p.N, &p.FromSeq, &p.UptoSeq, &p.State, &p.OpenedAt, &p.ClosedAt, &p.Bytes, &p.Unfinished,
			&p.Overdue, &p.KeptBy, &p.TriedAt)
		return p, err
	})
	return list, deed.WrapError("retention", err)
}

// RetentionStep is what one step of retention did.
type RetentionStep struct {
	Partition *int   `json:"partition,omitempty"` // nil: what is known of messages that are gone was removed
	Did       string `json:"did"`                 // began, moved, emptied, dropped, waits, failed; or removed receipts, progress, windows, relays, kept
	Count     int64  `json:"count"`               // messages moved, rows removed
}

// Retain removes what is finished and old enough, in small steps, until there
// is nothing to do now; report is called after each that did something. A
// client that runs does it every few minutes. Any number may do it at once.
// Errors do not undo the steps before. A partition of which the database refuses to
// be rid, as of a table on which somebody's view stands, keeps no other from its turn;
// the error names it at the end. Needs deed_worker or deed_admin.
func (c *Client) Retain(ctx context.Context, report func(RetentionStep)) error {
	return deed.WrapError("retention", c.keeper().Retain(ctx, func(s upkeep.Step) { report(RetentionStep(s)) }))
}
