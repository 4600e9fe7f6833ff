package admin

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
)

// RunningCall is a call of a sink that has not returned.
type RunningCall struct {
	Seq      int64     `json:"seq,string"` // of its first message
	ID       deed.ID   `json:"id"`
	Messages int       `json:"messages"` // that it was given
	Worker   string    `json:"worker"`
	Since    time.Time `json:"since"`
	Age      Seconds   `json:"seconds"` // for how long
}

// SinkPause says that a process pauses a subscription, since the sink has told it
// that it is unavailable. Nothing is lost, and no attempt counted; the sink is asked
// again every half minute at the latest.
type SinkPause struct {
	Worker  string    `json:"worker"`
	Workers int64     `json:"workers"` // that pause, this one included
	Why     string    `json:"why"`     // the sink's last error, without network addresses
	Since   time.Time `json:"since"`
	Age     Seconds   `json:"seconds"` // for how long
}

// statuses are those of subscriptions, to be completed.
type statuses map[named]*SubscriptionStatus

// named is a subscription by its names.
type named struct{ topic, subscription string }

func statusesOf(topics []TopicStatus) statuses {
	at := statuses{}
	for i := range topics {
		for j := range topics[i].Subscriptions {
			s := &topics[i].Subscriptions[j]
			at[named{topics[i].Topic, s.Subscription}] = s
		}
	}
	return at
}

// addOldestCalls completes the status of subscriptions.
func (c *Client) addOldestCalls(ctx context.Context, at statuses) error {
	rows, err := c.pool.Query(ctx, query.OldestCalls)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p named
		var r RunningCall
		var id string
		if err := rows.Scan(&p.topic, &p.subscription, &r.Seq, &id, &r.Messages, &r.Worker, &r.Since, &r.Age); err != nil {
			return err
		}
		if r.ID, err = deed.ParseID(id); err != nil {
			return err
		}
		if s := at[p]; s != nil {
			s.OldestCall = &r
		}
	}
	return rows.Err()
}

// addOldestPauses completes the status of subscriptions.
func (c *Client) addOldestPauses(ctx context.Context, at statuses) error {
	rows, err := c.pool.Query(ctx, query.OldestPauses)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p named
		var r SinkPause
		if err := rows.Scan(&p.topic, &p.subscription, &r.Worker, &r.Workers, &r.Why, &r.Since, &r.Age); err != nil {
			return err
		}
		if s := at[p]; s != nil {
			s.Pause = &r
		}
	}
	return rows.Err()
}

// unattendedAfter is for how long messages are due before somebody is missed.
const unattendedAfter = time.Minute

// addUnattended completes the status of subscriptions.
func (c *Client) addUnattended(ctx context.Context, at statuses) error {
	var topics, names []string
	for p, s := range at {
		if p.topic != others && time.Duration(s.OldestDue) > unattendedAfter && s.Claimed == 0 && s.LanesHeld == 0 {
			topics, names = append(topics, p.topic), append(names, p.subscription)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	rows, err := c.pool.Query(ctx, query.Unattended, topics, names, unattendedAfter.Seconds())
	if err != nil {
		return err
	}
	var p named
	_, err = pgx.ForEachRow(rows, []any{&p.topic, &p.subscription}, func() error {
		at[p].Unattended = true
		return nil
	})
	return err
}
