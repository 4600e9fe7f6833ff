package deed

import (
	"context"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/uuid"
)

// A call of a sink that has been running for longCall is told to others, every
// callsEvery: whoever wonders why a lane stands still looks there.
const (
	longCall   = 10 * time.Second
	callsEvery = 5 * time.Second
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

// reportCalls tells which calls take long until ctx ends. It asks nothing of
// the database while none does.
func (c *Client) reportCalls(ctx context.Context) {
	worker := uuid.New()
	tick := time.NewTicker(callsEvery)
	defer tick.Stop()
	for told := false; ; {
		select {
		case <-ctx.Done():
			if told {
				c.tellCalls(context.WithoutCancel(ctx), worker, nil)
			}
			return
		case <-tick.C:
		}
		long := map[int64]call{}
		for _, s := range c.sources {
			if oldest, ok := s.calls.oldest(); ok && time.Since(oldest.began) >= longCall {
				long[s.id.Load()] = oldest
			}
		}
		if len(long) > 0 || told {
			ok := c.tellCalls(ctx, worker, long)
			told = len(long) > 0 || (told && !ok)
		}
	}
}

// tellCalls replaces what was told before, and reports whether it did.
func (c *Client) tellCalls(ctx context.Context, worker uuid.UUID, long map[int64]call) bool {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	subs, ids, messageIDs, messages, ages := []int64{}, []int64{}, []string{}, []int{}, []float64{}
	for id, l := range long {
		subs, ids, messageIDs = append(subs, id), append(ids, l.seq), append(messageIDs, l.id.String())
		messages, ages = append(messages, l.messages), append(ages, time.Since(l.began).Seconds())
	}
	_, err := c.workers.Exec(ctx, query.ReportCalls, worker.String(), c.opts.Worker, subs, ids, messageIDs, messages, ages)
	if err != nil && ctx.Err() == nil {
		c.opts.Logger.Warn("telling which calls take long failed; will try again", "error", sqlstate.WithHint(err))
	}
	return err == nil
}
