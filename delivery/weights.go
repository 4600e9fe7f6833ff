package delivery

import "sync"

const (
	inHandBytes = 64 << 20 // the most that a process has in hand; one delivery is always taken
	smallBytes  = 1 << 20  // of a tenant in hand, of which a claim is not told
)

// weights are the bytes of what a process has in hand, as they came to it.
type weights struct {
	mu  sync.Mutex
	all int64            // guarded by mu
	of  map[string]int64 // guarded by mu: by tenant
}

// add counts bytes of a tenant's in, or out.
func (w *weights) add(tenant string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[string]int64{}
	}
	w.all += n
	if w.of[tenant] += n; w.of[tenant] == 0 {
		delete(w.of, tenant)
	}
}

// free is how many bytes more may be in hand.
func (w *weights) free() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, inHandBytes-w.all)
}

// laden reports whether a tenant has as much in hand as is free: then no more of it is claimed,
// either.
func (w *weights) laden(tenant string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of[tenant] >= max(smallBytes, inHandBytes-w.all)
}

// rooms are the tenants with more than a little in hand, and how many bytes more
// each may have: as many as are free then, so that there is room for another's.
func (w *weights) rooms() map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	rooms := map[string]int64{}
	for tenant, n := range w.of {
		if n >= smallBytes {
			rooms[tenant] = max(0, (inHandBytes-w.all-n)/2)
		}
	}
	return rooms
}
