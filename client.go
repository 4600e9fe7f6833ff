package deed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/held"
	"github.com/deedhq/deed/internal/sqlfile"
	"github.com/deedhq/deed/internal/upkeep"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/schema"
)

// Options configures a Client. The zero value works for a client that only
// publishes or inspects.
type Options struct {
	// Topics are declared before the subscriptions. A subscription's topic that
	// is not among them is a queue unless the database has it as a stream.
	Topics []Topic

	// Subscriptions are what this process drains.
	Subscriptions []Subscription

	// OnNewCluster says what to do on another cluster than the installation's.
	// Default: [Hold] if one of the sinks asks for it, as webhooks do
	// ([Holder]); else it goes on, and repeats what the original delivers.
	OnNewCluster OnNewCluster

	// Environment is where this process runs, such as production: give all that
	// share a database the same. The installation belongs to the one that is
	// named first, and a process of another holds unless OnNewCluster is
	// [Continue]: a copy of the volume shows by nothing else. At most 100
	// characters. Default: none, which is another one only for what is to [Hold].
	Environment string

	// Worker names this process in claims, receipts and logs, for people; at
	// most 200 characters. Default: the host's name and the process id.
	Worker string

	// Logger receives claims and deliveries (debug), retries (warn), and deaths
	// (error), with message id, topic, tenant and correlation id; never
	// payloads. Default: discard.
	Logger *slog.Logger

	// Deadline bounds every statement of the workers. Default 10s. Methods that
	// inspect and operate are bounded by their context.
	Deadline time.Duration

	// Grace is how long a stop lets running deliveries go on before it cancels
	// them. Default 20s.
	Grace time.Duration
}

// subscriptionName is also the schema's check.
var subscriptionName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

func (o Options) withDefaults() (Options, error) {
	host, _ := os.Hostname()
	o.Worker = cmp.Or(o.Worker, fmt.Sprintf("%s:%d", cmp.Or(host, "worker"), os.Getpid()))
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Deadline = cmp.Or(o.Deadline, 10*time.Second)
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	var errs []error
	if err := o.OnNewCluster.Check(o.Environment); err != nil {
		errs = append(errs, err)
	}
	if len(o.Worker) > 200 {
		errs = append(errs, errors.New("option Worker is over 200 characters"))
	}
	if o.Deadline < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("option Deadline %s is below 100ms", o.Deadline))
	}
	if o.Grace < 0 {
		errs = append(errs, fmt.Errorf("option Grace %s is negative", o.Grace))
	}
	declared := map[string]bool{}
	for _, t := range o.Topics {
		if err := t.Check(); err != nil {
			errs = append(errs, fmt.Errorf("topic %q: %w", errortext.Clip(t.Name), err))
		}
		if declared[t.Name] {
			errs = append(errs, fmt.Errorf("topic %q is given twice", errortext.Clip(t.Name)))
		}
		declared[t.Name] = true
	}
	subs := make([]Subscription, len(o.Subscriptions))
	seen := map[string]bool{}
	for i, s := range o.Subscriptions {
		var err error
		if subs[i], err = s.withDefaults(); err != nil {
			errs = append(errs, fmt.Errorf("subscription %q of topic %q: %w", errortext.Clip(s.Name), errortext.Clip(s.Topic), err))
		}
		id := subs[i].Topic + "/" + subs[i].Name
		if seen[id] {
			errs = append(errs, fmt.Errorf("subscription %q of topic %q is given twice", errortext.Clip(subs[i].Name), errortext.Clip(s.Topic)))
		}
		seen[id] = true
	}
	o.Subscriptions = subs
	return o, errors.Join(errs...)
}

// functionTimeout is a function's unless its subscription has another.
const functionTimeout = 15 * time.Minute

