// Package metrics shows a client's work and its installation's state to
// Prometheus.
//
//	m := metrics.New(client, operator, metrics.Options{})
//	registry.MustRegister(m)
//	go m.Run(ctx) // asks the database now and then; a scrape never does
//
// What begins with deed_process_ is this process's own; sum it over processes.
// The rest is the installation's, and every process of it tells the same.
package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/run"
)

// Options tune a Collector. The zero value works.
type Options struct {
	// Interval is how often the database is asked. Counting takes a twentieth
	// of the time at most, so with very many pending messages it is less often.
	// Default 15s.
	Interval time.Duration

	// Deadline bounds each question. Default 30s.
	Deadline time.Duration

	// Topics is how many topics, how many providers, and how many queues of steps have figures of their
	// own; the rest is summed up under the name "(others)". Default 500.
	Topics int

	// Doctor, if given, is examined once a minute by package doctor; its
	// findings are counted. A pool is one.
	Doctor doctor.DB

	// Ledger, if given, is asked how many deliveries wait, by provider, and
	// whether it is held.
	Ledger *delivery.Ledger

	// Receiver, if given, is asked what came of inbound messages here.
	Receiver *inbound.Receiver

	// Events, if given, is asked what came of what providers' services said here.
	Events func() []delivery.EventCount

	// Projector, if given, is asked what it has projected of runs here.
	Projector *run.Projector

	// Steps, if given, is asked what became of steps of runs here, and of announcements that the database did not take in time,
	// by outcome.
	Steps func() (steps, journal map[string]int64)

	// Runs, if given, is asked for steps of runs that no worker serves. A pool is one.
	Runs deed.DB

	// Logger receives what goes wrong. Default: discard.
	Logger *slog.Logger
}

// A Collector is a [prometheus.Collector]. Its methods may be called at the
// same time; Run once.
type Collector struct {
	client   *deed.Client
	operator *admin.Client
	opts     Options
	made     time.Time

	mu       sync.Mutex
	topics   []admin.TopicStatus      // guarded by mu
	horizon  admin.Horizon            // guarded by mu
	taken    time.Time                // guarded by mu: when topics and horizon were; zero: not yet
	running  string                   // guarded by mu: the horizon's oldest transaction
	since    time.Time                // guarded by mu: when running was first seen
	failures float64                  // guarded by mu
	waiting  []delivery.ProviderState // guarded by mu
	rates    []delivery.Rates         // guarded by mu
	unserved []run.UnservedQueue      // guarded by mu
	findings []doctor.Count           // guarded by mu

	examineAt time.Time // Run's
	rateAt    time.Time // Run's
}

// New returns a Collector of what c does, and of what operator says of the
// installation. Until Run has asked the database once, only the process's own
// figures are there, and for how long the others have not been.
func New(c *deed.Client, operator *admin.Client, opts Options) *Collector {
	opts.Interval = cmp.Or(opts.Interval, 15*time.Second)
	opts.Deadline = cmp.Or(opts.Deadline, 30*time.Second)
	opts.Topics = cmp.Or(opts.Topics, 500)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	return &Collector{client: c, operator: operator, opts: opts, made: time.Now()}
}

// Run asks the database for the installation's figures until ctx ends.
func (m *Collector) Run(ctx context.Context) {
	for ctx.Err() == nil {
		started := time.Now()
		if err := m.refresh(ctx); err != nil && ctx.Err() == nil {
			m.opts.Logger.Warn("metrics: the installation's figures are not renewed; will try again", "error", err)
		}
		wait := time.NewTimer(max(m.opts.Interval, 20*time.Since(started)))
		m.examine(ctx)
		m.rate(ctx)
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
	}
}

