package deed

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// DeclaredTopic is a topic as the database has it.
type DeclaredTopic struct {
	Topic            string                 `json:"topic"`
	Mode             Mode                   `json:"mode"`
	Lanes            int                    `json:"lanes"`
	Ordering         Ordering               `json:"ordering"` // of a stream; a queue keeps none
	Retention        time.Duration          `json:"-"`
	RetentionSeconds float64                `json:"retention_seconds"`
	CreatedAt        time.Time              `json:"created_at"`
	Subscriptions    []DeclaredSubscription `json:"subscriptions"`
}

// DeclaredSubscription is a subscription as the database has it.
type DeclaredSubscription struct {
	Subscription   string        `json:"subscription"`
	MaxAttempts    int           `json:"max_attempts"` // 0: without limit
	Lease          time.Duration `json:"-"`
	LeaseSeconds   float64       `json:"lease_seconds"`
	Backoff        time.Duration `json:"-"`
	BackoffSeconds float64       `json:"backoff_seconds"`
	From           From          `json:"from"`
	CreatedAt      time.Time     `json:"created_at"`
	Backfilled     bool          `json:"backfilled"` // it has all that was published before it
	Door           bool          `json:"door"`       // the published SQL faces claim it
}

// Topics lists the declared topics with their subscriptions, by name.
func (c *Client) Topics(ctx context.Context) ([]DeclaredTopic, error) {
	rows, err := c.pool.Query(ctx, query["topics"])
	if err != nil {
		return nil, opError("topics", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (DeclaredTopic, error) {
		t := DeclaredTopic{Subscriptions: []DeclaredSubscription{}}
		var ordered bool
		err := row.Scan(&t.Topic, &t.Mode, &t.Lanes, &ordered, &t.RetentionSeconds, &t.CreatedAt)
		t.Ordering = OrderNone
		if t.Mode == Stream {
			t.Ordering = orderingOf(ordered)
		}
		t.Retention = ofSeconds(t.RetentionSeconds)
		return t, err
	})
	if err != nil {
		return nil, opError("topics", err)
	}
	at := make(map[string]*DeclaredTopic, len(list))
	for i := range list {
		at[list[i].Topic] = &list[i]
	}
	if rows, err = c.pool.Query(ctx, query["subscriptions"]); err != nil {
		return nil, opError("topics", err)
	}
	var topic string
	var s DeclaredSubscription
	_, err = pgx.ForEachRow(rows, []any{&topic, &s.Subscription, &s.MaxAttempts, &s.LeaseSeconds, &s.BackoffSeconds, &s.From, &s.CreatedAt, &s.Backfilled, &s.Door}, func() error {
		s.Lease, s.Backoff = ofSeconds(s.LeaseSeconds), ofSeconds(s.BackoffSeconds)
		if t := at[topic]; t != nil { // else it was declared since the first look
			t.Subscriptions = append(t.Subscriptions, s)
		}
		return nil
	})
	return list, opError("topics", err)
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
// started with. Errors: [NotFound], [Invalid]. Needs deed_admin.
func (c *Client) SetSubscription(ctx context.Context, topic, name string, change SubscriptionChange) error {
	if change.MaxAttempts < 0 || change.MaxAttempts > 1000 {
		return invalidf("set subscription", "max attempts %d is not from 1 to 1000", change.MaxAttempts)
	}
	if change.Lease != 0 && (change.Lease < time.Second || change.Lease > 24*time.Hour) {
		return invalidf("set subscription", "lease %s is not from 1s to 24h", change.Lease)
	}
	if change.Backoff != 0 && (change.Backoff < time.Millisecond || change.Backoff > time.Hour) {
		return invalidf("set subscription", "backoff %s is not from 1ms to 1h", change.Backoff)
	}
	_, err := c.pool.Exec(ctx, query["set_subscription"], topic, nullIfZero(name), nullIfZero(change.MaxAttempts),
		nullIfZero(change.Lease.Seconds()), nullIfZero(change.Backoff.Seconds()))
	return opError("set subscription", err)
}

// SetDoor lets the published SQL faces (the contracts packs) claim a
// subscription, or ends that. It takes the mark from another subscription of the
// topic; whoever drains the subscription goes on and shares the work. Errors:
// [NotFound]; [Conflict] for a stream. Needs deed_admin.
func (c *Client) SetDoor(ctx context.Context, topic, name string, door bool) error {
	_, err := c.pool.Exec(ctx, query["set_door"], topic, name, door)
	return opError("set door", err)
}

// ofSeconds is an interval as the statements return it.
func ofSeconds(s float64) time.Duration {
	return time.Duration(math.Round(s*1e6)) * time.Microsecond
}

// Settings hold for the whole installation.
type Settings struct {
	StrictTopics     bool          `json:"strict_topics"` // publish to declared topics only
	MaxPayload       int           `json:"max_payload"`   // bytes, of a message
	MaxDelivery      int           `json:"max_delivery"`  // bytes, of a delivery's payload
	DedupWindow      time.Duration `json:"-"`             // how long an idempotency key is remembered, at least
	DedupSeconds     float64       `json:"dedup_window_seconds"`
	Retention        time.Duration `json:"-"` // how long finished messages of undeclared topics are kept
	RetentionSeconds float64       `json:"retention_seconds"`
	SingleTenant     bool          `json:"single_tenant"` // there is no tenant but the default one
	Installation     string        `json:"installation"`
	Environment      string        `json:"environment"` // that the installation belongs to: [Options.Environment]; empty: nobody has named one
}

// Settings returns the installation's settings.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	var s Settings
	err := c.pool.QueryRow(ctx, query["settings"]).
		Scan(&s.StrictTopics, &s.MaxPayload, &s.DedupSeconds, &s.SingleTenant, &s.Installation, &s.RetentionSeconds, &s.MaxDelivery, &s.Environment)
	s.DedupWindow = time.Duration(s.DedupSeconds * float64(time.Second))
	s.Retention = time.Duration(s.RetentionSeconds * float64(time.Second))
	return s, opError("settings", err)
}

// SettingsChange names what to change; nil fields stay as they are.
type SettingsChange struct {
	StrictTopics *bool
	MaxPayload   *int           // 1 KiB to 64 MiB
	MaxDelivery  *int           // 1 KiB to 10 MiB
	DedupWindow  *time.Duration // above 0
	Retention    *time.Duration // above 0
}

// SetSettings changes the installation's settings. Needs deed_admin.
func (c *Client) SetSettings(ctx context.Context, change SettingsChange) error {
	if change.MaxPayload != nil && (*change.MaxPayload < 1024 || *change.MaxPayload > 64<<20) {
		return invalidf("set settings", "max payload %d is not from 1024 to %d bytes", *change.MaxPayload, 64<<20)
	}
	if change.MaxDelivery != nil && (*change.MaxDelivery < 1024 || *change.MaxDelivery > 10<<20) {
		return invalidf("set settings", "max delivery %d is not from 1024 to %d bytes", *change.MaxDelivery, 10<<20)
	}
	var seconds *float64
	if change.DedupWindow != nil {
		if *change.DedupWindow <= 0 {
			return invalidf("set settings", "dedup window %s is not above 0", *change.DedupWindow)
		}
		v := change.DedupWindow.Seconds()
		seconds = &v
	}
	var retention *float64
	if change.Retention != nil {
		if *change.Retention <= 0 {
			return invalidf("set settings", "retention %s is not above 0", *change.Retention)
		}
		v := change.Retention.Seconds()
		retention = &v
	}
	_, err := c.pool.Exec(ctx, query["set_settings"], change.StrictTopics, change.MaxPayload, seconds, retention, change.MaxDelivery)
	return opError("set settings", err)
}
