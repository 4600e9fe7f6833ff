package delivery

import (
	"context"
	"sync"
	"time"
)

// longestUsual is how long a call may have a usual place, however long calls to
// the provider take: destinations may all be slow that are one tenant's.
const longestUsual = 1500 * time.Millisecond

// places bounds the calls at once: usual ones, and spare ones for those that
// hang. A call begins in a usual place, and moves to a spare one when it hangs,
// so that the usual ones are for destinations that answer. A tenant begins no
// call while so many of its calls hang, or as many as spare places are free: so
// there is always one for another tenant's.
type places struct {
	usual, spare chan struct{}
	most         int // calls of a tenant that hang; 0: there are no spare places

	mu      sync.Mutex
	hanging map[string]int // guarded by mu: calls, by tenant
	all     int            // guarded by mu: their sum
}

// newPlaces makes twice as many spare places as are one tenant's.
func newPlaces(usual, spare int) *places {
	return &places{
		usual: make(chan struct{}, usual), spare: make(chan struct{}, 2*spare),
		most: spare, hanging: map[string]int{},
	}
}

// place is where a call is made.
type place struct {
	of     *places
	tenant string

	mu    sync.Mutex
	held  chan struct{} // guarded by mu; nil: given back
	hangs bool          // guarded by mu
}

// take waits for a usual place; nil, ctx has ended or stopping is closed. That is
// looked at with the place in hand: of two that are ready a select takes either.
func (p *places) take(ctx context.Context, stopping <-chan struct{}, tenant string) *place {
	select {
	case p.usual <- struct{}{}:
	case <-ctx.Done():
		return nil
	case <-stopping:
		return nil
	}
	select {
	case <-stopping:
	default:
		if ctx.Err() == nil {
			return &place{of: p, tenant: tenant, held: p.usual}
		}
	}
	<-p.usual
	return nil
}

// begins reports whether another call of the tenant's may begin.
func (p *places) begins(tenant string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.hanging[tenant]
	return p.most == 0 || n == 0 || n < p.share()
}

// share is how many calls of a tenant may hang now; p.mu is held.
func (p *places) share() int { return min(p.most, cap(p.spare)-p.all) }

// rooms are the tenants with calls that hang, and how many deliveries each may
// have in hand: none, while it may begin none.
func (p *places) rooms() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	rooms := map[string]int{}
	if p.most == 0 {
		return rooms
	}
	for tenant, n := range p.hanging {
		if rooms[tenant] = 0; n < p.share() {
			rooms[tenant] = cap(p.usual) + p.share()
		}
	}
	return rooms
}

// count counts a call of the tenant's among those that hang, or out.
func (p *places) count(tenant string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all += n
	if p.hanging[tenant] += n; p.hanging[tenant] == 0 {
		delete(p.hanging, tenant)
	}
}

// move is told that the call hangs: it takes a spare place instead of the usual
// one, if there is one. A place counts once, however many of its calls hang.
func (p *place) move() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangs || p.held == nil {
		return
	}
	p.hangs = true
	p.of.count(p.tenant, 1)
	select {
	case p.of.spare <- struct{}{}:
		p.held = p.of.spare
		<-p.of.usual
	default:
	}
}

func (p *place) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		return
	}
	<-p.held
	p.held = nil
	if p.hangs {
		p.of.count(p.tenant, -1)
	}
}
