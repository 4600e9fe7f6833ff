package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit/seal"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/internal/held"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/otel"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/schema"
	"github.com/deedhq/deed/server"
	"github.com/deedhq/deed/server/metrics"
)

const defaultListen = "127.0.0.1:8420"

func newRelay(a *app) *cobra.Command {
	var address, public string
	var untilEmpty bool
	var outbox outboxSettings
	cmd := &cobra.Command{
		Use:   "relay --config FILE",
		Short: "Drain the topics of deed.yaml into their sinks, and make deliveries",
		Long: `Deliver the messages of the topics that deed.yaml names to their sinks. Any number of relays may run; they share the
work. With channels.outbox.enabled the relay also makes deliveries (e-mails, webhooks) through the providers that
deed.yaml names. With sources it takes what people write to us, at --public, and has it executed and answered. With runs
it keeps the snapshots of runs, and with runs.enabled it does those steps of plans that need no Go code: http, publish,
deliver and sleep. With campaigns.enabled it expands and ends jobs of campaigns.

SIGTERM or Ctrl-C stops it: it claims no more, lets running deliveries finish, and gives the rest back. A second signal
ends it at once.

With --until-empty it ends when everything is finished. It waits for retries, but not for dead messages, nor for messages
that are scheduled more than a minute ahead.

In a copy of the installation (on a new cluster, or in another environment) a relay with deliveries, webhooks, sources,
links, campaigns or steps of runs holds: it claims and sends nothing, says so in its log and at /readyz, and goes on
after deed adopt. With --until-empty it ends with exit code 3 if something is to be done.`,
		Example: `  deed relay --config deed.yaml
  deed relay --config deed.yaml --until-empty --listen ''`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := a.config()
			if err != nil {
				return err
			}
			if err := lacks(file); err != nil {
				return err
			}
			r := &relay{app: a, file: file, out: cmd.OutOrStdout(), untilEmpty: untilEmpty}
			if r.log, err = a.logger(cmd.ErrOrStderr()); err != nil {
				return err
			}
			if r.dispatcher, err = a.newDispatcher(cmd, &outbox, file, r.log); err != nil {
				return err
			}
			if r.onNewCluster, r.environment, err = a.newCluster(); err != nil {
				return err
			}
			if r.dispatcher != nil {
				defer closeProviders(r.dispatcher.opts.Providers)
				r.onNewCluster = cmp.Or(r.onNewCluster, deed.Hold)
			}
			if r.receiving, err = a.newReceiving(cmd, public, file, r.dispatcher != nil, r.log); err != nil {
				return err
			}
			if len(file.Topics) == 0 && r.dispatcher == nil && r.receiving == nil && !file.Runs.Project && !file.Campaigns.Enabled {
				return usagef("there is nothing to relay: no topics in the configuration (--config, DEED_CONFIG or ./deed.yaml), channels.outbox is not enabled, and there are no runs and no campaigns")
			}
			if r.url, err = a.database(); err != nil {
				return err
			}
			if r.listener, err = listen(cmd.Context(), listenAddress(cmd, address, file)); err != nil {
				return err
			}
			return r.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&address, "listen", defaultListen, "the address of /healthz, /readyz and /metrics; '' for none; also DEED_LISTEN")
	cmd.Flags().StringVar(&public, "public", "", "the address of /in/SOURCE and /events/PROVIDER, which platforms reach; '' for none; also DEED_PUBLIC and public.listen")
	cmd.Flags().BoolVar(&untilEmpty, "until-empty", false, "end when everything due is finished")
	outbox.add(cmd)
	return cmd
}

// relay is a process's subscriptions, its client and its health port.
type relay struct {
	app        *app
	file       *config.Config
	log        *slog.Logger
	out        io.Writer // for sinks that print
	url        string
	listener   net.Listener // of health and metrics; nil: none
	untilEmpty bool
	catchAll   deed.Sink   // of undeclared topics; nil: they are left alone
	dispatcher *dispatcher // nil: deliveries are left alone
	receiving  *receiving  // nil: inbound messages are left alone

	onNewCluster deed.OnNewCluster
	environment  string

	operator     *admin.Client                   // once the client is connected
	installation string                          // the database's; known then
	ledger       atomic.Pointer[delivery.Ledger] // nil: no provider is served, or not yet
	campaigns    *campaign.Worker                // nil: jobs of campaigns are left alone
	projector    *run.Projector                  // nil: snapshots of runs are left alone
	sealer       *seal.Sealer                    // nil: the audit log is not sealed here
	engine       *local.Engine                   // nil: steps of runs are left alone
	receiver     *inbound.Receiver               // nil: inbound messages are left alone
}

