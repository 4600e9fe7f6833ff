package admin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// BlockedKey is a key of an ordered stream that waits for one of its messages.
type BlockedKey struct {
	Topic        string     `json:"topic"`
	Subscription string     `json:"subscription"`
	Key          string     `json:"key"`
	Tenant       tenant.ID  `json:"tenant"`
	Seq          int64      `json:"seq,string"` // of the message that it waits for
	ID           deed.ID    `json:"id"`
	Attempts     int        `json:"attempts"`
	Dead         bool       `json:"dead"` // it waits for an operator
	DueAt        *time.Time `json:"due_at,omitempty"`
	LastError    string     `json:"last_error,omitempty"`
	Since        time.Time  `json:"since"` // when that message was published
	Age          Seconds    `json:"age_seconds"`
	Behind       int64      `json:"behind"`             // messages that stand behind it
	AtLeast      bool       `json:"at_least,omitempty"` // there may be more: the more keys a page has, the less is counted
}

// BlockedFilter selects keys that wait; zero fields select all.
type BlockedFilter struct {
	Topic  string // looked for among the oldest 20,000 keys that wait
	Cursor string // [page.Of.Next] of the page before
	Limit  int    // default 100
}

// blockedMost is how many rows a page of keys looks at: keys, where a topic's are
// asked for, and in all what stands behind them.
const blockedMost = 20_000

// BlockedKeys lists the keys that wait, the oldest message first. Errors:
// [deed.Invalid].
func (c *Client) BlockedKeys(ctx context.Context, f BlockedFilter) (page page.Of[BlockedKey], err error) {
	const op = "blocked keys"
	f.Limit = cmp.Or(f.Limit, 100)
	if err := checkCount(op, "limit", f.Limit, 1); err != nil {
		return page, err
	}
	at, err := readPlace(op, f.Cursor, place{0, 0})
	if err != nil {
		return page, err
	}
	each, behind := f.Limit, max(blockedMost/f.Limit, 20)
	if f.Topic != "" {
		each = max(each, blockedMost)
	}
	rows, err := c.pool.Query(ctx, query.LookAtBlocked, at.seq, at.subscription, each, f.Limit, behind, sqlvalue.NullIfZero(f.Topic))
	if err != nil {
		return page, deed.WrapError(op, err)
	}
	defer rows.Close()
	var next, last place
	for rows.Next() {
		b, found, err := scanBlocked(rows, &next, &last, int64(behind))
		if err != nil {
			return page, deed.WrapError(op, err)
		}
		if found {
			page.Items = append(page.Items, b)
		}
	}
	switch {
	case len(page.Items) == f.Limit:
		page.Next = place{last.seq, last.subscription + 1}.String()
	case next.seq > 0:
		page.Next = next.String()
	}
	return page, deed.WrapError(op, rows.Err())
}

// scanBlocked reads a row of the look: where the next one goes on, and a key unless
// there was none. Up to most were counted of what stands behind it.
func scanBlocked(row pgx.Row, next, at *place, most int64) (b BlockedKey, found bool, err error) {
	var seq, behind *int64
	var subscription, attempts *int
	var topic, name, key, owner, id, lastError *string
	var dead *bool
	var since *time.Time
	var age *float64
	err = row.Scan(&next.seq, &next.subscription, &seq, &subscription, &topic, &name, &key, &owner, &id, &attempts, &dead, &b.DueAt,
		&lastError, &since, &age, &behind)
	if err != nil || seq == nil {
		return b, false, err
	}
	*at = place{*seq, *subscription}
	b.Topic, b.Subscription, b.Key, b.Seq, b.Attempts, b.Dead = *topic, *name, sqlvalue.Deref(key), *seq, *attempts, *dead
	b.LastError, b.Behind, b.AtLeast = sqlvalue.Deref(lastError), *behind, *behind >= most
	if since != nil {
		b.Since, b.Age = *since, Seconds(sqlvalue.Seconds(*age))
	}
	var idErr, ownerErr error
	if id != nil {
		b.ID, idErr = deed.ParseID(*id)
	}
	b.Tenant, ownerErr = tenant.Parse(*owner)
	return b, true, errors.Join(idErr, ownerErr)
}
