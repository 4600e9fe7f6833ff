package local

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/run/plan"
	"github.com/deedhq/deed/tenant"
)

// maxPlans bounds how many bytes of plans are kept in memory, about.
const maxPlans = 128 << 20

// noneFor is for how long it is kept that what is stored is no plan: its steps, a thousand maybe, would each read it anew.
const noneFor = time.Minute

// plans are those that were loaded, and checked then: nothing changes a plan. Its methods may be called by several
// goroutines at once.
type plans struct {
	mu      sync.Mutex
	known   map[planKey]keptPlan // guarded by mu
	size    int                  // guarded by mu: of known
	loading map[planKey]*loading // guarded by mu
}

type planKey struct {
	tenant            tenant.ID
	id, version, hash string
}

// keptPlan is a plan, or why it is none, until then.
type keptPlan struct {
	plan  *plan.Plan
	err   error
	until time.Time
	size  int
}

// loading is a plan that somebody loads. To read one may take long, and no context ends it: a step that needs the same waits.
type loading struct {
	done chan struct{} // closed when it is over; then what follows stands
	plan *plan.Plan
	err  error
}

func (c *plans) get(ctx context.Context, pool *pgxpool.Pool, it *item) (*plan.Plan, error) {
	key := planKey{it.tenant, it.plan, it.version, string(it.hash)}
	for {
		c.mu.Lock()
		if k, ok := c.known[key]; ok && (k.err == nil || time.Now().Before(k.until)) {
			c.mu.Unlock()
			return k.plan, k.err
		}
		l, ok := c.loading[key]
		if !ok {
			l = &loading{done: make(chan struct{}), err: errors.New("the plan was not loaded")}
			if c.loading == nil {
				c.loading, c.known = map[planKey]*loading{}, map[planKey]keptPlan{}
			}
			c.loading[key] = l
		}
		c.mu.Unlock()
		if !ok {
			c.load(ctx, pool, it, key, l)
			return l.plan, l.err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.done:
		}
		if !errors.Is(l.err, context.Canceled) && !errors.Is(l.err, context.DeadlineExceeded) {
			return l.plan, l.err
		}
		// Only who loaded it had no more time.
	}
}

func (c *plans) load(ctx context.Context, pool *pgxpool.Pool, it *item, key planKey, l *loading) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.loading, key)
		// One that is not there may be put at any time, and to find that costs little.
		if l.err == nil {
			c.keep(key, keptPlan{plan: l.plan, size: l.plan.Size()})
		} else if deed.CodeOf(l.err) == deed.Invalid {
			c.keep(key, keptPlan{err: l.err, until: time.Now().Add(noneFor), size: len(l.err.Error())})
		}
		close(l.done)
	}()
	stored, err := plan.Load(ctx, pool, &it.tenant, it.plan, it.version, it.hash)
	if l.err = err; err == nil {
		l.plan = stored.Plan
	}
}

// keep notes what a plan is; the caller has mu.
func (c *plans) keep(key planKey, k keptPlan) {
	c.size -= c.known[key].size
	if delete(c.known, key); c.size+k.size > maxPlans {
		clear(c.known)
		c.size = 0
	}
	c.known[key] = k
	c.size += k.size
}
