package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// DeadMessage is a dead letter.
type DeadMessage struct {
	Seq          int64     `json:"seq,string"`
	ID           deed.ID   `json:"id"`
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
	Cursor       string        // of [Client.Dead]: [page.Of.Next] of the page before
	Limit        int           // of [Client.Dead], the newest: default 100; of [Client.Redrive], the oldest: default no limit
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
	return []any{sqlvalue.NullIfZero(f.Topic), sqlvalue.NullIfZero(f.Subscription), owner, sqlvalue.NullIfZero(f.Type), sqlvalue.NullIfZero(f.Error), f.Seqs, older, newer}
}

func (f DeadFilter) check(op string) error {
	if err := checkCount(op, "limit", f.Limit, 0); err != nil {
		return err
	}
	if f.OlderThan < 0 || f.NewerThan < 0 {
		return invalidf(op, "an age is negative")
	}
	return nil
}

// What one look at dead letters reads at the most, where no index finds what is
// asked for; and where each must be looked up in the log for it.
const (
	deadMost       = 20_000
	deadUndeclared = 300
)

// each is how many the look reads of each subscription, and of the topics that
// nobody declared.
func (f DeadFilter) each() (of, undeclared int) {
	of = f.Limit
	if f.Tenant != nil || f.Error != "" || f.Type != "" || (f.Subscription != "" && f.Topic == "") || f.OlderThan > 0 || f.NewerThan > 0 {
		of = max(of, deadMost)
	}
	if f.Type != "" {
		of = max(f.Limit, deadUndeclared)
	}
	return of, max(f.Limit, deadUndeclared)
}

// Dead lists dead letters, newest first. They are found by their topic or number;
// what else is asked for is looked for among the newest 20,000 of those (by type, and
// in topics that nobody declared, 300), and the page says how far back that was.
// Errors: [deed.Invalid].
func (c *Client) Dead(ctx context.Context, f DeadFilter) (page page.Of[DeadMessage], err error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	if err := f.check("dead"); err != nil {
		return page, err
	}
	at, err := readPlace("dead", f.Cursor, place{math.MaxInt64, math.MaxInt32})
	if err != nil {
		return page, err
	}
	page, err = c.lookAtDead(ctx, f, at)
	return page, deed.WrapError("dead", err)
}

func (c *Client) lookAtDead(ctx context.Context, f DeadFilter, at place) (page page.Of[DeadMessage], err error) {
	each, undeclared := f.each()
	args := append([]any{at.seq, at.subscription, each, undeclared, f.Limit}, f.args()...)
	rows, err := c.pool.Query(ctx, query.LookAtDead, args...)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	var next, last place
	var oldest *time.Time
	for rows.Next() {
		d, found, err := scanDead(rows, &next, &oldest, &last)
		if err != nil {
			return page, err
		}
		if found {
			page.Items = append(page.Items, d)
		}
	}
	switch {
	case len(page.Items) == f.Limit:
		page.Next = place{last.seq, last.subscription - 1}.String()
	case next.seq > 0:
		page.Next, page.LookedTo = next.String(), oldest
	}
	return page, rows.Err()
}

// scanDead reads a row of the look: what it says of the look, and a dead letter
// unless none matched.
func scanDead(row pgx.Row, next *place, oldest **time.Time, at *place) (d DeadMessage, found bool, err error) {
	var seq *int64
	var subscription, attempts, lost *int
	var id, topic, name, key, kind, owner, lastError *string
	var deadAt *time.Time
	err = row.Scan(&next.seq, &next.subscription, oldest, &seq, &subscription, &id, &topic, &name, &key, &kind, &owner,
		&attempts, &lost, &deadAt, &lastError)
	if err != nil || seq == nil {
		return d, false, err
	}
	*at = place{*seq, *subscription}
	d = DeadMessage{
		Seq: *seq, Topic: *topic, Subscription: *name, Key: *key, Type: *kind, Attempts: *attempts, LostClaims: *lost,
		DeadAt: *deadAt, LastError: sqlvalue.Deref(lastError),
	}
	var idErr, ownerErr error
	d.ID, idErr = deed.ParseID(*id)
	d.Tenant, ownerErr = tenant.Parse(*owner)
	return d, true, errors.Join(idErr, ownerErr)
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
	rows, err := c.pool.Query(ctx, query.CountDead, f.args()...)
	if err != nil {
		return nil, deed.WrapError("dead", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DeadCount])
	return list, deed.WrapError("dead", err)
}

// Discard gives up the message with this number, dead or waiting, for a reason,
// which the audit log keeps: for one subscription, or if that is empty for all
// that have not finished it and do not have it in hand; it returns for how many.
// act.By is the login by default. Errors: [deed.NotFound]; [deed.Conflict] if it is
// claimed; [deed.Invalid] without a reason. Needs deed_admin.
func (c *Client) Discard(ctx context.Context, seq int64, subscription string, act audit.Act) (int, error) {
	var n int
	err := c.pool.QueryRow(ctx, query.Discard, seq, act.Reason, sqlvalue.NullIfZero(subscription), sqlvalue.NullIfZero(act.By)).Scan(&n)
	return n, deed.WrapError("discard", err)
}

// Reschedule moves the time from which on the waiting message with this number
// is due; a zero time is now. For one subscription, or if that is empty for all
// for which it waits and nobody has it in hand; it returns for how many. act.By
// is the login by default, and a reason is not required. Errors: [deed.NotFound];
// [deed.Conflict] if it is claimed, dead, or waits behind another of its key; [deed.Invalid]
// for a time after the year 9999. Needs deed_admin or deed_worker.
func (c *Client) Reschedule(ctx context.Context, seq int64, at time.Time, subscription string, act audit.Act) (int, error) {
	var n int
	err := c.pool.QueryRow(ctx, query.Reschedule, seq, sqlvalue.NullIfZero(at), sqlvalue.NullIfZero(subscription), sqlvalue.NullIfZero(act.Reason), sqlvalue.NullIfZero(act.By)).Scan(&n)
	if err == nil && n == 0 {
		return 0, &deed.Error{Op: "reschedule", Code: deed.Conflict, Err: fmt.Errorf("message %d is claimed, dead, or waits behind another of its key", seq)}
	}
	return n, deed.WrapError("reschedule", err)
}
