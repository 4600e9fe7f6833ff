package admin

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
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
	Behind       int64      `json:"behind"` // messages that stand behind it, counted up to 10,000
}

// BlockedKeys lists the keys that wait, the oldest first; topic "": of all
// streams.
func (c *Client) BlockedKeys(ctx context.Context, topic string, limit int) ([]BlockedKey, error) {
	if err := checkCount("blocked keys", "limit", limit, 1); err != nil {
		return nil, err
	}
	rows, err := c.pool.Query(ctx, query.BlockedKeys, sqlvalue.NullIfZero(topic), limit)
	if err != nil {
		return nil, deed.WrapError("blocked keys", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (BlockedKey, error) {
		var b BlockedKey
		var owner, id string
		err := row.Scan(&b.Topic, &b.Subscription, &b.Key, &owner, &b.Seq, &id, &b.Attempts, &b.Dead, &b.DueAt, &b.LastError, &b.Since, &b.Age, &b.Behind)
		if err != nil {
			return b, err
		}
		var idErr, ownerErr error
		b.ID, idErr = deed.ParseID(id)
		b.Tenant, ownerErr = tenant.Parse(owner)
		return b, errors.Join(idErr, ownerErr)
	})
	return list, deed.WrapError("blocked keys", err)
}