func (r *relay) run(ctx context.Context) error {
	// A reader of the output that goes away is no reason to drop claims.
	signal.Ignore(syscall.SIGPIPE)
	subs, closeSinks, err := r.subscriptions()
	if err != nil {
		return err
	}
	defer closeSinks()
	tracer, stopTracing, err := tracing(ctx, r.log)
	if err != nil {
		return err
	}
	defer stopTracing()
	if tracer != nil {
		for i := range subs {
			subs[i] = tracer.Subscription(subs[i])
		}
		r.trace(tracer)
	}
	worker := setting(r.app.worker, "DEED_WORKER", r.file.Worker, "")
	pool, err := openPool(ctx, r.url, worker)
	if err != nil {
		return err
	}
	defer pool.Close()
	if r.file.Runs.Project {
		r.projector = run.NewProjector(pool, run.ProjectorOptions{Logger: r.log, Retention: r.file.Runs.Retention})
		subs = append(subs, deed.Subscription{Topic: run.Topic, Name: run.Subscription, Sink: r.projector, From: deed.FromBeginning})
	}

	asked := context.AfterFunc(ctx, func() {
		r.log.Info("stopping; a second signal ends it at once")
	})
	defer asked()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var client atomic.Pointer[deed.Client]
	registry := newRegistry()
	served := r.serve(ctx, cancel, server.Handler(func(ctx context.Context) error {
		c := client.Load()
		if c == nil {
			return errors.New("the database has not been reached yet")
		}
		if err := c.Ready(ctx); err != nil {
			return err
		}
		return r.serving()
	}, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	c, err := r.connect(ctx, pool, deed.Options{
		Topics: topicsOf(r.file), Subscriptions: subs, Worker: worker, Logger: r.log,
		OnNewCluster: r.onNewCluster, Environment: r.environment,
	})
	if err == nil {
		err = r.checkTopics(ctx)
	}
	if err == nil && r.file.Audit.Sealed {
		r.sealer, err = newSealer(ctx, pool, r.file, seal.Options{Every: r.file.Audit.Every, Ready: c.Ready, Logger: r.log})
	}
	if err == nil && r.receiving != nil {
		var release func()
		if r.receiver, release, err = r.receiving.open(ctx, r.url); err == nil {
			defer release()
		}
	}
	if err == nil && r.file.Campaigns.Enabled {
		r.campaigns, err = campaign.NewWorker(ctx, pool, campaign.WorkerOptions{
			PollInterval: r.file.Campaigns.PollInterval, Heartbeat: r.file.Campaigns.Heartbeat, Retention: r.file.Campaigns.Retention, Worker: worker, Logger: r.log,
			OnNewCluster: r.onNewCluster, Environment: r.environment,
		})
	}
	if err == nil && r.file.Runs.Enabled {
		r.engine, err = local.New(ctx, pool, local.Options{
			Concurrency: r.file.Runs.Concurrency, Lease: r.file.Runs.Lease, AllowHosts: r.file.Runs.AllowHosts, Worker: worker, Logger: r.log,
			OnNewCluster: r.onNewCluster, Environment: r.environment, Secrets: runSecrets(r.file.Runs.Secrets),
			Journal: r.file.Runs.Journal, StateStore: stateStore(r.file.Runs.StateStore),
		})
	}
	if err == nil {
		client.Store(c)
		measured := r.measure(ctx, c, pool, registry)
		r.log.Info("relay starts", "subscriptions", len(subs))
		recorded := func() {}
		if r.file.Erasures != (config.Erasures{}) {
			recorded = r.beside(func() { r.recordErasures(ctx, pool, c.Ready) })
		}
		halted := func() {}
		if r.projector != nil {
			halted = r.beside(func() { _ = r.projector.Run(ctx) })
		}
		sealed := func() {}
		if r.sealer != nil {
			sealed = r.beside(func() { r.sealer.Run(ctx) })
		}
		err = r.drain(ctx, c)
		r.log.Info("relay has stopped")
		cancel()
		recorded()
		sealed()
		halted()
		measured()
	}
	cancel()
	return errors.Join(<-served, err)
}

// trace has spans around calls of providers and executors.
func (r *relay) trace(tracer *otel.Tracer) {
	if r.dispatcher != nil {
		for name, p := range r.dispatcher.opts.Providers {
			p.Provider = tracer.Provider(name, p.Provider)
			r.dispatcher.opts.Providers[name] = p
		}
	}
	if r.receiving != nil {
		for name, s := range r.receiving.opts.Sources {
			s.Executor = tracer.Executor(name, s.Executor)
			r.receiving.opts.Sources[name] = s
		}
	}
}

// eventCounts is what came of what providers' services said, and mail that came back. No
// provider has both.
func (r *relay) eventCounts() []delivery.EventCount {
	if r.receiving == nil {
		return nil
	}
	var list []delivery.EventCount
	if events := r.receiving.events.Load(); events != nil {
		list = events.Counts()
	}
	if bounces := r.receiving.bounces.Load(); bounces != nil {
		list = append(list, bounces.Counts()...)
	}
	return list
}

// beside runs something that ends with the relay; wait returns when it has.
func (r *relay) beside(do func()) (wait func()) {
	var running sync.WaitGroup
	running.Go(do)
	return running.Wait
}

// serving says which providers this process serves otherwise than they are
// registered.
func (r *relay) serving() error {
	if r.receiver != nil {
		if err := r.receiver.Ready(); err != nil {
			return err
		}
	}
	l := r.ledger.Load()
	if l == nil {
		return nil
	}
	if idle := l.Idle(); len(idle) > 0 {
		return fmt.Errorf("%s: another process has registered this with another type, account or sandbox; nobody is called for it here", strings.Join(idle, ", "))
	}
	return nil
}

// newRegistry has what every process tells of itself.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "deed_build_info", Help: "1, with the program's version.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// measure adds the client's metrics until ctx ends, if there is a port to read
// them from; wait returns when that is over.
func (r *relay) measure(ctx context.Context, c *deed.Client, pool *pgxpool.Pool, registry *prometheus.Registry) (wait func()) {
	var running sync.WaitGroup
	if r.listener != nil {
		ledger, err := delivery.New(ctx, pool, delivery.Options{Logger: r.log}) // serves no provider
		if err != nil {
			r.log.Warn("deliveries have no metrics", "error", err)
		}
		m := metrics.New(c, r.operator, metrics.Options{Doctor: pool, Ledger: ledger, Receiver: r.receiver, Events: r.eventCounts, Projector: r.projector, Steps: r.steps(), Runs: pool, Logger: r.log})
		registry.MustRegister(m)
		running.Go(func() { m.Run(ctx) })
	}
	return running.Wait
}

// listenAddress is where health and metrics are asked for: flag, environment,
// file, default.
func listenAddress(cmd *cobra.Command, flag string, file *config.Config) string {
	return config.Pick(flag, cmd.Flags().Changed("listen"), os.Getenv("DEED_LISTEN"), file.Listen, defaultListen)
}

// listen takes the address of the process's health and metrics, before anything else
// is done; "" is none, and nil.
func listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, usagef("--listen %q is not an address and a port such as %s", address, defaultListen)
	}
	l, err := server.Listen(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%w; give another --listen, or --listen '' for none", err)
	}
	return l, nil
}

