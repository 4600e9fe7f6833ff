package local

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/run/plan"
	"github.com/deedhq/deed/tenant"
)

// maxPlans bounds how many plans are kept in memory.
const maxPlans = 500

// plans are those that were loaded, and checked then: nothing changes a plan. Its methods may be called by several
// goroutines at once.
type plans struct {
	mu    sync.Mutex
	known map[planKey]*plan.Plan // guarded by mu
}

type planKey struct {
	tenant            tenant.ID
	id, version, hash string
}

func (c *plans) get(ctx context.Context, pool *pgxpool.Pool, it *item) (*plan.Plan, error) {
	key := planKey{it.tenant, it.plan, it.version, string(it.hash)}
	c.mu.Lock()
	p := c.known[key]
	c.mu.Unlock()
	if p != nil {
		return p, nil
	}
	stored, err := plan.Load(ctx, pool, &it.tenant, it.plan, it.version, it.hash)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxPlans {
		c.known = map[planKey]*plan.Plan{}
	}
	c.known[key] = stored.Plan
	return stored.Plan, nil
}