func (m *Collector) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.opts.Deadline)
	defer cancel()
	topics, err := m.operator.StatusOf(ctx, m.opts.Topics)
	var horizon admin.Horizon
	if err == nil {
		horizon, err = m.operator.Horizon(ctx)
	}
	var waiting []delivery.ProviderState
	if err == nil && m.opts.Ledger != nil {
		waiting, err = m.opts.Ledger.Providers(ctx)
	}
	var unserved []run.UnservedQueue
	if err == nil && m.opts.Runs != nil {
		unserved, err = run.Unserved(ctx, m.opts.Runs)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failures++
		return err
	}
	now := time.Now()
	if horizon.OldestRunning != m.running {
		m.running, m.since = horizon.OldestRunning, now
	}
	// A transaction that this login may not see is as old as we have watched it.
	if horizon.OldestRunning != "" {
		horizon.OldestAge = max(horizon.OldestAge, now.Sub(m.since))
	}
	m.topics, m.horizon, m.waiting, m.unserved, m.taken = topics, horizon, limitProviders(waiting, m.opts.Topics), limitQueues(unserved, m.opts.Topics), now
	return nil
}

// examine counts the doctor's findings, if it is time to.
func (m *Collector) examine(ctx context.Context) {
	if m.opts.Doctor == nil || time.Now().Before(m.examineAt) {
		return
	}
	m.examineAt = time.Now().Add(time.Minute)
	bounded, cancel := context.WithTimeout(ctx, m.opts.Deadline)
	defer cancel()
	findings, err := doctor.Examine(bounded, m.opts.Doctor, doctor.Options{})
	if err != nil && ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failures++ // what was known may be told for too long: nothing is, rather
		m.findings = nil
		m.opts.Logger.Warn("metrics: the doctor's findings are not renewed; will try again", "error", err)
		return
	}
	m.findings = findings.Counts()
}

// rate asks what providers took and what they have said of it, if it is time to.
func (m *Collector) rate(ctx context.Context) {
	if m.opts.Ledger == nil || time.Now().Before(m.rateAt) {
		return
	}
	m.rateAt = time.Now().Add(time.Minute)
	ctx, cancel := context.WithTimeout(ctx, m.opts.Deadline)
	defer cancel()
	rates, err := m.opts.Ledger.Rates(ctx, "", 0, delivery.RatesQuick)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.failures++ // what was known may be told for too long: nothing is, rather
	}
	m.rates = limitRates(rates, m.opts.Topics)
}

// limitRates sums up what is past the n providers that took most.
func limitRates(list []delivery.Rates, n int) []delivery.Rates {
	if len(list) <= n {
		return list
	}
	slices.SortStableFunc(list, func(a, b delivery.Rates) int { return cmp.Compare(b.Day.Accepted, a.Day.Accepted) })
	others := delivery.Rates{Provider: "(others)"}
	for _, r := range list[n:] {
		others.Hour, others.Day = others.Hour.Plus(r.Hour), others.Day.Plus(r.Day)
	}
	return append(list[:n:n], others)
}

// limitProviders sums up what is past the first n providers, those with most to
// do: their names are data.
func limitProviders(list []delivery.ProviderState, n int) []delivery.ProviderState {
	if len(list) <= n {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b delivery.ProviderState) int {
		return cmp.Compare(b.Queued+b.Sending+b.Dead, a.Queued+a.Sending+a.Dead)
	})
	others := delivery.ProviderState{Name: "(others)"}
	for _, p := range list[n:] {
		others.Queued, others.Due, others.Sending = others.Queued+p.Queued, others.Due+p.Due, others.Sending+p.Sending
		others.Deferred += p.Deferred
		if s := p.DeferredSince; s != nil && (others.DeferredSince == nil || s.Before(*others.DeferredSince)) {
			others.DeferredSince = s
		}
		others.InDoubt, others.Held, others.Dead = others.InDoubt+p.InDoubt, others.Held+p.Held, others.Dead+p.Dead
		others.Paused += p.Paused
		others.Pauses = append(others.Pauses, p.Pauses...)
	}
	return append(list[:n:n], others)
}

// limitQueues sums up what is past the first n queues: their names are data.
func limitQueues(list []run.UnservedQueue, n int) []run.UnservedQueue {
	if len(list) <= n {
		return list
	}
	others := run.UnservedQueue{Queue: "(others)"}
	for _, u := range list[n:] {
		others.Steps += u.Steps
	}
	return append(list[:n:n], others)
}

