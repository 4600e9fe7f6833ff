package deed

import (
	"sync"
	"time"
)

// A call of a sink that has been running for longCall is told to others, every
// reportEvery, as pauses are.
const (
	longCall    = 10 * time.Second
	reportEvery = 5 * time.Second
)

// call is a call of the sink that has not returned.
type call struct {
	began    time.Time
	seq      int64 // of its first message
	id       ID
	messages int
}

// calls are those of a subscription that are running.
type calls struct {
	mu      sync.Mutex
	next    int          // guarded by mu
	running map[int]call // guarded by mu
}

func (c *calls) begin(msgs []Message) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = map[int]call{}
	}
	c.next++
	c.running[c.next] = call{time.Now(), msgs[0].Seq, msgs[0].ID, len(msgs)}
	return c.next
}

func (c *calls) end(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, n)
}

// oldest returns the call that has been running longest.
func (c *calls) oldest() (oldest call, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.running {
		if !ok || r.began.Before(oldest.began) {
			oldest, ok = r, true
		}
	}
	return oldest, ok
}