func (s Subscription) withDefaults() (Subscription, error) {
	var errs []error
	group := 1
	switch sink := s.Sink.(type) {
	case nil:
		errs = append(errs, errors.New("it has no Sink"))
	case BatchSink:
		if group = sink.BatchSize(); group < 1 {
			errs = append(errs, fmt.Errorf("its sink's BatchSize is %d", group))
			group = 1
		}
	}
	s.Name = cmp.Or(s.Name, "handler")
	s.Concurrency = cmp.Or(s.Concurrency, 16)
	s.page = cmp.Or(s.BatchSize, 1000)
	s.BatchSize = cmp.Or(s.BatchSize, min(max(200, group*s.Concurrency), 10000))
	// Topic "" with the name "default" is the catch-all of undeclared topics.
	if !validTopic(s.Topic) && (s.Topic != "" || s.Name != "default") {
		errs = append(errs, errors.New("a topic has 1 to 200 characters of A-Z a-z 0-9 . _ : / -"))
	}
	if !subscriptionName.MatchString(s.Name) {
		errs = append(errs, errors.New("a name has 1 to 100 characters of A-Z a-z 0-9 . _ -"))
	}
	if s.From != "" && s.From != FromBeginning && s.From != FromNow {
		errs = append(errs, fmt.Errorf("option From %q is neither %q nor %q", errortext.Clip(string(s.From)), FromBeginning, FromNow))
	}
	if s.MaxAttempts < 0 || s.MaxAttempts > 1000 {
		errs = append(errs, fmt.Errorf("option MaxAttempts %d is not from 1 to 1000", s.MaxAttempts))
	}
	if s.Lease != 0 && (s.Lease < time.Second || s.Lease > 24*time.Hour) {
		errs = append(errs, fmt.Errorf("option Lease %s is not from 1s to 24h", s.Lease))
	}
	if s.Backoff != 0 && (s.Backoff < time.Millisecond || s.Backoff > time.Hour) {
		errs = append(errs, fmt.Errorf("option Backoff %s is not from 1ms to 1h", s.Backoff))
	}
	if s.Concurrency < 1 || s.Concurrency > 10000 {
		errs = append(errs, fmt.Errorf("option Concurrency %d is not from 1 to 10000", s.Concurrency))
	}
	if s.BatchSize < 1 || s.BatchSize > 10000 {
		errs = append(errs, fmt.Errorf("option BatchSize %d is not from 1 to 10000", s.BatchSize))
	}
	if _, ok := s.Sink.(SinkFunc); ok && s.Timeout == 0 {
		s.Timeout = functionTimeout
	}
	s.Timeout = max(s.Timeout, 0)
	return s, errors.Join(errs...)
}

// A Client drains subscriptions and inspects messages. Its methods may be
// called at the same time; Run once.
type Client struct {
	pool    *pgxpool.Pool
	workers *pgxpool.Pool  // while Run runs: what handlers hold of pool cannot starve it
	upkeep  *upkeep.Keeper // of workers
	opts    Options
	sources []*source
	wake    chan struct{}
	windows *windowFeed
	gate    *held.Gate

	mu      sync.Mutex
	running bool  // guarded by mu
	ready   error // guarded by mu: why Ready would fail
}

// New checks opts and the installed schema; it starts nothing and writes
// nothing. All problems of opts come in one error.
func New(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Client, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, &Error{Op: "new", Code: Invalid, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, max(opts.Deadline, 10*time.Second))
	defer cancel()
	newer, err := schema.Check(ctx, pool)
	if err != nil {
		return nil, WrapError("new", err)
	}
	if newer {
		opts.Logger.Warn("the database's schema is newer than this program, in a compatible way; upgrade the program soon")
	}
	err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		var recovery bool
		var session uint32
		if err := conn.QueryRow(ctx, `select pg_is_in_recovery(), pg_backend_pid()`).Scan(&recovery, &session); err != nil {
			return err
		}
		// A pooler makes up the process id that it greets with.
		if session != conn.Conn().PgConn().PID() && conn.Conn().Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			opts.Logger.Warn("the database is reached through a pooler; unless it keeps prepared statements, add default_query_exec_mode=exec to the connection string")
		}
		if recovery && len(opts.Subscriptions) > 0 {
			return errors.New("the server is a standby, where nothing can be claimed; connect to the primary")
		}
		return errors.Join(sqlfile.Check(ctx, conn.Conn(), query), upkeep.CheckStatements(ctx, conn.Conn()))
	})
	if err != nil {
		return nil, WrapError("new", err)
	}
	c := &Client{
		pool: pool, opts: opts, wake: make(chan struct{}, 1), windows: newWindowFeed(),
		ready: errors.New("the workers have not started"),
	}
	c.gate = newGate(c)
	for _, s := range opts.Subscriptions {
		c.sources = append(c.sources, newSource(c, s))
	}
	return c, nil
}

