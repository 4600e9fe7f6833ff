package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/held"
	"github.com/deedhq/deed/internal/sqlfile"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run"
)

// Options configures an [Engine]. The zero value works, and does steps that need no handler.
type Options struct {
	// Handlers do steps of kind go, or are functions. A step whose handler no engine has waits.
	Handlers []Handler
	// AllowHosts are hosts, addresses and ranges that steps of kind http may call although they are not on the
	// public Internet, as of webhooks. Default: none.
	AllowHosts []string
	// Secrets resolves references of steps of kind go ([run.Secret]) and http, and of functions. Default: such a step fails
	// (SECRET_UNRESOLVED), and a function with secrets is refused.
	Secrets run.Secrets
	// Artifacts keeps what steps put ([run.Put]). Default: none, and such a step fails.
	Artifacts run.ArtifactStore
	// ArtifactRetention is for how long an artifact is kept, by its kind; that of "" is for kinds that it does not name.
	// Default: for ever.
	ArtifactRetention map[string]time.Duration
	// StateStore is for how long writes of events are waited for, and what becomes of those that take longer (R14).
	StateStore StateStore
	// Journal is a file of this process's own, of at most 64 MiB, for announcements that the database did not take within
	// the budget. They are told every second, and by the next process that has the file. Default: none, and they wait in memory.
	Journal string
	// Concurrency is how many steps are done at once. Default 16.
	Concurrency int
	// Lease is for how long a step is this engine's unless it is renewed, which it is at a third of it. From 1s. Default 30s.
	Lease time.Duration
	// Timeout bounds an attempt of a step that says nothing of its own. Default 15m.
	Timeout time.Duration
	// PollInterval is how often an engine with nothing to do looks for steps, half as much more or less;
	// [Engine.Wake] makes it look at once. Default 250ms.
	PollInterval time.Duration
	// Deadline bounds each exchange with the database. Default 10s.
	Deadline time.Duration
	// Grace is how long a stop waits for steps before it cancels them. Default 20s.
	Grace time.Duration
	// OnNewCluster says what to do on another cluster than the installation's, or in another
	// environment. Default: [deed.Hold]: a copy does nothing.
	OnNewCluster deed.OnNewCluster
	// Environment is where this process runs, as in [deed.Options].
	Environment string
	// Worker names this process in claims. Default host:pid.
	Worker string
	// Logger receives warnings and what failed. Default: discard.
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	o.Concurrency = cmp.Or(o.Concurrency, 16)
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 15*time.Minute)
	o.PollInterval = cmp.Or(o.PollInterval, 250*time.Millisecond)
	o.Deadline = cmp.Or(o.Deadline, 10*time.Second)
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	o.OnNewCluster = cmp.Or(o.OnNewCluster, deed.Hold)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Worker == "" {
		host, _ := os.Hostname()
		o.Worker = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	errs := []error{o.OnNewCluster.Check(o.Environment)}
	var bad error
	o.StateStore, bad = o.StateStore.withDefaults()
	errs = append(errs, bad)
	between := func(name string, d, low, high time.Duration) {
		if d < low || d > high {
			errs = append(errs, fmt.Errorf("option %s %s is not from %s to %s", name, d, low, high))
		}
	}
	between("Lease", o.Lease, time.Second, 24*time.Hour)
	between("Timeout", o.Timeout, time.Millisecond, 30*24*time.Hour)
	between("PollInterval", o.PollInterval, time.Millisecond, time.Hour)
	between("Deadline", o.Deadline, 100*time.Millisecond, time.Hour)
	between("Grace", o.Grace, time.Millisecond, time.Hour)
	for kind, keep := range o.ArtifactRetention {
		if keep < 0 {
			errs = append(errs, fmt.Errorf("option ArtifactRetention: %s of kind %q is below 0", keep, kind))
		}
	}
	if o.Concurrency < 1 || o.Concurrency > 1000 {
		errs = append(errs, fmt.Errorf("option Concurrency %d is not from 1 to 1000", o.Concurrency))
	}
	if len(o.Worker) > 200 {
		errs = append(errs, errors.New("option Worker has over 200 characters"))
	}
	return o, errors.Join(errs...)
}

// Engine does steps of runs; see the package's documentation.
type Engine struct {
	pool      *pgxpool.Pool
	opts      Options
	gate      *held.Gate
	handlers  map[string]Handler
	queues    []string
	functions [][]byte // their plans
	instance  string
	woken     chan struct{} // holds one
	intake    work.Intake[*item]
	suspects  suspects
	slow      chan *item // those that run for a while, to be announced
	inner     *gatherer  // of what inner steps have come to
	plans     plans
	client    *http.Transport
	once      *http.Transport // of steps at most once
	after     string          // the tenant that was served last; of work.Run's one goroutine that exchanges
	ran       atomic.Bool

	done, failed, skipped, lost, released, expired atomic.Int64
	journaled, replayed, journalErrors             atomic.Int64
}

