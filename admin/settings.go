package admin

import (
	"context"
	"time"

	"github.com/deedhq/deed"
)

// Settings hold for the whole installation.
type Settings struct {
	StrictTopics bool    `json:"strict_topics"`        // publish to declared topics only
	MaxPayload   int     `json:"max_payload"`          // bytes, of a message
	MaxDelivery  int     `json:"max_delivery"`         // bytes, of a delivery's payload
	DedupWindow  Seconds `json:"dedup_window_seconds"` // how long an idempotency key is remembered, at least
	Retention    Seconds `json:"retention_seconds"`    // how long finished messages of undeclared topics are kept
	SingleTenant bool    `json:"single_tenant"`        // there is no tenant but the default one
	Installation string  `json:"installation"`
	Environment  string  `json:"environment"` // that the installation belongs to: [deed.Options.Environment]; empty: nobody has named one
}

// Settings returns the installation's settings.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	var s Settings
	err := c.pool.QueryRow(ctx, query.Settings).
		Scan(&s.StrictTopics, &s.MaxPayload, &s.DedupWindow, &s.SingleTenant, &s.Installation, &s.Retention, &s.MaxDelivery, &s.Environment)
	return s, deed.WrapError("settings", err)
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
	_, err := c.pool.Exec(ctx, query.SetSettings, change.StrictTopics, change.MaxPayload, seconds, retention, change.MaxDelivery)
	return deed.WrapError("set settings", err)
}
