package deed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/held"
	"github.com/deedhq/deed/internal/sqlfile"
	"github.com/deedhq/deed/internal/stream"
	"github.com/deedhq/deed/internal/upkeep"
	"github.com/deedhq/deed/schema"
)

// A Client drains subscriptions, and says how it gets on. Its methods may be
// called at the same time; Run once.
type Client struct {
	pool    *pgxpool.Pool
	opts    Options
	sources []*source
	wake    chan struct{}
	feed    *stream.Feed
	gate    *held.Gate
	removed removedTenants

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
	if err := checkDatabase(ctx, pool, opts); err != nil {
		return nil, WrapError("new", err)
	}
	c := &Client{
		pool: pool, opts: opts, wake: make(chan struct{}, 1), feed: stream.NewFeed(),
		ready: errors.New("the workers have not started"),
	}
	c.gate = newGate(c)
	for _, s := range opts.Subscriptions {
		made := newSource(opts, s, c.feed)
		made.dest.removed = &c.removed
		c.sources = append(c.sources, made)
	}
	return c, nil
}

// checkDatabase says whether a client can work there: the schema fits, as every
// statement does, and the server takes writes if there is something to drain.
func checkDatabase(ctx context.Context, pool *pgxpool.Pool, opts Options) error {
	ctx, cancel := context.WithTimeout(ctx, max(opts.Deadline, 10*time.Second))
	defer cancel()
	newer, err := schema.Check(ctx, pool)
	if err != nil {
		return err
	}
	if newer {
		opts.Logger.Warn("the database's schema is newer than this program, in a compatible way; upgrade the program soon")
	}
	return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		conn := c.Conn()
		var recovery bool
		var session uint32
		if err := conn.QueryRow(ctx, `select pg_is_in_recovery(), pg_backend_pid()`).Scan(&recovery, &session); err != nil {
			return err
		}
		// A pooler makes up the process id that it greets with.
		if session != conn.PgConn().PID() && conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			opts.Logger.Warn("the database is reached through a pooler; unless it keeps prepared statements, add default_query_exec_mode=exec to the connection string")
		}
		if recovery && len(opts.Subscriptions) > 0 {
			return errors.New("the server is a standby, where nothing can be claimed; connect to the primary")
		}
		return errors.Join(sqlfile.Check(ctx, conn, query), claim.CheckStatements(ctx, conn), stream.CheckStatements(ctx, conn), upkeep.CheckStatements(ctx, conn))
	})
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
	if !c.setRunning(true) {
		return errors.New("deed: run: this client is running already")
	}
	defer c.setRunning(false)
	publishing := &upkeep.Keeper{Pool: c.pool, Deadline: c.opts.Deadline, Logger: c.opts.Logger} // goes on meanwhile
	if err := c.gate.Wait(ctx, c.setReady, publishing.MakePartitions); err != nil {
		return WrapError("run", err)
	}
	if ctx.Err() != nil {
		return nil
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	workers, err := c.openWorkers(ctx)
	if err != nil {
		return fmt.Errorf("deed: run: %w", err)
	}
	defer workers.Close()
	if err := register(ctx, workers, c.opts, c.sources); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return c.work(ctx, end, workers)
}

// setRunning says that the client runs, or does not, and reports whether that is
// another thing than before.
func (c *Client) setRunning(running bool) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed = c.running != running
	c.running = running
	return changed
}

// openWorkers opens the workers' pool.
func (c *Client) openWorkers(ctx context.Context) (*pgxpool.Pool, error) {
	config := c.pool.Config().Copy()
	config.MinConns, config.MaxConns = 0, int32(min(max(12, 3*len(c.sources)+8), 40))
	boundCloses(config.ConnConfig)
	config.AfterConnect = readCommitted(config.AfterConnect)
	return pgxpool.NewWithConfig(ctx, config)
}

// work drains the subscriptions, which are registered, until ctx ends. Beside their
// loops runs what serves all of them; the cluster's watch ends ctx by end.
func (c *Client) work(ctx context.Context, end context.CancelCauseFunc, workers *pgxpool.Pool) error {
	keeper := &upkeep.Keeper{Pool: workers, Deadline: c.opts.Deadline, Logger: c.opts.Logger}
	process := &stream.Process{DB: workers, Name: c.opts.Worker, Deadline: c.opts.Deadline, Log: c.opts.Logger, Feed: c.feed}
	for _, s := range c.sources {
		s.DB, s.Upkeep = workers, keeper
		process.Readers = append(process.Readers, s.reader)
	}
	reporter := &reporter{db: workers, worker: c.opts.Worker, deadline: c.opts.Deadline, log: c.opts.Logger, sources: c.sources}

	// These end when the loops have; leases are renewed while the loops stop.
	background, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var others sync.WaitGroup
	others.Go(func() { reporter.run(background) })
	others.Go(func() { process.AssignLanes(background, ctx.Done()) })
	// And these as soon as it is to stop.
	others.Go(func() { c.gate.Watch(ctx, workers, end) })
	others.Go(func() { process.Watch(ctx, c.wake) })
	others.Go(func() { (&housekeeper{keeper, c.sources}).run(ctx) })
	others.Go(func() { keeper.KeepRetention(ctx) })
	others.Go(func() { keeper.FinishRemovals(ctx) })
	others.Go(func() { keeper.Erase(ctx, c.opts.Worker) })
	others.Go(func() { keeper.RemoveTenants(ctx, c.removed.set) })

	c.setReady(nil)
	err := c.drain(ctx)
	c.setReady(errors.New("the workers have stopped"))
	if cause := context.Cause(ctx); errors.Is(cause, held.ErrHeld) {
		err = errors.Join(err, fmt.Errorf("deed: run: %w", cause))
	}
	cancel(err) // with an error, as some of the work was abandoned, the lanes are not given back
	others.Wait()
	return err
}