// serve answers for the process's health and metrics until ctx ends; then the
// channel tells how that went. If it fails before, it ends the rest with
// cancel: a relay that cannot be watched does not run.
func (r *relay) serve(ctx context.Context, cancel func(), h http.Handler) <-chan error {
	served := make(chan error, 1)
	if r.listener == nil {
		served <- nil
		return served
	}
	r.log.Info("listening", "address", r.listener.Addr().String())
	go func() { // ends with ctx
		defer cancel()
		served <- server.Serve(ctx, r.listener, h)
	}()
	return served
}

// connect waits for a database that is away; what waiting cannot cure ends it.
func (r *relay) connect(ctx context.Context, pool *pgxpool.Pool, opts deed.Options) (*deed.Client, error) {
	for n := 1; ; n++ {
		c, err := deed.New(ctx, pool, opts)
		if err == nil {
			r.operator, err = admin.New(ctx, pool, admin.Options{})
		}
		if err == nil {
			var settings admin.Settings
			if settings, err = r.operator.Settings(ctx); err == nil {
				if n > 1 {
					r.log.Info("the database answers", "failures", n-1)
				}
				r.installation = settings.Installation
				return c, nil
			}
		}
		final := deed.CodeOf(err) != deed.Internal || errors.Is(err, schema.ErrNotInstalled) || errors.Is(err, schema.ErrBehind) ||
			errors.Is(err, schema.ErrAhead) || !sqlstate.Passing(err)
		if final {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("stopped before the database was reached: %w", err)
		}
		r.log.Warn("the database does not answer; will try again", "error", err)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("stopped before the database was reached: %w", err)
		case <-time.After(work.Backoff(n, 250*time.Millisecond, 10*time.Second)):
		}
	}
}

