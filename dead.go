package deed

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// DeadMessage is a dead letter.
type DeadMessage struct {
	Seq          int64     `json:"seq,string"`
	ID           ID        `json:"id"`
	Topic        string    `json:"topic"`
	Subscription string    `json:"subscription"`
	Key          string    `json:"key,omitempty"`
	Type         string    `json:"type,omitempty"`
	Tenant       tenant.ID `json:"tenant"`
	Attempts     int       `json:"attempts"`
	LostClaims   int       `json:"lost_claims"`
	DeadAt       time.Time `json:"dead_at"`
	LastError    string    `json:"last_error"`
}

// DeadFilter selects dead letters; zero fields select all.
type DeadFilter struct {
	Topic        string
	Subscription string
	Tenant       *tenant.ID
	Type         string
	Error        string        // a part of the last error, in any case of letters
	Seqs         []int64       // only these messages
	OlderThan    time.Duration // dead for at least this long
	NewerThan    time.Duration // dead for at most this long
	Limit        int           // of [Client.Dead]: default 100
}

// args are the filter's arguments in the order of deed.dead_letters.
func (f DeadFilter) args() []any {
	var owner, older, newer any
	if f.Tenant != nil {
		owner = f.Tenant.String()
	}
	if f.OlderThan > 0 {
		older = f.OlderThan.Seconds()
	}
	if f.NewerThan > 0 {
		newer = f.NewerThan.Seconds()
	}
	return []any{nullIfZero(f.Topic), nullIfZero(f.Subscription), owner, nullIfZero(f.Type), nullIfZero(f.Error), f.Seqs, older, newer}
}

func (f DeadFilter) check(op string) error {
	if f.Limit < 0 {
		return invalidf(op, "limit %d is negative", f.Limit)
	}
	if f.OlderThan < 0 || f.NewerThan < 0 {
		return invalidf(op, "an age is negative")
	}
	return nil
}

