package deed

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Declared is a subscription as the database has it.
type Declared struct {
	Topic        string        `json:"topic"`
	Subscription string        `json:"subscription"`
	MaxAttempts  int           `json:"max_attempts"` // 0: without limit
	Lease        time.Duration `json:"-"`
	LeaseSeconds float64       `json:"lease_seconds"`
	From         From          `json:"from"`
	CreatedAt    time.Time     `json:"created_at"`
	Backfilled   bool          `json:"backfilled"` // it has all that was published before it
}

// Topics lists the declared topics' subscriptions.
func (c *Client) Topics(ctx context.Context) ([]Declared, error) {
	rows, err := c.pool.Query(ctx, query["topics"])
	if err != nil {
		return nil, opError("topics", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Declared, error) {
		var d Declared
		err := row.Scan(&d.Topic, &d.Subscription, &d.MaxAttempts, &d.LeaseSeconds, &d.From, &d.CreatedAt, &d.Backfilled)
		d.Lease = time.Duration(d.LeaseSeconds * float64(time.Second))
		return d, err
	})
	return list, opError("topics", err)
}

// SetSubscription changes the settings of a topic's subscription, or of all of
// the topic's if name is empty, online; zero values leave them as they are.
// Clients that run keep the lease they started with. Errors: [NotFound],
// [Invalid]. Needs deed_admin.
func (c *Client) SetSubscription(ctx context.Context, topic, name string, maxAttempts int, lease time.Duration) error {
	if maxAttempts < 0 || maxAttempts > 1000 {
		return invalidf("set subscription", "max attempts %d is not from 1 to 1000", maxAttempts)
	}
	if lease != 0 && (lease < time.Second || lease > 24*time.Hour) {
		return invalidf("set subscription", "lease %s is not from 1s to 24h", lease)
	}
	var seconds any
	if lease != 0 {
		seconds = lease.Seconds()
	}
	_, err := c.pool.Exec(ctx, query["set_subscription"], topic, nullIfZero(name), nullIfZero(maxAttempts), seconds)
	return opError("set subscription", err)
}

// Settings hold for the whole installation.
type Settings struct {
	StrictTopics     bool          `json:"strict_topics"` // publish to declared topics only
	MaxPayload       int           `json:"max_payload"`   // bytes
	DedupWindow      time.Duration `json:"-"`             // how long an idempotency key is remembered, at least
	DedupSeconds     float64       `json:"dedup_window_seconds"`
	Retention        time.Duration `json:"-"` // how long finished messages of undeclared topics are kept
	RetentionSeconds float64       `json:"retention_seconds"`
	SingleTenant     bool          `json:"single_tenant"` // there is no tenant but the default one
	Installation     string        `json:"installation"`
}

// Settings returns the installation's settings.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	var s Settings
	err := c.pool.QueryRow(ctx, query["settings"]).
		Scan(&s.StrictTopics, &s.MaxPayload, &s.DedupSeconds, &s.SingleTenant, &s.Installation, &s.RetentionSeconds)
	s.DedupWindow = time.Duration(s.DedupSeconds * float64(time.Second))
	s.Retention = time.Duration(s.RetentionSeconds * float64(time.Second))
	return s, opError("settings", err)
}

// SettingsChange names what to change; nil fields stay as they are.
type SettingsChange struct {
	StrictTopics *bool
	MaxPayload   *int           // 1 KiB to 64 MiB
	DedupWindow  *time.Duration // above 0
	Retention    *time.Duration // above 0
}

// SetSettings changes the installation's settings. Needs deed_admin.
func (c *Client) SetSettings(ctx context.Context, change SettingsChange) error {
	if change.MaxPayload != nil && (*change.MaxPayload < 1024 || *change.MaxPayload > 64<<20) {
		return invalidf("set settings", "max payload %d is not from 1024 to %d bytes", *change.MaxPayload, 64<<20)
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
	_, err := c.pool.Exec(ctx, query["set_settings"], change.StrictTopics, change.MaxPayload, seconds, retention)
	return opError("set settings", err)
}
