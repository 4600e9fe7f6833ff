package inbound

import (
	"cmp"
	"slices"
	"sync"
)

// Count is how often something came of what a source sent, since the receiver was made.
type Count struct {
	Source string
	// Outcome is what came of a request: unverified, invalid, ignored, failed, busy; or
	// of a message: new, repeat (of any kind), executed, denied, dispatch_failed, held,
	// late, unreadable; or
	// status, of what became of a message of ours.
	Outcome string
	N       int64
}

// counts has no names that senders choose.
type counts struct {
	mu sync.Mutex
	n  map[[2]string]int64 // guarded by mu
}

func (c *counts) add(source, outcome string, n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[[2]string]int64{}
	}
	c.n[[2]string{source, outcome}] += int64(n)
}

// Counts returns what has come of what this process was sent.
func (r *Receiver) Counts() []Count {
	r.counts.mu.Lock()
	defer r.counts.mu.Unlock()
	list := make([]Count, 0, len(r.counts.n))
	for of, n := range r.counts.n {
		list = append(list, Count{Source: of[0], Outcome: of[1], N: n})
	}
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Outcome, b.Outcome))
	})
	return list
}