// drain runs the client until ctx ends or, if so asked, until it is empty; to
// be stopped before that is to be partly done.
func (r *relay) drain(ctx context.Context, c *deed.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	run, drained := c.Run, c.Drained
	if r.dispatcher != nil {
		l, release, err := r.dispatcher.open(ctx, r.url)
		if err != nil {
			return err
		}
		defer release()
		r.ledger.Store(l)
		if r.receiving != nil {
			r.receiving.events.Store(l.EventsHandler(r.dispatcher.readers))
			r.receiving.bounces.Store(l.Bounces(r.dispatcher.mails))
		}
		run = func(ctx context.Context) error { return both(ctx, c.Run, l.Run) }
		drained = func(ctx context.Context) (bool, error) {
			empty, err := c.Drained(ctx)
			if err != nil || !empty {
				return false, err
			}
			return l.Drained(ctx)
		}
	}
	if r.campaigns != nil {
		rest, restDrained := run, drained
		run = func(ctx context.Context) error { return both(ctx, rest, r.campaigns.Run) }
		drained = func(ctx context.Context) (bool, error) {
			// Jobs first: what one has owed by then the rest sees.
			if empty, err := r.campaigns.Drained(ctx); err != nil || !empty {
				return false, err
			}
			return restDrained(ctx)
		}
	}
	if r.engine != nil {
		rest, restDrained := run, drained
		run = func(ctx context.Context) error { return both(ctx, rest, r.engine.Run) }
		drained = func(ctx context.Context) (bool, error) {
			// Steps first and last: what they have owed by then the rest sees, and how that ended wakes others.
			for _, empty := range []func(context.Context) (bool, error){r.engine.Drained, restDrained, r.engine.Drained} {
				if yes, err := empty(ctx); err != nil || !yes {
					return false, err
				}
			}
			return true, nil
		}
	}
	if r.receiver != nil {
		rest := run
		run = func(ctx context.Context) error {
			return both(ctx, rest, func(ctx context.Context) error { return r.receiving.run(ctx, r.receiver) })
		}
	}
	go func() { done <- run(ctx) }()
	if !r.untilEmpty {
		return <-done
	}
	ask := time.NewTimer(0)
	defer ask.Stop()
	for failures := 0; ; {
		select {
		case err := <-done:
			if err == nil {
				err = &exitError{exitPartly, errors.New("stopped before all was finished")}
			}
			return err
		case <-ask.C:
		}
		empty, err := drained(ctx)
		why := c.Held()
		switch {
		case err != nil && ctx.Err() == nil:
			failures++
			r.log.Warn("asking whether all is finished failed; will try again", "error", err)
			ask.Reset(work.Backoff(failures, 100*time.Millisecond, 5*time.Second))
		case empty:
			cancel()
			return <-done
		case why != "": // which may last
			cancel()
			return errors.Join(&exitError{exitPartly, fmt.Errorf("%w (%s)", held.ErrHeld, why)}, <-done)
		default:
			failures = 0
			ask.Reset(100 * time.Millisecond)
		}
	}
}

// topicsOf are the topics of which the file says more than their subscriptions.
func topicsOf(file *config.Config) (topics []deed.Topic) {
	for _, t := range file.Topics {
		topic := deed.Topic{Name: t.Name, Mode: deed.Mode(t.Mode), Lanes: t.Lanes, Ordering: deed.Ordering(t.Ordering), Retention: t.Retention}
		if topic != (deed.Topic{Name: t.Name}) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// both runs two loops until ctx ends or one of them fails, and then the other
// ends too.
func both(ctx context.Context, a, b func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	second := make(chan error, 1)
	go func() {
		defer cancel()
		second <- b(ctx)
	}()
	err := a(ctx)
	cancel()
	return errors.Join(err, <-second)
}

// subscriptions makes one of each topic and sink, and the sinks.
func (r *relay) subscriptions() (subs []deed.Subscription, closeAll func(), err error) {
	sinks := map[string]deed.Sink{}
	closeAll = func() {
		for _, s := range sinks {
			if c, ok := s.(io.Closer); ok {
				_ = c.Close() // only idle connections are closed
			}
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.file.Sinks)) {
		s := r.file.Sinks[name]
		sink, err := newSink(s, r.out, func() string { return r.installation })
		if err != nil {
			errs = append(errs, ofFile(r.file, s.Line, "sinks."+name, err))
			continue
		}
		sinks[name] = sink
	}
	if errs != nil {
		closeAll()
		return nil, nil, &exitError{exitUsage, errors.Join(errs...)}
	}
	for _, t := range r.file.Topics {
		for _, name := range t.Sinks {
			subs = append(subs, deed.Subscription{
				Topic: t.Name, Name: name, Sink: sinks[name], From: deed.From(t.From), MaxAttempts: t.MaxAttempts,
				Lease: t.Lease, Backoff: t.Backoff, Concurrency: t.Concurrency, BatchSize: t.Batch,
			})
		}
	}
	if r.catchAll != nil {
		subs = append(subs, deed.Subscription{Name: "default", Sink: r.catchAll})
	}
	return subs, closeAll, nil
}
