package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/held"
	"github.com/deedhq/deed/internal/work"
)

// Run serves the ledger's providers until ctx ends: it attempts what is due,
// settles outcomes, and reconciles what is in doubt. Then it claims no more,
// waits for the calls under way up to the grace, and returns nil unless some
// had to be abandoned. It blocks. While the database is away it waits.
//
// On another cluster than the installation's it waits for admin.Client.Adopt
// ([Ledger.Held]), unless it is to go on; if the cluster comes to be another one
// while it runs, it ends within a second or so with an error.
func (l *Ledger) Run(ctx context.Context) error {
	// First of all: to register another account than the one that is served here
	// would stop those that may go on.
	if err := l.gate.Wait(ctx, func(error) {}, nil); err != nil {
		return deed.WrapError("run", err)
	}
	if ctx.Err() != nil {
		return nil
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if err := l.registerPatiently(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var running sync.WaitGroup
	errs := make([]error, 2*len(l.sources), 2*len(l.sources)+1)
	running.Go(func() { l.gate.Watch(ctx, l.pool, end) })
	for i, s := range l.sources {
		running.Go(func() { errs[2*i] = s.run(ctx) })
		running.Go(func() { errs[2*i+1] = s.reconcile(ctx) })
	}
	running.Go(func() { l.keepHouse(ctx) })
	<-ctx.Done()
	running.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, held.ErrHeld) {
		errs = append(errs, fmt.Errorf("deed: run: %w", cause))
	}
	return errors.Join(errs...)
}

// registerPatiently registers while the database is away, too.
func (l *Ledger) registerPatiently(ctx context.Context) error {
	for n := 1; ; n++ {
		err := l.Register(ctx)
		if err == nil || ctx.Err() != nil || !passing(err) {
			return err
		}
		l.opts.Logger.Warn("providers not registered; will try again", "error", err)
		if !work.Sleep(ctx, work.Backoff(n, 100*time.Millisecond, 5*time.Second)) {
			return ctx.Err()
		}
	}
}

// Register tells the database of the ledger's providers, their lanes and their
// limits, as [Ledger.Run] does first: from then on deliveries can be reserved
// for them. What runs with another type, account or sandbox under one of the names
// calls nobody any more: the log says what was replaced, [Ledger.Providers] who
// waits. Needs deed_worker.
func (l *Ledger) Register(ctx context.Context) error {
	for _, s := range l.sources {
		var lanes []string
		var rates, bursts []float64
		limits := s.opts.limits(s.caps)
		for _, lane := range slices.Sorted(maps.Keys(limits)) {
			burst := 0.0
			if lane == "" {
				burst = s.opts.Burst
			}
			lanes, rates, bursts = append(lanes, lane), append(rates, limits[lane]), append(bursts, burstOf(limits[lane], burst))
		}
		var window *float64
		if s.caps.Key == HasKey {
			w := s.caps.KeyWindow.Seconds()
			window = &w
		}
		channels, tenants := s.served()
		bounded, cancel := l.deadline(ctx)
		var changed bool
		var kind, account *string // as it was
		var sandbox *bool
		err := l.pool.QueryRow(bounded, query.RegisterProvider, s.name, s.caps.Kind, string(cmp.Or(s.caps.Lanes, LanePerDomain)), window, s.finder != nil,
			nonNil(lanes), nonNil(rates), nonNil(bursts), l.opts.Worker, s.caps.Account, s.opts.Sandbox != "", s.reports(), s.opts.VerifiedDomains, channels, tenants).Scan(&changed, &kind, &account, &sandbox)
		cancel()
		if err != nil {
			return deed.WrapError("register provider "+s.name, err)
		}
		if kind != nil && (*kind != s.caps.Kind || *account != s.caps.Account || *sandbox != (s.opts.Sandbox != "")) {
			s.log.Warn("provider registered otherwise than it was; who serves it as it was calls nobody until it is started again",
				"was_kind", *kind, "was_account", *account, "was_sandbox", *sandbox)
		}
		if changed {
			if s.opts.Sandbox != "" {
				l.tellRealCalls(ctx, s)
			}
			s.log.Info("provider registered", "kind", s.caps.Kind, "account", s.caps.Account, "sandbox", s.opts.Sandbox != "", "lanes", cmp.Or(s.caps.Lanes, LanePerDomain), "rate", limits[""], "limits", len(limits))
		}
	}
	return nil
}

// served are the channels that it carries, and the tenants whose deliveries alone it makes; nil: everybody's.
func (s *source) served() (channels, tenants []string) {
	for _, c := range s.caps.Channels {
		channels = append(channels, string(c))
	}
	for _, id := range s.opts.Tenants {
		tenants = append(tenants, id.String())
	}
	return channels, tenants
}

// reports are what the service tells of deliveries, and is kept; nil: it is not known.
func (s *source) reports() []string {
	if s.caps.Reports == nil {
		return nil
	}
	list := []string{}
	for _, said := range s.caps.Reports {
		if s.opts.Engagement || said != SaidOpened && said != SaidClicked {
			list = append(list, string(said))
		}
	}
	return list
}

// tellRealCalls says how many calls had begun when the sandbox was switched on.
func (l *Ledger) tellRealCalls(ctx context.Context, s *source) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var n int64
	err := l.pool.QueryRow(ctx, query.RealCalls, s.name).Scan(&n)
	if err != nil || n > 0 {
		s.log.Warn("the sandbox is on; calls that had begun before may still reach their recipients", "count", n, "error", err)
	}
}

func (s *source) run(ctx context.Context) error {
	// The writers end when no call can want them any more.
	writers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var writing sync.WaitGroup
	turn := newTurn()
	for range 2 {
		writing.Go(func() { s.write(writers, turn) })
	}
	s.hand.stopping = ctx.Done()
	err := work.Run(ctx, s, s.workOptions(s.hand.places))
	stop()
	writing.Wait()
	if err != nil {
		return fmt.Errorf("deed: deliveries of %s: %w", s.name, err)
	}
	return nil
}
