package main

import (
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/campaign"
)

// A run that no relay begins says so, a minute after it was to begin and not before; one that has begun does not.
func TestWatch_SaysThatNobodyBegins(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for name, c := range map[string]struct {
		run  campaign.Run
		says bool
	}{
		"nobody has begun it":  {campaign.Run{Status: campaign.Queued, ScheduledFor: ago(2 * time.Minute), CreatedAt: ago(time.Hour)}, true},
		"it was made just now": {campaign.Run{Status: campaign.Queued, ScheduledFor: ago(2 * time.Minute), CreatedAt: ago(time.Second)}, false},
		"it is to begin later": {campaign.Run{Status: campaign.Queued, ScheduledFor: ago(-time.Hour), CreatedAt: ago(time.Hour)}, false},
		"it has begun":         {campaign.Run{Status: campaign.Running, ScheduledFor: ago(2 * time.Minute), CreatedAt: ago(time.Hour)}, false},
	} {
		c.run.Members = 3
		s := campaign.Shown{Run: c.run, Progress: campaign.Progress{Waiting: 3}}
		var shown strings.Builder
		if err := showCampaign(&shown, s); err != nil {
			t.Fatal(err)
		}
		for what, text := range map[string]string{"show": shown.String(), "watch": fares(s, 0, time.Second)} {
			if strings.Contains(text, "no relay has begun it") != c.says {
				t.Errorf("%s, %s: %s", name, what, text)
			}
		}
	}
}

// A run that is paused or cancelled is said to be so until it has ended: one whose last deliveries end while it is paused is over.
func TestStatusOfCampaign(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for want, r := range map[string]campaign.Run{
		"running":                {Status: campaign.Running},
		"running, paused":        {Status: campaign.Running, PausedAt: &at},
		"running, paused itself": {Status: campaign.Running, PausedAt: &at, PausedWhy: "failed: 11 of 100 that have ended, over 5%"},
		"running, cancelled":     {Status: campaign.Running, PausedAt: &at, CancelledAt: &at},
		"completed":              {Status: campaign.Completed, PausedAt: &at, FinishedAt: &at},
		"failed":                 {Status: campaign.Failed, PausedAt: &at, PausedWhy: "failed: 11 of 100 that have ended, over 5%", FinishedAt: &at},
		"partial":                {Status: campaign.Partial, CancelledAt: &at, FinishedAt: &at},
	} {
		if got := statusOfCampaign(r); got != want {
			t.Errorf("it is %s, want %s", got, want)
		}
	}
}