// drain runs the subscriptions' loops until ctx ends and they have.
func (c *Client) drain(ctx context.Context) error {
	errs := make([]error, len(c.sources))
	var loops sync.WaitGroup
	for i, s := range c.sources {
		loops.Go(func() {
			if err := s.run(ctx); err != nil {
				errs[i] = fmt.Errorf("deed: run: subscription %s: %w", s.Label(), err)
			}
		})
	}
	if len(c.sources) == 0 {
		<-ctx.Done()
	}
	loops.Wait()
	return errors.Join(errs...)
}

// InTx is [InTx] on the client's pool, and has the client look at once for what was
// published: what it works on itself need not wait for the watcher's pause.
func (c *Client) InTx(ctx context.Context, opts pgx.TxOptions, fn func(tx *Tx) error) ([]Published, error) {
	of, err := inTx(ctx, c.pool, opts, fn)
	if len(of.published) > 0 || of.otherwise {
		c.Wake()
	}
	return of.published, err
}

// Wake makes the client look for messages now. It may be called after a
// publisher's commit to save the watcher's pause, less than half a second;
// nothing depends on it.
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
		return errors.New("there is no partition of the log, or of the logs of runs, ahead of the one in use; see docs/operations.md")
	}
	return nil
}

func (c *Client) setReady(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = err
}

// Stats returns a snapshot for each of the client's subscriptions, but for those
// that were removed.
func (c *Client) Stats() []Stats {
	list := make([]Stats, 0, len(c.sources))
	for _, s := range c.sources {
		if stats, ok := s.snapshot(); ok {
			list = append(list, stats)
		}
	}
	return list
}

// Held says why [Client.Run] waits on a new cluster; empty: it does not.
func (c *Client) Held() string { return c.gate.Held() }

// Drained reports whether nothing of the client's subscriptions is unfinished
// but dead messages and those scheduled more than a minute ahead.
func (c *Client) Drained(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	ids, err := c.ids(ctx)
	if err != nil || ids == nil {
		return false, WrapError("drained", err)
	}
	// In this order: what a stream has read may be put aside, never the reverse.
	var unfinished, behind bool
	if err := c.pool.QueryRow(ctx, query.Behind, ids).Scan(&behind); err != nil || behind {
		return false, WrapError("drained", err)
	}
	err = c.pool.QueryRow(ctx, query.Unfinished, ids, 60).Scan(&unfinished)
	return !unfinished && err == nil, WrapError("drained", err)
}

// ids are those of the client's subscriptions; nil: some are not registered yet. A
// client that is held registers none, and asks for those that there are.
func (c *Client) ids(ctx context.Context) ([]int, error) {
	ids := make([]int, 0, len(c.sources))
	var topics, names []string
	for _, s := range c.sources {
		switch id := s.id.Load(); {
		case id >= 0:
			ids = append(ids, int(id))
		case c.Held() == "":
			return nil, nil
		case s.Topic == "":
			ids = append(ids, 0)
		default:
			topics, names = append(topics, s.Topic), append(names, s.Name)
		}
	}
	if len(topics) == 0 {
		return ids, nil
	}
	rows, err := c.pool.Query(ctx, query.Stored, topics, names)
	if err != nil {
		return nil, err
	}
	stored, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil || len(stored) < len(topics) {
		return nil, err
	}
	return append(ids, stored...), nil
}

// newGate is what holds the client's process on another cluster.
func newGate(c *Client) *held.Gate {
	on := c.opts.OnNewCluster
	if on == "" {
		for _, s := range c.opts.Subscriptions {
			if h, ok := s.Sink.(Holder); ok && h.HoldOnNewCluster() {
				on = Hold
			}
		}
	}
	return &held.Gate{
		Pool: c.pool, What: "subscriptions", OnNewCluster: string(on), Environment: c.opts.Environment,
		Logger: c.opts.Logger, Deadline: c.opts.Deadline, Passing: passing,
	}
}
