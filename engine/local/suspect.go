package local

import (
	"sync"
	"time"
)

// suspectAfter is from how many lost claims on a step may be what kills its workers.
const suspectAfter = 5

// suspect is the step that may be what kills its workers which an engine has in hand: it claims no second one, which would lose as many claims and fail
// as the one that is to blame does. What is no suspect goes on beside it. The zero value is none; any number of goroutines may use it.
type suspect struct {
	mu    sync.Mutex
	step  *item     // guarded by mu
	until time.Time // guarded by mu: how long its lease lasts; one that was lost before it began never says that it is over
}

// none reports whether there is none.
func (s *suspect) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.step == nil || time.Now().After(s.until)
}

// took notes what was claimed, until when.
func (s *suspect) took(claimed []*item, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range claimed {
		if it.lost >= suspectAfter && it.verdict == "" {
			s.step, s.until = it, until
		}
	}
}

// kept notes until when it is claimed now.
func (s *suspect) kept(it *item, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.step == it {
		s.until = until
	}
}

// left notes that it is over.
func (s *suspect) left(it *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.step == it {
		s.step = nil
	}
}
