package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/limits"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/page"
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

// Topics lists declared topics with their subscriptions, by name, at most limit, from
// cursor on: [page.Of.Next] of the page before, or "". One of deed's own is listed while it
// has a subscription.
func (c *Client) Topics(ctx context.Context, cursor string, limit int) (list page.Of[DeclaredTopic], err error) {
	if err := checkCount("topics", "limit", limit, 1); err != nil {
		return list, err
	}
	list.Items, err = c.topics(ctx, cursor, "", limit)
	if len(list.Items) == limit {
		list.Next = list.Items[limit-1].Topic
	}
	return list, deed.WrapError("topics", err)
}

// Topic returns a declared topic with its subscriptions. Errors: [deed.NotFound].
func (c *Client) Topic(ctx context.Context, name string) (DeclaredTopic, error) {
	list, err := c.topics(ctx, "", name, 1)
	switch {
	case err != nil:
		return DeclaredTopic{}, deed.WrapError("topic", err)
	case len(list) == 0:
		return DeclaredTopic{}, &deed.Error{Op: "topic", Code: deed.NotFound, Err: fmt.Errorf("no topic %q is declared", errortext.Clip(name))}
	}
	return list[0], nil
}

// topics reads those after a name, or the one named only.
func (c *Client) topics(ctx context.Context, after, only string, limit int) ([]DeclaredTopic, error) {
	rows, err := c.pool.Query(ctx, query.Topics, after, sqlvalue.NullIfZero(only), limit)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (DeclaredTopic, error) {
		t := DeclaredTopic{Subscriptions: []DeclaredSubscription{}}
		err := row.Scan(&t.Topic, &t.Mode, &t.Lanes, &t.Ordering, &t.Retention, &t.CreatedAt)
		return t, err
	})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	at := make(map[string]*DeclaredTopic, len(list))
	for i := range list {
		names[i], at[list[i].Topic] = list[i].Topic, &list[i]
	}
	if rows, err = c.pool.Query(ctx, query.Subscriptions, names); err != nil {
		return nil, err
	}
	var topic string
	var s DeclaredSubscription
	_, err = pgx.ForEachRow(rows, []any{&topic, &s.Subscription, &s.MaxAttempts, &s.Lease, &s.Backoff, &s.From, &s.CreatedAt, &s.Backfilled, &s.Door}, func() error {
		at[topic].Subscriptions = append(at[topic].Subscriptions, s)
		return nil
	})
	return list, err
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
// lanes at one point, after a few seconds, and one to queue can be called off until then; nothing is lost or comes
// twice, and in a stream nothing overtakes but what such a change had let go. Errors: [deed.NotFound], [deed.Invalid], also for lanes or an
// ordering of a queue, [deed.Conflict] for a queue while one of the stream's subscriptions is being brought what was published before it. Needs deed_admin.
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
