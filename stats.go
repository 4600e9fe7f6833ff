package deed

import (
	"strings"
	"sync/atomic"
)

// counters are what a process did for a subscription since it started.
type counters struct {
	claimed, delivered, failed, dead     atomic.Int64
	takenOver, lostClaims, staleFinishes atomic.Int64
}

// Stats is what this process did for one subscription since it started.
type Stats struct {
	Topic         string `json:"topic"`
	Subscription  string `json:"subscription"`
	Claimed       int64  `json:"claimed"`        // messages claimed
	Delivered     int64  `json:"delivered"`      // outcomes recorded as delivered
	Failed        int64  `json:"failed"`         // attempts that failed and are retried
	Dead          int64  `json:"dead"`           // messages that ended dead
	TakenOver     int64  `json:"taken_over"`     // claims of others that had run out (O14)
	LostClaims    int64  `json:"lost_claims"`    // claims of ours that others took over
	StaleFinishes int64  `json:"stale_finishes"` // finishes that were refused for that (O14)
	SinkDown      bool   `json:"sink_down"`      // the breaker is open
}

// Stats returns a snapshot for each of the client's subscriptions.
func (c *Client) Stats() []Stats {
	list := make([]Stats, len(c.sources))
	for i, s := range c.sources {
		list[i] = Stats{
			Topic: s.sub.Topic, Subscription: s.sub.Name,
			Claimed: s.stats.claimed.Load(), Delivered: s.stats.delivered.Load(),
			Failed: s.stats.failed.Load(), Dead: s.stats.dead.Load(),
			TakenOver: s.stats.takenOver.Load(), LostClaims: s.stats.lostClaims.Load(),
			StaleFinishes: s.stats.staleFinishes.Load(), SinkDown: s.breaker.isOpen(),
		}
	}
	return list
}

// clipError bounds what is kept of an error.
func clipError(err error) string {
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "�")
	if len(text) > 2000 {
		text = strings.ToValidUTF8(text[:2000], "")
	}
	return text
}
