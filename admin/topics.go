package admin

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/limits"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// DeclaredTopic is a topic as the database has it.
type DeclaredTopic struct {
	Topic         string                 `json:"topic"`
	Mode          deed.Mode              `json:"mode"`
	Lanes         int                    `json:"lanes"`
	Ordering      deed.Ordering          `json:"ordering"` // of a stream; a queue keeps none
	Retention     Seconds                `json:"retention_seconds"`
	CreatedAt     time.Time              `json:"created_at"`
	Subscriptions []DeclaredSubscription `json:"subscriptions"`
}

// DeclaredSubscription is a subscription as the database has it.
type DeclaredSubscription struct {
	Subscription string    `json:"subscription"`
	MaxAttempts  int       `json:"max_attempts"` // 0: without limit
	Lease        Seconds   `json:"lease_seconds"`
	Backoff      Seconds   `json:"backoff_seconds"`
	From         deed.From `json:"from"`
	CreatedAt    time.Time `json:"created_at"`
	Backfilled   bool      `json:"backfilled"` // it has all that was published before it
	Door         bool      `json:"door"`       // the published SQL faces claim it
}

// Topics lists the declared topics with their subscriptions, by name.
func (c *Client) Topics(ctx context.Context) ([]DeclaredTopic, error) {
	rows, err := c.pool.Query(ctx, query.Topics)
	if err != nil {
		return nil, deed.WrapError("topics", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (DeclaredTopic, error) {
		t := DeclaredTopic{Subscriptions: []DeclaredSubscription{}}
		err := row.Scan(&t.Topic, &t.Mode, &t.Lanes, &t.Ordering, &t.Retention, &t.CreatedAt)
		return t, err
	})
	if err != nil {
		return nil, deed.WrapError("topics", err)
	}
	at := make(map[string]*DeclaredTopic, len(list))
	for i := range list {
		at[list[i].Topic] = &list[i]
	}
	if rows, err = c.pool.Query(ctx, query.Subscriptions); err != nil {
		return nil, deed.WrapError("topics", err)
	}
	var topic string
	var s DeclaredSubscription
	_, err = pgx.ForEachRow(rows, []any{&topic, &s.Subscription, &s.MaxAttempts, &s.Lease, &s.Backoff, &s.From, &s.CreatedAt, &s.Backfilled, &s.Door}, func() error {
		if t := at[topic]; t != nil { // else it was declared since the first look
			t.Subscriptions = append(t.Subscriptions, s)
		}
		return nil
	})
	return list, deed.WrapError("topics", err)
}

// TopicChange names what to change of a topic; zero fields stay as they are.
type TopicChange struct {
	Mode      deed.Mode
	Lanes     int
	Ordering  deed.Ordering
	Retention time.Duration
}

// SetTopic changes a declared topic, online. A change of lanes, and one from
// stream to queue, takes effect when the relays that run have stopped their
// lanes at one point, after a few seconds; nothing is lost, comes twice or
// overtakes. Errors: [deed.NotFound], [deed.Invalid], also for lanes or an
// ordering of a queue, [deed.Conflict] while an earlier change
// of mode is under way. Needs deed_admin.
func (c *Client) SetTopic(ctx context.Context, name string, change TopicChange) error {
	t := deed.Topic{Name: name, Mode: change.Mode, Lanes: change.Lanes, Ordering: change.Ordering, Retention: change.Retention}
	if err := t.Check(); err != nil {
		return &deed.Error{Op: "set topic " + errortext.Clip(name), Code: deed.Invalid, Err: err}
	}
	err := pgx.BeginTxFunc(ctx, c.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, query.SetTopic, name, sqlvalue.NullIfZero(string(t.Mode)), sqlvalue.NullIfZero(t.Lanes), sqlvalue.NullIfZero(string(t.Ordering)), sqlvalue.NullIfZero(t.Retention.Seconds()))
		if err != nil || change.Lanes == 0 && change.Ordering == "" {
			return err
		}
		mode := change.Mode // that of the topic may follow later
		if mode == "" {
			err = tx.QueryRow(ctx, query.TopicMode, name).Scan(&mode)
		}
		if err == nil && mode == deed.ModeQueue {
			err = invalidf("set topic "+name, "only a stream has lanes and an ordering; change the mode to stream first, or with them")
		}
		return err
	})
	if deed.CodeOf(err) == deed.Invalid {
		return err
	}
	return deed.WrapError("set topic", err)
}

// SubscriptionChange names what to change of a subscription; zero fields stay
// as they are.
type SubscriptionChange struct {
	MaxAttempts int
	Lease       time.Duration
	Backoff     time.Duration
}

// SetSubscription changes the settings of a topic's subscription, or of all of
// the topic's if name is empty, online. Clients that run keep the lease they
// started with. Errors: [deed.NotFound], [deed.Invalid]. Needs deed_admin.
func (c *Client) SetSubscription(ctx context.Context, topic, name string, change SubscriptionChange) error {
	if err := errors.Join(limits.Attempts.CheckSet("max attempts", change.MaxAttempts), limits.Lease.CheckSet("lease", change.Lease),
		limits.Backoff.CheckSet("backoff", change.Backoff)); err != nil {
		return &deed.Error{Op: "set subscription", Code: deed.Invalid, Err: err}
	}
	_, err := c.pool.Exec(ctx, query.SetSubscription, topic, sqlvalue.NullIfZero(name), sqlvalue.NullIfZero(change.MaxAttempts),
		sqlvalue.NullIfZero(change.Lease.Seconds()), sqlvalue.NullIfZero(change.Backoff.Seconds()))
	return deed.WrapError("set subscription", err)
}

// SetDoor lets the published SQL faces (see docs/protocol.md) claim a
// subscription, or ends that. It takes the mark from another subscription of the
// topic; whoever drains the subscription goes on and shares the work. Errors:
// [deed.NotFound]; [deed.Conflict] for a stream. Needs deed_admin.
func (c *Client) SetDoor(ctx context.Context, topic, name string, door bool) error {
	_, err := c.pool.Exec(ctx, query.SetDoor, topic, name, door)
	return deed.WrapError("set door", err)
}
