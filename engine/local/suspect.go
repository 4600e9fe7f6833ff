package local

import (
	"sync"
	"time"
)

// suspectAfter is from how many lost claims on a step may be what kills its workers.
const suspectAfter = 5

// suspects are the steps that may be what kills its workers which an engine has in hand: while it has one it claims no second one, which would lose as
// many claims and fail as the one that is to blame does. What is no suspect goes on beside it. The zero value is none; any number of goroutines may use it.
type suspects struct {
	mu    sync.Mutex
	until map[*item]time.Time // guarded by mu: how long their leases last; one that was lost before it began never says that it is over
}

// none reports whether there is none.
func (s *suspects) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for it, until := range s.until {
		if time.Now().Before(until) {
			return false
		}
		delete(s.until, it)
	}
	return true
}

// took notes what was claimed, until when.
func (s *suspects) took(claimed []*item, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range claimed {
		if it.lost < suspectAfter || it.verdict != "" {
			continue
		}
		if s.until == nil {
			s.until = map[*item]time.Time{}
		}
		s.until[it] = until
	}
}

// kept notes until when it is claimed now.
func (s *suspects) kept(it *item, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.until[it]; ok {
		s.until[it] = until
	}
}

// left notes that it is over.
func (s *suspects) left(it *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, it)
}