// Collect implements [prometheus.Collector].
func (m *Collector) Collect(out chan<- prometheus.Metric) {
	for _, s := range m.client.Stats() {
		collectProcess(out, s)
	}
	holding := 0.0
	if m.client.Held() != "" || m.opts.Ledger != nil && m.opts.Ledger.Held() != "" || m.opts.Receiver != nil && m.opts.Receiver.Held() != "" {
		holding = 1
	}
	if m.opts.Receiver != nil {
		for _, c := range m.opts.Receiver.Counts() {
			out <- prometheus.MustNewConstMetric(inboundCount, prometheus.CounterValue, float64(c.N), c.Source, c.Outcome)
		}
	}
	if m.opts.Events != nil {
		for _, c := range m.opts.Events() {
			out <- prometheus.MustNewConstMetric(eventCount, prometheus.CounterValue, float64(c.N), c.Provider, c.Outcome)
		}
	}
	if m.opts.Projector != nil {
		s := m.opts.Projector.Stats()
		out <- prometheus.MustNewConstMetric(runEvents, prometheus.CounterValue, float64(s.Events))
		out <- prometheus.MustNewConstMetric(runSnapshots, prometheus.CounterValue, float64(s.Snapshots))
		out <- prometheus.MustNewConstMetric(runGaps, prometheus.CounterValue, float64(s.Gaps))
	}
	if m.opts.Steps != nil {
		steps, journal := m.opts.Steps()
		for outcome, n := range steps {
			out <- prometheus.MustNewConstMetric(runSteps, prometheus.CounterValue, float64(n), outcome)
		}
		for outcome, n := range journal {
			out <- prometheus.MustNewConstMetric(runJournal, prometheus.CounterValue, float64(n), outcome)
		}
	}
	out <- prometheus.MustNewConstMetric(processHeld, prometheus.GaugeValue, holding)
	m.mu.Lock()
	defer m.mu.Unlock()
	out <- prometheus.MustNewConstMetric(refreshFailures, prometheus.CounterValue, m.failures)
	for _, f := range m.findings {
		out <- prometheus.MustNewConstMetric(doctorFindings, prometheus.GaugeValue, float64(f.N), f.Name, string(f.Level))
	}
	never := m.taken.IsZero()
	age := time.Since(m.made)
	if !never {
		age = time.Since(m.taken)
	}
	out <- prometheus.MustNewConstMetric(refreshAge, prometheus.GaugeValue, age.Seconds())
	if never {
		return
	}
	out <- prometheus.MustNewConstMetric(logPosition, prometheus.GaugeValue, float64(m.horizon.Position))
	out <- prometheus.MustNewConstMetric(partitionsAhead, prometheus.GaugeValue, float64(m.horizon.PartitionsAhead))
	out <- prometheus.MustNewConstMetric(oldestPartition, prometheus.GaugeValue, m.horizon.OldestPartition.Seconds())
	out <- prometheus.MustNewConstMetric(horizonAge, prometheus.GaugeValue, m.horizon.OldestAge.Seconds())
	for _, t := range m.topics {
		for _, s := range t.Subscriptions {
			collectStatus(out, t.Topic, s, age)
		}
	}
	for _, r := range m.rates {
		for window, t := range map[string]delivery.Taken{"hour": r.Hour, "day": r.Day} {
			for state, n := range map[string]int64{"accepted": t.Accepted, "delivered": t.Delivered, "bounced": t.Bounced, "complained": t.Complained} {
				out <- prometheus.MustNewConstMetric(providerTaken, prometheus.GaugeValue, float64(n), r.Provider, window, state)
			}
		}
	}
	for _, u := range m.unserved {
		out <- prometheus.MustNewConstMetric(unservedSteps, prometheus.GaugeValue, float64(u.Steps), u.Queue)
	}
	for _, p := range m.waiting {
		for state, n := range map[string]int64{"queued": p.Queued, "due": p.Due, "deferred": p.Deferred, "sending": p.Sending, "in_doubt": p.InDoubt, "held": p.Held, "dead": p.Dead} {
			out <- prometheus.MustNewConstMetric(deliveries, prometheus.GaugeValue, float64(n), p.Name, state)
		}
		deferred := 0.0
		if p.DeferredSince != nil {
			deferred = time.Since(*p.DeferredSince).Seconds()
		}
		out <- prometheus.MustNewConstMetric(providerDeferred, prometheus.GaugeValue, deferred, p.Name)
		out <- prometheus.MustNewConstMetric(providerPauses, prometheus.GaugeValue, float64(p.Paused), p.Name)
		paused := 0.0
		for _, pause := range p.Pauses {
			paused = max(paused, time.Since(pause.Since).Seconds())
		}
		out <- prometheus.MustNewConstMetric(providerPaused, prometheus.GaugeValue, paused, p.Name)
	}
}

