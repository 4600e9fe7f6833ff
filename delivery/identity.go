package delivery

import (
	"context"
	"math/rand/v2"
	"time"
)

// awayFor is for how long a provider is left alone whose name another ledger
// has registered otherwise, half as much more or less.
const awayFor = 15 * time.Second

// Idle is a ledger that serves a provider's name otherwise than it is registered,
// and so calls nobody: the last one that has said so.
type Idle struct {
	Worker  string `json:"worker"`
	Kind    string `json:"kind"`
	Account string `json:"account,omitempty"`
	Sandbox bool   `json:"sandbox,omitempty"`
}

// Idle names the ledger's providers that another one has registered with another
// type, account or sandbox: it calls nobody for them until it is started again,
// or they are registered as it serves them.
func (l *Ledger) Idle() []string {
	var names []string
	for _, s := range l.sources {
		if s.idle.Load() {
			names = append(names, s.name)
		}
	}
	return names
}

// look asks whether the provider is registered as it is served here; that it is
// not is kept for others to see.
func (s *source) look(ctx context.Context) {
	ctx, cancel := s.ledger.deadline(ctx)
	defer cancel()
	var idle bool
	err := s.ledger.pool.QueryRow(ctx, query.NoteIdle, s.ledger.opts.Worker, s.name, s.caps.Kind, s.caps.Account, s.opts.Sandbox != "").Scan(&idle)
	if err != nil {
		s.log.Warn("not asked how the provider is registered; will try again", "error", err)
		return
	}
	s.idle.Store(idle)
}

// notOurs is told why the database lets this ledger not call a delivery.
func (s *source) notOurs(ctx context.Context, it *item, why string) {
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
		s.look(ctx)
	}
}

// replaced returns for how long nothing is to be claimed.
func (s *source) replaced() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, time.Until(s.away))
}
