package deed

import (
	"sync/atomic"
	"time"

	"github.com/deedhq/deed/internal/errortext"
)

// counters are what a process did for a subscription since it started.
type counters struct {
	claimed, attempts, delivered, failed, dead atomic.Int64
	takenOver, lostClaims, staleFinishes       atomic.Int64
	inFlight                                   atomic.Int64
	claim, finish, both, deliver               histogram
}

// Stats is what this process did for one subscription since it started.
type Stats struct {
	Topic         string `json:"topic"`
	Subscription  string `json:"subscription"`
	Claimed       int64  `json:"claimed"`        // messages claimed
	Attempts      int64  `json:"attempts"`       // messages handed to the sink
	InFlight      int64  `json:"in_flight"`      // of those, in its hands now
	Delivered     int64  `json:"delivered"`      // outcomes recorded as delivered
	Failed        int64  `json:"failed"`         // attempts that failed and are retried
	Dead          int64  `json:"dead"`           // messages that ended dead
	TakenOver     int64  `json:"taken_over"`     // claims of others that had run out
	LostClaims    int64  `json:"lost_claims"`    // claims of ours that others took over
	StaleFinishes int64  `json:"stale_finishes"` // finishes that were refused for that
	SinkDown      bool   `json:"sink_down"`      // the breaker is open

	// How long the round trips took that claimed, recorded outcomes, or did
	// both at once; and the sink, a call.
	Claim          Histogram `json:"claim"`
	Finish         Histogram `json:"finish"`
	FinishAndClaim Histogram `json:"finish_and_claim"`
	Deliver        Histogram `json:"deliver"`
}

// Stats returns a snapshot for each of the client's subscriptions, but for those
// that were removed.
func (c *Client) Stats() []Stats {
	list := make([]Stats, 0, len(c.sources))
	for _, s := range c.sources {
		n := &s.stats
		if s.removed.Load() && n.inFlight.Load() == 0 {
			continue
		}
		list = append(list, Stats{
			Topic: s.sub.Topic, Subscription: s.sub.Name,
			Claimed: n.claimed.Load(), Attempts: n.attempts.Load(), InFlight: n.inFlight.Load(),
			Delivered: n.delivered.Load(), Failed: n.failed.Load(), Dead: n.dead.Load(),
			TakenOver: n.takenOver.Load(), LostClaims: n.lostClaims.Load(),
			StaleFinishes: n.staleFinishes.Load(), SinkDown: s.breaker.State() != "closed",
			Claim: n.claim.snapshot(), Finish: n.finish.snapshot(),
			FinishAndClaim: n.both.snapshot(), Deliver: n.deliver.snapshot(),
		})
	}
	return list
}

// Histogram counts durations. Counts[i] are those of at most Bounds[i] seconds
// and more than the bound before; the last of Counts, which has no bound, are
// the longer ones.
type Histogram struct {
	Bounds []float64 `json:"bounds"`
	Counts []uint64  `json:"counts"`
	Sum    float64   `json:"sum"` // seconds
}

// bounds of all histograms.
var bounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	30 * time.Second, time.Minute,
}

type histogram struct {
	counts [len(bounds) + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

func (h *histogram) snapshot() Histogram {
	s := Histogram{Sum: time.Duration(h.sum.Load()).Seconds()}
	for i := range h.counts {
		s.Counts = append(s.Counts, h.counts[i].Load())
	}
	for _, b := range bounds {
		s.Bounds = append(s.Bounds, b.Seconds())
	}
	return s
}

// clipError is what is kept of an error.
func clipError(err error) string { return errortext.Stored(err.Error(), 2000, "") }
