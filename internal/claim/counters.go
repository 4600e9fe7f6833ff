package claim

import (
	"sync/atomic"
	"time"
)

// Counters are what a process did for a subscription since it started.
type Counters struct {
	Claimed, Attempts, Delivered, Failed, Dead atomic.Int64
	TakenOver, LostClaims, StaleFinishes       atomic.Int64
	InFlight                                   atomic.Int64
	Claim, Finish, Both, Deliver               Histogram // how long it took
}

// bounds of all histograms.
var bounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	30 * time.Second, time.Minute,
}

// Histogram counts durations. Its zero value is empty.
type Histogram struct {
	counts [len(bounds) + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

// Observe counts d.
func (h *Histogram) Observe(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// Read returns the upper bounds in seconds, how many were counted below each and
// above the one before, with those above the last one at the end, and the sum of
// all in seconds.
func (h *Histogram) Read() (upto []float64, counts []uint64, sum float64) {
	for i := range h.counts {
		counts = append(counts, h.counts[i].Load())
	}
	for _, b := range bounds {
		upto = append(upto, b.Seconds())
	}
	return upto, counts, time.Duration(h.sum.Load()).Seconds()
}