// Run declares the client's subscriptions, drains them until ctx ends, and
// returns when all work in hand is finished or given back; then it returns nil,
// unless deliveries ignored their cancellation or outcomes could not be
// recorded. It blocks. While the database is away it waits and tries again; it
// returns early only for what waiting cannot cure, such as a subscription that
// is stored with other settings. A subscription that is removed meanwhile is worked
// on no more; the others go on.
//
// On another cluster than the installation's it waits for admin.Client.Adopt, if it
// is to hold (see [Options]), and [Client.Ready] says so; if the cluster comes to
// be another one while it runs, it ends within a second or so with an error.
//
// Its workers have a pool of their own, with the caller's configuration and at
// most three connections a subscription and eight more (at least 12, at most
// 40): handlers that hold all connections of the caller's pool cannot starve
// them.
func (c *Client) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		return errors.New("deed: run: this client is running already")
	}
	c.running = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.running = false
		c.mu.Unlock()
	}()
	publishing := &upkeep.Keeper{Pool: c.pool, Deadline: c.opts.Deadline, Logger: c.opts.Logger} // goes on meanwhile
	err := c.gate.Wait(ctx, c.setReady, publishing.MakePartitions)
	if err != nil {
		return WrapError("run", err)
	}
	if ctx.Err() != nil {
		return nil
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	config := c.pool.Config().Copy()
	config.MinConns, config.MaxConns = 0, int32(min(max(12, 3*len(c.sources)+8), 40))
	boundFarewells(config.ConnConfig)
	config.AfterConnect = readCommitted(config.AfterConnect)
	workers, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("deed: run: %w", err)
	}
	defer workers.Close()
	c.workers = workers
	c.upkeep = &upkeep.Keeper{Pool: workers, Deadline: c.opts.Deadline, Logger: c.opts.Logger}
	if err := c.register(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}

	// These end when the loops have; leases are renewed while the loops stop.
	background, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var others, loops sync.WaitGroup
	others.Go(func() { c.gate.Watch(ctx, workers, end) })
	others.Go(func() { c.watch(ctx) })
	others.Go(func() { c.keepHouse(ctx) })
	others.Go(func() { c.upkeep.KeepRetention(ctx) })
	others.Go(func() { c.upkeep.FinishRemovals(ctx) })
	others.Go(func() { c.reportCalls(background) })
	others.Go(func() { c.keepLanes(background, ctx.Done()) })
	c.setReady(nil)
	errs := make([]error, len(c.sources))
	for i, s := range c.sources {
		loops.Go(func() {
			if err := s.run(ctx); err != nil {
				errs[i] = fmt.Errorf("deed: run: subscription %s: %w", s.label(), err)
			}
		})
	}
	if len(c.sources) == 0 {
		<-ctx.Done()
	}
	loops.Wait()
	c.setReady(errors.New("the workers have stopped"))
	if cause := context.Cause(ctx); errors.Is(cause, held.ErrHeld) {
		errs = append(errs, fmt.Errorf("deed: run: %w", cause))
	}
	err = errors.Join(errs...)
	cancel(err)
	others.Wait()
	return err
}

// Wake makes the client look for messages now. It may be called after a
// publisher's commit to save the rest of the poll interval; nothing depends on
// it.
func (c *Client) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Ready says whether the client can do its work: the database answers, the
// schema fits, there are partitions ahead, and the workers run.
func (c *Client) Ready(ctx context.Context) error {
	c.mu.Lock()
	err := c.ready
	c.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	if _, err := schema.Check(ctx, c.pool); err != nil {
		return err
	}
	ahead, err := upkeep.PartitionsAhead(ctx, c.pool)
	if err != nil {
		return fmt.Errorf("count partitions: %w", err)
	}
	if ahead < 1 {
		return errors.New("there is no partition of the log ahead of the one in use; see docs/operations.md")
	}
	return nil
}

func (c *Client) setReady(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = err
}

// Drained reports whether nothing of the client's subscriptions is unfinished
// but dead messages and those scheduled more than a minute ahead.
func (c *Client) Drained(ctx context.Context) (bool, error) {
	ids := make([]int, 0, len(c.sources))
	for _, s := range c.sources {
		id := s.id.Load()
		if id < 0 {
			return false, nil // not registered yet
		}
		ids = append(ids, int(id))
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	// In this order: what a stream has read may be put aside, never the reverse.
	var unfinished, behind bool
	if err := c.pool.QueryRow(ctx, query.Behind, ids).Scan(&behind); err != nil || behind {
		return false, WrapError("drained", err)
	}
	err := c.pool.QueryRow(ctx, query.Unfinished, ids, 60).Scan(&unfinished)
	return !unfinished && err == nil, WrapError("drained", err)
}

// register declares the subscriptions that are absent, and compares the others
// with what is stored. It is one transaction: a topic's first subscriptions are
// made together, so that each gets what was published before.
func (c *Client) register(ctx context.Context) error {
	for n := 1; ; n++ {
		err := c.tryRegister(ctx)
		if err == nil || ctx.Err() != nil || !passing(err) {
			return err
		}
		c.opts.Logger.Warn("subscriptions not registered; will try again", "error", err)
		if !work.Sleep(ctx, work.Backoff(n, 100*time.Millisecond, 5*time.Second)) {
			return ctx.Err()
		}
	}
}

func (c *Client) tryRegister(ctx context.Context) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	var differences []error
	err := pgx.BeginTxFunc(ctx, c.workers, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		for _, t := range c.opts.Topics {
			different, err := t.declare(ctx, tx)
			if err != nil {
				return err
			}
			differences = append(differences, different)
		}
		for _, s := range c.sources {
			different, err := s.register(ctx, tx)
			if err != nil {
				return err
			}
			differences = append(differences, different)
		}
		return errors.Join(differences...)
	})
	if err != nil {
		return err
	}
	for _, s := range c.sources {
		s.id.Store(s.registered)
	}
	return nil
}

// deadline is the context of one statement.
func (c *Client) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.opts.Deadline)
}