// New makes one, looks whether its statements fit the installed schema, and registers functions, over one connection at a time. pool's login holds deed_worker.
// Errors: [deed.Conflict] for a version of a function that was registered with another [Policy].
func New(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Engine, error) {
	const op = "new engine"
	opts, err := opts.withDefaults()
	e := &Engine{
		pool: pool, opts: opts, handlers: map[string]Handler{}, queues: []string{"deed"}, woken: make(chan struct{}, 1), slow: make(chan *item, 1000),
		instance: uuid.New().String(),
	}
	e.inner = newGatherer(e.recordPooled)
	for _, h := range opts.Handlers {
		if _, twice := e.handlers[h.name]; twice || h.do == nil || h.name == "" {
			err = errors.Join(err, fmt.Errorf("handler %q has no name or no function, or is there twice", h.name))
		}
		p, bad := h.plan()
		if err = errors.Join(err, bad); p != nil {
			e.functions = append(e.functions, p.Body())
			if len(h.policy.secrets()) > 0 && opts.Secrets == nil {
				err = errors.Join(err, fmt.Errorf("function %q has secrets, and there is nothing to resolve them with: option Secrets", h.name))
			}
		}
		e.handlers[h.name] = h
		e.queues = append(e.queues, "go:"+h.name)
	}
	var bad error
	e.client, bad = newClient(opts.AllowHosts)
	if err = errors.Join(err, bad, checkJournal(opts.Journal)); err != nil {
		return nil, &deed.Error{Op: op, Code: deed.Invalid, Err: err}
	}
	e.once = oneEach(e.client)
	err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		return errors.Join(sqlfile.Check(ctx, conn.Conn(), query), sqlfile.Check(ctx, conn.Conn(), codeQuery))
	})
	if err == nil {
		err = e.register(ctx)
	}
	if err != nil {
		return nil, deed.WrapError(op, err)
	}
	e.gate = &held.Gate{
		Pool: pool, What: "runs", OnNewCluster: string(opts.OnNewCluster), Environment: opts.Environment,
		Logger: opts.Logger, Deadline: opts.Deadline, Passing: sqlstate.Passing,
	}
	return e, nil
}

// Wake makes the engine look for steps now, as after a run was started in this process. It never blocks.
func (e *Engine) Wake() {
	select {
	case e.woken <- struct{}{}:
	default:
	}
}

// Stats are counters of an [Engine] since it was made.
type Stats struct {
	Completed int64
	Failed    int64 // attempts
	Skipped   int64 // by their own condition, or their code
	Released  int64 // given back, to be begun again
	Lost      int64 // outcomes that were not recorded: the claim had gone to another
	Expired   int64 // outcomes that could not be recorded while their lease lasted

	Journaled     int64 // announcements that went to [Options.Journal]
	Replayed      int64 // of those, and of what was in it before, that are settled
	JournalErrors int64 // times that it could not be opened or written, and lines of it that were not what was written
}

// Stats returns e's counters.
func (e *Engine) Stats() Stats {
	return Stats{
		e.done.Load(), e.failed.Load(), e.skipped.Load(), e.released.Load(), e.lost.Load(), e.expired.Load(),
		e.journaled.Load(), e.replayed.Load(), e.journalErrors.Load(),
	}
}

// Run does steps until ctx ends. It blocks. A stop begins nothing more and waits for what is being done, and past
// [Options.Grace] cancels it; what was cut short is begun again by who claims it next. While the database is away it waits, and
// on another cluster than the installation's for admin.Client.Adopt, unless it is to go on. It is called once.
func (e *Engine) Run(ctx context.Context) error {
	if !e.ran.CompareAndSwap(false, true) {
		return errors.New("deed: an Engine's Run is called once")
	}
	if err := e.gate.Wait(ctx, func(error) {}, nil); err != nil || ctx.Err() != nil {
		return deed.WrapError("run engine", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	announcing, silent := context.WithCancel(context.WithoutCancel(ctx))
	var beside sync.WaitGroup
	beside.Go(func() { e.gate.Watch(ctx, e.pool, end) })
	beside.Go(func() { e.announcer(announcing) })
	beside.Go(func() { e.waker(ctx) })
	beside.Go(func() { e.serving(ctx) })
	beside.Go(func() { e.expiring(ctx) })
	for range recorders {
		beside.Go(func() { e.inner.run(announcing) })
	}
	err := work.Run(ctx, e, work.Options{
		Concurrency: e.opts.Concurrency, Batch: max(100, e.opts.Concurrency), Ahead: -1, // a step may take hours
		Lease: e.opts.Lease, Deadline: e.opts.Deadline, Grace: e.opts.Grace,
		Wake: e.woken, Logger: e.opts.Logger,
	})
	held := heldBy(ctx)
	end(nil)
	close(e.inner.silent)
	silent()
	beside.Wait()
	e.client.CloseIdleConnections()
	if err = errors.Join(err, held); err != nil {
		return fmt.Errorf("deed: run engine: %w", err)
	}
	return nil
}

// heldBy is why ctx has ended, if that is another cluster.
func heldBy(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, held.ErrHeld) {
		return cause
	}
	return nil
}
