package admin

import (
	"context"

	"github.com/deedhq/deed"
)

// Counts are how a topic's or a subscription's messages stand. What waits is counted
// up to 10,000 of each kind and subscription, and so is what is dead; what was
// delivered is added up in the background.
type Counts struct {
	Pending   int64   `json:"pending"`            // not finished and not dead
	AtLeast   bool    `json:"at_least,omitempty"` // Pending, Due, Claimed and Parked may be more
	Due       int64   `json:"due"`                // of those pending, what could be delivered now
	Claimed   int64   `json:"claimed"`            // of those pending, under a live lease
	Parked    int64   `json:"parked"`             // of those pending, behind another message of their key
	Dead      int64   `json:"dead"`               // ended, kept until an operator acts
	Delivered int64   `json:"delivered"`          // finished
	OldestDue Seconds `json:"oldest_due_seconds"` // how long the oldest due one of those counted has been due

	DeadAtLeast      bool `json:"dead_at_least,omitempty"`      // Dead may be more
	DeliveredAtLeast bool `json:"delivered_at_least,omitempty"` // Delivered may be more: it is not added up yet
}

// SubscriptionStatus is one subscription's counts.
type SubscriptionStatus struct {
	Subscription string `json:"subscription"`
	Counts

	// Of a stream; 0 of a queue.
	Lag         int64 `json:"lag,omitempty"`          // what it has still to read; may be more if AtLeast
	BlockedKeys int64 `json:"blocked_keys,omitempty"` // keys that wait for a message
	Lanes       int64 `json:"lanes,omitempty"`        // once a process has read it
	LanesHeld   int64 `json:"lanes_held,omitempty"`   // by some process, under a live lease

	// The call of the sink that has been running longest, if it has for 10
	// seconds.
	OldestCall *RunningCall `json:"oldest_call,omitempty"`

	// The process whose sink has been unavailable longest, as it has told within
	// the last minute; nil: none has, or there was nothing lately to try it with.
	Pause *SinkPause `json:"pause,omitempty"`

	// Messages have been due for more than a minute, nobody has any of them in hand,
	// and no process works on them, as far as it is told.
	Unattended bool `json:"unattended,omitempty"`
}

// Add sums up what is told of several subscriptions.
func (s *SubscriptionStatus) Add(more SubscriptionStatus) {
	s.Counts.add(more.Counts)
	s.Lag += more.Lag
	s.BlockedKeys += more.BlockedKeys
	s.Lanes += more.Lanes
	s.LanesHeld += more.LanesHeld
	if s.OldestCall == nil || (more.OldestCall != nil && more.OldestCall.Since.Before(s.OldestCall.Since)) {
		s.OldestCall = more.OldestCall
	}
	if s.Pause == nil || (more.Pause != nil && more.Pause.Since.Before(s.Pause.Since)) {
		s.Pause = more.Pause
	}
	s.Unattended = s.Unattended || more.Unattended
}

// add sums up; the oldest is the oldest of both.
func (c *Counts) add(more Counts) {
	c.Pending += more.Pending
	c.AtLeast = c.AtLeast || more.AtLeast
	c.Due += more.Due
	c.Claimed += more.Claimed
	c.Parked += more.Parked
	c.Dead += more.Dead
	c.Delivered += more.Delivered
	c.OldestDue = max(c.OldestDue, more.OldestDue)
	c.DeadAtLeast = c.DeadAtLeast || more.DeadAtLeast
	c.DeliveredAtLeast = c.DeliveredAtLeast || more.DeliveredAtLeast
}

// TopicStatus is a topic's counts, summed over its subscriptions.
type TopicStatus struct {
	Topic string `json:"topic"`
	Counts
	Subscriptions []SubscriptionStatus `json:"subscriptions"`
}

// others is the name under which topics are summed up that are not listed.
const others = "(others)"

// Status counts every topic's messages, by topic name. It lists a hundred
// topics, those that need attention first (dead messages, then the oldest that
// are due, then the most pending), and sums up the rest in a last one whose name
// no topic can have, "(others)". Its cost grows with the number of
// subscriptions, not with what they have. Needs deed_worker or deed_admin.
func (c *Client) Status(ctx context.Context) ([]TopicStatus, error) {
	return c.StatusOf(ctx, 100)
}

// StatusOf is [Client.Status] with most topics listed.
func (c *Client) StatusOf(ctx context.Context, most int) ([]TopicStatus, error) {
	if err := checkCount("status", "most", most, 0); err != nil {
		return nil, err
	}
	rows, err := c.pool.Query(ctx, query.Status, most)
	if err != nil {
		return nil, deed.WrapError("status", err)
	}
	defer rows.Close()
	topics := []TopicStatus{}
	for rows.Next() {
		var topic string
		var s SubscriptionStatus
		err := rows.Scan(&topic, &s.Subscription, &s.Pending, &s.Due, &s.Claimed, &s.Dead, &s.Delivered, &s.OldestDue,
			&s.Parked, &s.BlockedKeys, &s.Lag, &s.AtLeast, &s.DeadAtLeast, &s.DeliveredAtLeast, &s.Lanes, &s.LanesHeld)
		if err != nil {
			return nil, deed.WrapError("status", err)
		}
		if len(topics) == 0 || topics[len(topics)-1].Topic != topic {
			topics = append(topics, TopicStatus{Topic: topic})
		}
		t := &topics[len(topics)-1]
		t.add(s.Counts)
		t.Subscriptions = append(t.Subscriptions, s)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, deed.WrapError("status", err)
	}
	at := statusesOf(topics)
	if err := c.addOldestCalls(ctx, at); err != nil {
		return nil, deed.WrapError("status", err)
	}
	if err := c.addOldestPauses(ctx, at); err != nil {
		return nil, deed.WrapError("status", err)
	}
	return topics, deed.WrapError("status", c.addUnattended(ctx, at))
}
