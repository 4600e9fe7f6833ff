package deed

import "github.com/deedhq/deed/internal/claim"

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
	SinkDown      bool   `json:"sink_down"`      // it is unavailable, as probes have shown lately

	// How long the round trips took that claimed, recorded outcomes, or did
	// both at once; and the sink, a call.
	Claim          Histogram `json:"claim"`
	Finish         Histogram `json:"finish"`
	FinishAndClaim Histogram `json:"finish_and_claim"`
	Deliver        Histogram `json:"deliver"`
}

// snapshot is what the process did for the subscription; false, if that was
// removed and nothing of it is under way.
func (s *source) snapshot() (Stats, bool) {
	n := &s.Counters
	_, paused := s.dest.paused()
	return Stats{
		Topic: s.Topic, Subscription: s.Name,
		Claimed: n.Claimed.Load(), Attempts: n.Attempts.Load(), InFlight: n.InFlight.Load(),
		Delivered: n.Delivered.Load(), Failed: n.Failed.Load(), Dead: n.Dead.Load(),
		TakenOver: n.TakenOver.Load(), LostClaims: n.LostClaims.Load(),
		StaleFinishes: n.StaleFinishes.Load(), SinkDown: paused != nil,
		Claim: snapshot(&n.Claim), Finish: snapshot(&n.Finish),
		FinishAndClaim: snapshot(&n.Both), Deliver: snapshot(&n.Deliver),
	}, !s.IsRemoved() || n.InFlight.Load() > 0
}

// Histogram counts durations. Counts[i] are those of at most Bounds[i] seconds
// and more than the bound before; the last of Counts, which has no bound, are
// the longer ones.
type Histogram struct {
	Bounds []float64 `json:"bounds"`
	Counts []uint64  `json:"counts"`
	Sum    float64   `json:"sum"` // seconds
}

func snapshot(h *claim.Histogram) (s Histogram) {
	s.Bounds, s.Counts, s.Sum = h.Read()
	return s
}