func collectProcess(out chan<- prometheus.Metric, s deed.Stats) {
	for _, c := range []struct {
		desc  *prometheus.Desc
		value int64
	}{
		{claimed, s.Claimed},
		{attempts, s.Attempts},
		{delivered, s.Delivered},
		{failed, s.Failed},
		{died, s.Dead},
		{takenOver, s.TakenOver},
		{lostClaims, s.LostClaims},
		{staleFinishes, s.StaleFinishes},
	} {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(c.value), s.Topic, s.Subscription)
	}
	down := 0.0
	if s.SinkDown {
		down = 1
	}
	out <- prometheus.MustNewConstMetric(inFlight, prometheus.GaugeValue, float64(s.InFlight), s.Topic, s.Subscription)
	out <- prometheus.MustNewConstMetric(sinkDown, prometheus.GaugeValue, down, s.Topic, s.Subscription)
	out <- histogram(exchange, s.Claim, s.Topic, s.Subscription, "claim")
	out <- histogram(exchange, s.Finish, s.Topic, s.Subscription, "finish")
	out <- histogram(exchange, s.FinishAndClaim, s.Topic, s.Subscription, "finish+claim")
	out <- histogram(deliver, s.Deliver, s.Topic, s.Subscription)
}

func collectStatus(out chan<- prometheus.Metric, topic string, s admin.SubscriptionStatus, age time.Duration) {
	for state, n := range map[string]int64{"pending": s.Pending, "due": s.Due, "claimed": s.Claimed, "parked": s.Parked, "dead": s.Dead} {
		out <- prometheus.MustNewConstMetric(messages, prometheus.GaugeValue, float64(n), topic, s.Subscription, state)
	}
	if !s.AtLeast && !s.DeadAtLeast && !s.DeliveredAtLeast { // else the sum would stand still while it grows
		out <- prometheus.MustNewConstMetric(published, prometheus.GaugeValue, float64(s.Pending+s.Dead+s.Delivered), topic, s.Subscription)
	}
	if s.Lanes > 0 || s.Lag > 0 {
		collectStream(out, topic, s)
	}
	out <- prometheus.MustNewConstMetric(finished, prometheus.GaugeValue, float64(s.Delivered), topic, s.Subscription)
	oldest := time.Duration(s.OldestDue)
	if s.Due > 0 {
		oldest += age
	}
	out <- prometheus.MustNewConstMetric(oldestDue, prometheus.GaugeValue, oldest.Seconds(), topic, s.Subscription)
	var running time.Duration
	if s.OldestCall != nil {
		running = time.Duration(s.OldestCall.Age) + age
	}
	out <- prometheus.MustNewConstMetric(oldestCall, prometheus.GaugeValue, running.Seconds(), topic, s.Subscription)
	var paused time.Duration
	if s.Pause != nil {
		paused = time.Duration(s.Pause.Age) + age
	}
	out <- prometheus.MustNewConstMetric(sinkPaused, prometheus.GaugeValue, paused.Seconds(), topic, s.Subscription)
}

func collectStream(out chan<- prometheus.Metric, topic string, s admin.SubscriptionStatus) {
	for _, g := range []struct {
		desc  *prometheus.Desc
		value int64
	}{
		{streamLag, s.Lag},
		{blockedKeys, s.BlockedKeys},
		{lanes, s.Lanes},
		{lanesHeld, s.LanesHeld},
	} {
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value), topic, s.Subscription)
	}
}

func histogram(desc *prometheus.Desc, h deed.Histogram, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.Bounds))
	var count uint64
	for i, n := range h.Counts {
		count += n
		if i < len(h.Bounds) {
			buckets[h.Bounds[i]] = count
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, h.Sum, buckets, labels...)
}
