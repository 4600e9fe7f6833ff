package deed

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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

// callReporter tells others which calls take long.
type callReporter struct {
	db       *pgxpool.Pool
	worker   string // this process, for people
	deadline time.Duration
	log      *slog.Logger
	calls    map[int]*calls // by subscription

	id uuid.UUID // of the reports; what it told is replaced by it alone
}

// run reports until ctx ends. It asks nothing of the database while no call takes
// long.
func (r *callReporter) run(ctx context.Context) {
	r.id = uuid.New()
	tick := time.NewTicker(callsEvery)
	defer tick.Stop()
	for told := false; ; {
		select {
		case <-ctx.Done():
			if told {
				r.tell(context.WithoutCancel(ctx), nil)
			}
			return
		case <-tick.C:
		}
		long := map[int]call{}
		for sub, calls := range r.calls {
			if oldest, ok := calls.oldest(); ok && time.Since(oldest.began) >= longCall {
				long[sub] = oldest
			}
		}
		if len(long) > 0 || told {
			ok := r.tell(ctx, long)
			told = len(long) > 0 || (told && !ok)
		}
	}
}

// tell replaces what was told before, and reports whether it did.
func (r *callReporter) tell(ctx context.Context, long map[int]call) bool {
	ctx, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	subs, ids, messageIDs, messages, ages := []int{}, []int64{}, []string{}, []int{}, []float64{}
	for sub, l := range long {
		subs, ids, messageIDs = append(subs, sub), append(ids, l.seq), append(messageIDs, l.id.String())
		messages, ages = append(messages, l.messages), append(ages, time.Since(l.began).Seconds())
	}
	_, err := r.db.Exec(ctx, query.ReportCalls, r.id.String(), r.worker, subs, ids, messageIDs, messages, ages)
	if err != nil && ctx.Err() == nil {
		r.log.Warn("telling which calls take long failed; will try again", "error", sqlstate.WithHint(err))
	}
	return err == nil
}