// Dead lists dead letters, newest first.
func (c *Client) Dead(ctx context.Context, f DeadFilter) ([]DeadMessage, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	if err := f.check("dead"); err != nil {
		return nil, err
	}
	rows, err := c.pool.Query(ctx, query["dead"], append(f.args(), f.Limit)...)
	if err != nil {
		return nil, opError("dead", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (DeadMessage, error) {
		var d DeadMessage
		var id, owner string
		err := row.Scan(&d.Seq, &id, &d.Topic, &d.Subscription, &d.Key, &d.Type, &owner, &d.Attempts, &d.LostClaims, &d.DeadAt, &d.LastError)
		if err != nil {
			return d, err
		}
		var idErr, ownerErr error
		d.ID, idErr = ParseID(id)
		d.Tenant, ownerErr = tenant.Parse(owner)
		return d, errors.Join(idErr, ownerErr)
	})
	return list, opError("dead", err)
}

// DeadCount is how many dead letters a subscription has.
type DeadCount struct {
	Topic        string    `json:"topic"`
	Subscription string    `json:"subscription"`
	Dead         int64     `json:"dead"`
	First        time.Time `json:"first_dead_at"`
	Last         time.Time `json:"last_dead_at"`
}

// CountDead counts dead letters by topic and subscription; f.Limit is ignored.
func (c *Client) CountDead(ctx context.Context, f DeadFilter) ([]DeadCount, error) {
	if err := f.check("dead"); err != nil {
		return nil, err
	}
	rows, err := c.pool.Query(ctx, query["count_dead"], f.args()...)
	if err != nil {
		return nil, opError("dead", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DeadCount])
	return list, opError("dead", err)
}

// Redrive selects dead letters to put back, as [DeadFilter] does.
type Redrive struct {
	Topic        string
	Subscription string
	Seqs         []int64
	Tenant       *tenant.ID
	Type         string
	Error        string
	OlderThan    time.Duration
	NewerThan    time.Duration

	Limit  int  // at most so many, the oldest; default: no limit
	Rate   int  // at most so many a second; default: no cap
	DryRun bool // only count

	// Request names the request. Repeating it goes on where it was cut off, and
	// does nothing once it is done. Default: a new name.
	Request string
	By      string // who asks, for the audit log; default: the login
	Reason  string // why, for the audit log

	// Progress, if not nil, is told after each step how many were put back.
	Progress func(redriven, chosen int64)
}

func (r Redrive) filter() DeadFilter {
	return DeadFilter{
		Topic: r.Topic, Subscription: r.Subscription, Tenant: r.Tenant, Type: r.Type, Error: r.Error,
		Seqs: r.Seqs, OlderThan: r.OlderThan, NewerThan: r.NewerThan, Limit: r.Limit,
	}
}

// NewRequest returns a name for a request that is none before it.
func NewRequest() string { return "redrive-" + rand.Text()[:16] }

// Redrive puts dead letters back, oldest first, with their attempts at 0, in
// short transactions, and returns how many the request has put back. When ctx
// ends, or the process, it stops between two of them: the same request again
// goes on. Errors: [NotFound] for an unknown topic or subscription, [Conflict]
// for a request that was for other messages or was cancelled. Needs deed_admin.
func (c *Client) Redrive(ctx context.Context, r Redrive) (int64, error) {
	f := r.filter()
	if err := f.check("redrive"); err != nil {
		return 0, err
	}
	if r.Rate < 0 {
		return 0, invalidf("redrive", "rate %d is negative", r.Rate)
	}
	if r.DryRun {
		return c.countRedrive(ctx, r)
	}
	if r.Request == "" {
		r.Request = NewRequest()
	}
	args := append(f.args(), r.Request, nullIfZero(r.Limit), nullIfZero(r.Rate), nullIfZero(r.By), nullIfZero(r.Reason))
	for {
		var state string
		var chosen, redriven int64
		var wait float64
		err := c.pool.QueryRow(ctx, query["redrive"], args...).Scan(&state, &chosen, &redriven, &wait)
		if err != nil {
			return redriven, opError("redrive", err)
		}
		if r.Progress != nil {
			r.Progress(redriven, chosen)
		}
		switch state {
		case "done":
			return redriven, nil
		case "cancelled":
			return redriven, &Error{Op: "redrive", Code: Conflict, Err: fmt.Errorf("the request %q was cancelled after %d messages", r.Request, redriven)}
		}
		if wait > 0 && !work.Sleep(ctx, time.Duration(wait*float64(time.Second))) {
			return redriven, opError("redrive", fmt.Errorf("stopped after %d messages: %w", redriven, context.Cause(ctx)))
		}
	}
}

func (c *Client) countRedrive(ctx context.Context, r Redrive) (int64, error) {
	counts, err := c.CountDead(ctx, r.filter())
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

// Redrives lists requests to redrive, newest first, at most limit.
func (c *Client) Redrives(ctx context.Context, limit int) ([]RedriveStatus, error) {
	if limit < 1 {
		return nil, invalidf("redrives", "limit %d is below 1", limit)
	}
	rows, err := c.pool.Query(ctx, query["redrives"], limit)
	if err != nil {
		return nil, opError("redrives", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RedriveStatus])
	return list, opError("redrives", err)
}

// CancelRedrive ends a redrive that is not done, after the step that is under
// way, and returns how many it has put back. Errors: [NotFound]; [Conflict] if it
// is done. Needs deed_admin.
func (c *Client) CancelRedrive(ctx context.Context, request, reason, by string) (int64, error) {
	var n int64
	err := c.pool.QueryRow(ctx, query["cancel_redrive"], request, nullIfZero(reason), nullIfZero(by)).Scan(&n)
	return n, opError("cancel redrive", err)
}

// Discard gives up the message with this number, dead or waiting, for a reason,
// which the audit log keeps: for one subscription, or if that is empty for all
// that have not finished it and do not have it in hand; it returns for how many.
// by is who does it; default: the login. Errors: [NotFound]; [Conflict] if it is
// claimed; [Invalid] without a reason.
// Needs deed_admin.
func (c *Client) Discard(ctx context.Context, seq int64, subscription, reason, by string) (int, error) {
	var n int
	err := c.pool.QueryRow(ctx, query["discard"], seq, reason, nullIfZero(subscription), nullIfZero(by)).Scan(&n)
	return n, opError("discard", err)
}

// Reschedule moves the time from which on the waiting message with this number
// is due; a zero time is now. For one subscription, or if that is empty for all
// for which it waits and nobody has it in hand; it returns for how many. The
// audit log keeps by (default: the login) and reason. Errors: [NotFound];
// [Conflict] if it is claimed, dead, or waits behind another of its key; [Invalid]
// for a time after the year 9999. Needs deed_admin or deed_worker.
func (c *Client) Reschedule(ctx context.Context, seq int64, at time.Time, subscription, reason, by string) (int, error) {
	var n int
	err := c.pool.QueryRow(ctx, query["reschedule"], seq, nullIfZero(at), nullIfZero(subscription), nullIfZero(reason), nullIfZero(by)).Scan(&n)
	if err == nil && n == 0 {
		return 0, &Error{Op: "reschedule", Code: Conflict, Err: fmt.Errorf("message %d is claimed, dead, or waits behind another of its key", seq)}
	}
	return n, opError("reschedule", err)
}

// An Act is a row of the audit log: who did what, when and why, and to how many.
type Act struct {
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
	All   bool
	Limit int // at least 1
}

// Audit lists the append-only audit log, newest first: who did what, when and
// why.
func (c *Client) Audit(ctx context.Context, f AuditFilter) ([]Act, error) {
	if f.Limit < 1 {
		return nil, invalidf("audit", "limit %d is below 1", f.Limit)
	}
	rows, err := c.pool.Query(ctx, query["audit"], nullIfZero(f.Subject), f.Limit, f.All)
	if err != nil {
		return nil, opError("audit", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Act])
	return list, opError("audit", err)
}
