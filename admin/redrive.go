package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/idempotency"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/page"
)

// Redrive is what to put back of the dead letters. Of its act, By is the login by
// default, and a reason is not required.
type Redrive struct {
	DeadFilter
	audit.Act

	Rate   int  // at most so many a second; default: no cap
	DryRun bool // only count

	// Request names the request. Repeating it goes on where it was cut off, and
	// does nothing once it is done. Default: a new name.
	Request string

	// Progress, if not nil, is told after each step how many were put back.
	Progress func(redriven, chosen int64)
}

// Redrive puts dead letters back, oldest first, with their attempts at 0, in
// short transactions, and returns how many the request has put back. When ctx
// ends, or the process, it stops between two of them: the same request again
// goes on. Errors: [deed.NotFound] for an unknown topic or subscription, [deed.Conflict]
// for a request that was for other messages or was cancelled. Needs deed_admin.
func (c *Client) Redrive(ctx context.Context, r Redrive) (int64, error) {
	if err := r.check("redrive"); err != nil {
		return 0, err
	}
	if err := checkCount("redrive", "rate", r.Rate, 0); err != nil {
		return 0, err
	}
	if r.DryRun {
		return c.countRedrive(ctx, r)
	}
	if r.Request == "" {
		r.Request = idempotency.NewRequest()
	}
	args := append(r.args(), r.Request, sqlvalue.NullIfZero(r.Limit), sqlvalue.NullIfZero(r.Rate), sqlvalue.NullIfZero(r.By), sqlvalue.NullIfZero(r.Reason))
	var redriven int64 // as of the last step that succeeded
	for {
		var state string
		var chosen int64
		var wait float64
		err := c.pool.QueryRow(ctx, query.Redrive, args...).Scan(&state, &chosen, &redriven, &wait)
		if err != nil {
			return redriven, deed.WrapError("redrive", err)
		}
		if r.Progress != nil {
			r.Progress(redriven, chosen)
		}
		switch state {
		case "done":
			return redriven, nil
		case "cancelled":
			return redriven, &deed.Error{Op: "redrive", Code: deed.Conflict, Err: fmt.Errorf("the request %q was cancelled after %d messages", r.Request, redriven)}
		}
		if wait > 0 && !work.Sleep(ctx, time.Duration(wait*float64(time.Second))) {
			return redriven, deed.WrapError("redrive", fmt.Errorf("stopped after %d messages: %w", redriven, context.Cause(ctx)))
		}
	}
}

func (c *Client) countRedrive(ctx context.Context, r Redrive) (int64, error) {
	counts, err := c.CountDead(ctx, r.DeadFilter)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, n := range counts {
		sum += n.Dead
	}
	if r.Limit > 0 {
		sum = min(sum, int64(r.Limit))
	}
	return sum, nil
}

// RedriveStatus is how far a request to redrive is.
type RedriveStatus struct {
	Request    string          `json:"request"`
	State      string          `json:"state"`  // running, done or cancelled; running may mean: cut off
	Chosen     int64           `json:"chosen"` // dead letters that it was for when it began
	Redriven   int64           `json:"redriven"`
	Rate       int             `json:"rate"` // 0: no cap
	Asked      json.RawMessage `json:"asked"`
	By         string          `json:"by"`
	Reason     string          `json:"reason,omitempty"`
	StartedAt  time.Time       `json:"started_at"`
	FinishedAt *time.Time      `json:"finished_at,omitempty"`
}

// Redrives lists requests to redrive, newest first, at most limit, from cursor on:
// [page.Of.Next] of the page before, or "".
func (c *Client) Redrives(ctx context.Context, cursor string, limit int) (page page.Of[RedriveStatus], err error) {
	if err := checkCount("redrives", "limit", limit, 1); err != nil {
		return page, err
	}
	rows, err := c.pool.Query(ctx, query.Redrives, cursor, limit)
	if err != nil {
		return page, deed.WrapError("redrives", err)
	}
	page.Items, err = pgx.CollectRows(rows, pgx.RowToStructByPos[RedriveStatus])
	switch {
	case err != nil:
	case len(page.Items) == limit:
		page.Next = page.Items[limit-1].Request
	case len(page.Items) == 0 && cursor != "":
		var known bool
		if err = c.pool.QueryRow(ctx, query.KnownRedrive, cursor).Scan(&known); err == nil && !known {
			return page, invalidf("redrives", "cursor %q is none of this list's", errortext.Clip(cursor))
		}
	}
	return page, deed.WrapError("redrives", err)
}

// KnowsRedrive reports whether there is a request to redrive of that name, in whatever state.
func (c *Client) KnowsRedrive(ctx context.Context, request string) (known bool, err error) {
	err = c.pool.QueryRow(ctx, query.KnownRedrive, request).Scan(&known)
	return known, deed.WrapError("knows redrive", err)
}

// CancelRedrive ends a redrive that is not done, after the step that is under
// way, and returns how many it has put back. Errors: [deed.NotFound]; [deed.Conflict] if it
// is done. act.By is the login by default. Needs deed_admin.
func (c *Client) CancelRedrive(ctx context.Context, request string, act audit.Act) (int64, error) {
	var n int64
	err := c.pool.QueryRow(ctx, query.CancelRedrive, request, sqlvalue.NullIfZero(act.Reason), sqlvalue.NullIfZero(act.By)).Scan(&n)
	return n, deed.WrapError("cancel redrive", err)
}
