package delivery

import (
	"log/slog"
	"sync"
	"time"
)

// watch is what a process knows of its destinations before the database does:
// pauses are rows (deed.pauses), and what is in hand when one begins is kept
// back until it has committed. It looks at the process's monotonic clock, which
// decides nothing else.
type watch struct {
	mu      sync.Mutex
	held    map[destination]time.Time // guarded by mu: until when nobody is called
	unknown map[destination]int       // guarded by mu: unknown outcomes in a row; bounded by mostWatched
}

const mostWatched = 10_000

// destination is what is paused, and for whose deliveries: what one tenant meets
// at a host may be of its own making. The zero value is the provider, for everybody.
type destination struct{ name, tenant string }

// about returns a log whose lines name the destination.
func (d destination) about(log *slog.Logger) *slog.Logger {
	log = log.With("destination", d.name)
	if d.tenant != "" {
		log = log.With("tenant", d.tenant)
	}
	return log
}

// holds reports whether a destination has failed just now.
func (w *watch) holds(dest destination) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, ok := w.held[dest]
	if ok && !time.Now().Before(until) {
		delete(w.held, dest)
		ok = false
	}
	return ok
}

// hold keeps calls away from a destination for a moment.
func (w *watch) hold(dest destination, moment time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held == nil || len(w.held) >= mostWatched {
		w.held = map[destination]time.Time{}
	}
	w.held[dest] = time.Now().Add(moment)
}

// count records an outcome and returns how many unknown ones there have been in
// a row.
func (w *watch) count(dest destination, unknown bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !unknown {
		delete(w.unknown, dest)
		return 0
	}
	if w.unknown == nil || len(w.unknown) >= mostWatched {
		w.unknown = map[destination]int{}
	}
	w.unknown[dest]++
	return w.unknown[dest]
}
