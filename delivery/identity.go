package delivery

import (
	"math/rand/v2"
	"time"
)

// awayFor is for how long a provider is left alone whose name another ledger
// has registered otherwise, half as much more or less.
const awayFor = 15 * time.Second

// notOurs is told why the database lets this ledger not call a delivery.
func (s *source) notOurs(it *item, why string) {
	switch why {
	case "waits":
		s.logOf(&it.row).Info("delivery put off: the sandbox is on, and an earlier call of it may have been accepted")
		return
	case "foreign":
		s.logOf(&it.row).Warn("delivery put off: it was first called through another account, which this ledger does not serve", "account", s.caps.Account)
		return
	}
	s.mu.Lock()
	first := !time.Now().Before(s.away)
	if first {
		s.away = time.Now().Add(awayFor/2 + rand.N(awayFor))
	}
	s.mu.Unlock()
	if first {
		s.log.Error("another ledger has registered this provider with another type, account or sandbox; this one calls nobody until it is started again",
			"kind", s.caps.Kind, "account", s.caps.Account, "sandbox", s.opts.Sandbox != "")
	}
}

// replaced returns for how long nothing is to be claimed.
func (s *source) replaced() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, time.Until(s.away))
}
