package inbound

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/held"
	"github.com/deedhq/deed/internal/sqlfile"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/schema"
)

// Receiver takes messages that people write to us, from platforms' requests
// ([Receiver.Handler]), and runs their executors ([Receiver.Run]). It may be used by
// several goroutines at once, and by any number of processes on one database.
type Receiver struct {
	pool    *pgxpool.Pool
	opts    Options
	gate    *held.Gate
	sources map[string]*source
	waiting waiting
	counts  counts

	running atomic.Bool                       // nothing holds it, and Run has not ended
	waits   atomic.Pointer[map[string]string] // which sources take nothing yet, and what they wait for; nil: it has not been looked
	settled atomic.Bool                       // what waits for a provider may do so for long
	ahead   atomic.Int64                      // nanoseconds by which the database's clock is ahead of this machine's
}

// Each source has places of its own: one that anybody fills leaves the others theirs.
const (
	mostRead    = 256 // requests being read and stored at once, shared evenly: each may have a body of a mebibyte; of larger ones the fewer
	leastRead   = 16  // of one source
	mostWaiting = 256 // requests of one source that wait for the outcomes of messages
	mostStoring = 2   // statements of one source that store messages, each of whom another one may have locked: the connections are all sources'
	storingOf   = 1   // of one sender, so that others who write to a source need not wait behind
)

// New checks opts and the installed schema; it starts nothing. Needs deed_worker.
// Errors: [deed.Invalid] and those of [schema.Check].
func New(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Receiver, error) {
	const op = "new receiver"
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, invalidf(op, "%w", err)
	}
	if _, err := schema.Check(ctx, pool); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, max(opts.Deadline, 10*time.Second))
	defer cancel()
	err = pool.AcquireFunc(bounded, func(conn *pgxpool.Conn) error { return sqlfile.Check(bounded, conn.Conn(), query) })
	if err != nil {
		return nil, deed.WrapError(op, err)
	}
	r := &Receiver{pool: pool, opts: opts, sources: map[string]*source{}}
	on := opts.OnNewCluster
	if len(opts.Sources) == 0 {
		on = deed.Continue
	}
	r.gate = &held.Gate{
		Pool: pool, What: "inbound messages", OnNewCluster: string(on), Environment: opts.Environment,
		Logger: opts.Logger, Deadline: opts.Deadline, Passing: passing,
	}
	for name, s := range opts.Sources {
		most := mostBodyOf(s.Source)
		r.sources[name] = &source{
			receiver: r, name: name, opts: s, mostBody: most, log: opts.Logger.With("source", name), woken: make(chan struct{}, 1),
			reading: make(chan struct{}, max(leastRead, mostRead*maxBody/len(opts.Sources)/int(most))), waiting: make(chan struct{}, mostWaiting),
			storing: work.NewRooms(mostStoring, storingOf),
		}
	}
	return r, nil
}

// Held says why [Receiver.Run] waits on a new cluster; empty: it does not.
func (r *Receiver) Held() string { return r.gate.Held() }

// Run runs the executors of what has been accepted until ctx ends: of this process's
// requests, and of what others have left over. Then it begins none, waits for those that
// run up to the grace, and returns nil unless some had to be abandoned. It blocks. While
// the database is away it waits.
//
// On another cluster than the installation's it waits for admin.Client.Adopt, unless it
// is to go on, and requests are answered by 503 meanwhile; if the cluster comes to be
// another one while it runs, it ends with an error.
func (r *Receiver) Run(ctx context.Context) error {
	if err := r.gate.Wait(ctx, func(error) {}, nil); err != nil {
		return deed.WrapError("run", err)
	}
	if ctx.Err() != nil {
		return nil
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.waits.Store(nil)
	var running sync.WaitGroup
	names := slices.Sorted(maps.Keys(r.sources))
	errs := make([]error, len(names), len(names)+1)
	begin := make(map[string]chan struct{}, len(names))
	running.Go(func() { r.gate.Watch(ctx, r.pool, end) })
	for i, name := range names {
		c := make(chan struct{})
		begin[name] = c
		running.Go(func() { errs[i] = r.sources[name].run(ctx, c) })
	}
	running.Go(func() { r.awaitProviders(ctx, begin) })
	running.Go(func() { r.keepHouse(ctx) })
	running.Go(func() { r.lookForWaiting(ctx) })
	r.running.Store(true)
	<-ctx.Done()
	r.running.Store(false)
	running.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, held.ErrHeld) {
		errs = append(errs, fmt.Errorf("deed: run: %w", cause))
	}
	return errors.Join(errs...)
}

const (
	housekeepEvery = time.Minute
	purgeBatch     = 1000
)

// keepHouse looks at the database's clock, and removes what is over.
func (r *Receiver) keepHouse(ctx context.Context) {
	for work.Sleep(ctx, housekeepEvery/2+rand.N(housekeepEvery)) {
		r.askTime(ctx)
		for n := purgeBatch; n >= purgeBatch && ctx.Err() == nil; {
			bounded, cancel := context.WithTimeout(ctx, r.opts.Deadline)
			err := r.pool.QueryRow(bounded, query.Purge, r.opts.Retention.Seconds(), purgeBatch, r.opts.Worker).Scan(&n)
			cancel()
			if err != nil && ctx.Err() == nil {
				r.opts.Logger.Warn("chore failed; will try again", "chore", "remove old channel messages", "error", err)
			}
			if err != nil {
				break
			}
		}
	}
}

// askTime finds out what time it is in the database: signatures are old by that.
func (r *Receiver) askTime(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Deadline)
	defer cancel()
	began := time.Now()
	var now time.Time
	if err := r.pool.QueryRow(ctx, query.Now).Scan(&now); err != nil {
		return // it is asked again; meanwhile it is as it was
	}
	r.ahead.Store(int64(now.Sub(began.Add(time.Since(began) / 2))))
}

func (r *Receiver) now() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }
