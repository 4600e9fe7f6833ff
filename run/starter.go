package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/runstep"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// StarterOptions configures a [Starter]. The zero value works.
type StarterOptions struct {
	// Statements is how many start runs at a time, each on a connection of the pool; on at most four others requests are
	// tried alone. More make less of one another: what does not wait for one goes with fewer. Default 1.
	Statements int

	// Batch is the most runs that one statement starts, at most 1,000. Default 200.
	Batch int

	// Engine is one of this process and of the same database, a *local.Engine, that does what is started: a run's first step is claimed for it by the statement that starts the run, which is a
	// commit and a wait less for each, while it has room and no more waits for it than it had room for. It is woken for the rest. The pool's login then holds deed_worker, too.
	// Default: none, and engines find what is started.
	Engine Engine

	// Deadline is how long a statement may take; then each of its requests is tried alone, for as long once more. Default 10s.
	Deadline time.Duration
}

// Engine does steps of runs: *local.Engine is one, and only engines of this module are.
type Engine interface {
	// Beside is what a [Starter] knows of it.
	Beside() runstep.Engine
}

func (o StarterOptions) withDefaults(connections int) (StarterOptions, error) {
	o.Statements = cmp.Or(o.Statements, 1)
	o.Batch = cmp.Or(o.Batch, 200)
	o.Deadline = cmp.Or(o.Deadline, 10*time.Second)
	var errs []error
	if o.Statements < 0 {
		errs = append(errs, fmt.Errorf("statements %d is negative", o.Statements))
	} else if o.Statements >= connections {
		errs = append(errs, fmt.Errorf("statements %d: the pool needs a connection for each and one to wait with, and has %d", o.Statements, connections))
	}
	if o.Batch < 0 || o.Batch > 1000 {
		errs = append(errs, fmt.Errorf("batch %d: 1 to 1,000 are possible", o.Batch))
	}
	if o.Deadline < 0 {
		errs = append(errs, fmt.Errorf("deadline %s is negative", o.Deadline))
	}
	return o, errors.Join(errs...)
}

// Starter starts runs that many goroutines ask for, each in a transaction of its own as its caller sees it: those
// that wait at a time go in one statement and one commit, which costs each a small part of what a transaction
// does. For callers who have no transaction that the run belongs to; who has one calls [Start] in it. It may be used by any number
// of goroutines while [Starter.Run] runs.
type Starter struct {
	pool    *pgxpool.Pool
	opts    StarterOptions
	engine  *runstep.Engine // nil: none
	asked   chan *request
	callers atomic.Int64  // who wait for an answer
	taking  atomic.Bool   // engine takes what is started, lately
	alone   chan struct{} // taken by who starts one alone
	stopped chan struct{}
	once    sync.Once
	do      func(ctx context.Context, list []*request) ([]Started, error) // starts list in one statement
}

// request is one whose caller waits.
type request struct {
	args   []any // texts, or nil
	bytes  int   // of all of them
	answer chan answered
}

// answered is what a statement of many said of a request; alone: it said nothing, and its caller tries it itself.
type answered struct {
	started Started
	err     error
	alone   bool
}

// NewStarter makes one, which starts runs on connections of pool: at least two. Its login is one that may call [Start]. An error
// names what is wrong with opts.
func NewStarter(pool *pgxpool.Pool, opts StarterOptions) (*Starter, error) {
	connections := int(pool.Config().MaxConns)
	opts, err := opts.withDefaults(connections)
	if err != nil {
		return nil, invalidf("new starter", "%w", err)
	}
	s := &Starter{
		pool: pool, opts: opts, asked: make(chan *request),
		alone: make(chan struct{}, min(4, connections-opts.Statements)), stopped: make(chan struct{}),
	}
	if opts.Engine != nil {
		engine := opts.Engine.Beside()
		s.engine = &engine
	}
	s.do = s.statement
	return s, nil
}

// Start is [Start] in a transaction of its own, which has committed when it returns. The tenant is the one that
// the pool's sessions have set. Errors are those of [Start], and nobody else's. Where the answer of a statement was lost the
// request is asked again, and its run may then not be New, though nobody else has asked for it. When it returns because ctx has ended, or with
// an error of the connection, the run may be started or not; to ask again tells.
func (s *Starter) Start(ctx context.Context, req Request) (Started, error) {
	return s.start(ctx, nil, req)
}

// StartFor is [Starter.Start] for a tenant that the pool's sessions have not set, for logins that cross tenants.
func (s *Starter) StartFor(ctx context.Context, owner tenant.ID, req Request) (Started, error) {
	return s.start(ctx, owner.String(), req)
}

func (s *Starter) start(ctx context.Context, owner any, req Request) (Started, error) {
	args, err := startArgs(owner, req)
	if err != nil {
		return Started{}, err
	}
	a := &request{args: args, answer: make(chan answered, 1)}
	for _, arg := range args {
		if text, ok := arg.(string); ok {
			a.bytes += len(text)
		}
	}
	said := s.together(ctx, a)
	if !said.alone {
		return said.started, said.err
	}
	for n := 1; ; n++ {
		started, err := s.startAlone(ctx, owner, req)
		if !sqlstate.Locked(err) {
			return started, err
		}
		// Whoever has it may keep it for long: without the room that all have who are tried alone.
		if !work.Sleep(ctx, work.Backoff(n, 50*time.Millisecond, 2*time.Second)) {
			return Started{}, fmt.Errorf("deed: %s: somebody else is starting it: %w; the run may have been started", opStart, context.Cause(ctx))
		}
	}
}

// together has a started with those that others ask for.
func (s *Starter) together(ctx context.Context, a *request) answered {
	s.callers.Add(1)
	defer s.callers.Add(-1)
	select {
	case s.asked <- a:
	case <-s.stopped:
		return answered{err: errStarterStopped}
	case <-ctx.Done():
		return answered{err: fmt.Errorf("deed: %s: %w", opStart, context.Cause(ctx))}
	}
	select {
	case said := <-a.answer:
		return said
	case <-ctx.Done():
		return answered{err: fmt.Errorf("deed: %s: %w; the run may have been started", opStart, context.Cause(ctx))}
	}
}

// startAlone starts a run in a transaction of its own. A request that somebody else is starting it waits for no longer than
// a statement of many does.
func (s *Starter) startAlone(ctx context.Context, owner any, req Request) (started Started, err error) {
	select {
	case s.alone <- struct{}{}:
		defer func() { <-s.alone }()
	case <-ctx.Done():
		return Started{}, fmt.Errorf("deed: %s: %w; the run may have been started", opStart, context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Deadline)
	defer cancel()
	var refused error // it says already what was attempted
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local lock_timeout = '200ms'`); err != nil {
			return err
		}
		crash.Point("starting alone")
		started, refused = start(ctx, tx, owner, req)
		crash.Point("started alone")
		return refused
	})
	crash.Point("committed alone")
	switch {
	case refused != nil:
		return Started{}, refused
	case err != nil:
		return Started{}, wrap(opStart, err)
	}
	if s.engine != nil {
		s.engine.Wake()
	}
	return started, nil
}

var errStarterStopped = errors.New("deed: " + opStart + ": the Starter has stopped, and the run was not started")

// Run starts what is asked for until ctx ends. Statements that are under way then end first, within their deadline.
// It is called once.
func (s *Starter) Run(ctx context.Context) error {
	again := true
	s.once.Do(func() { again = false })
	if again {
		return errors.New("deed: a Starter's Run is called once")
	}
	var workers sync.WaitGroup
	for range s.opts.Statements {
		workers.Go(func() { s.work(ctx) })
	}
	<-ctx.Done()
	close(s.stopped)
	workers.Wait()
	return nil
}

// work starts what waits, all of it that there is at a time in one statement: the next ones gather while it is under way.
func (s *Starter) work(ctx context.Context) {
	var company work.Company
	for {
		var list []*request
		bytes := 0
		take := func(a *request) {
			list = append(list, a)
			bytes += a.bytes
		}
		select {
		case <-ctx.Done():
			return
		case a := <-s.asked:
			take(a)
		}
		until, enough := company.Awaited()
		for more := true; more && len(list) < s.most() && bytes < mostBytes; {
			select {
			case a := <-s.asked:
				take(a)
			default:
				if more = len(list) < min(enough, s.most()); more {
					select {
					case a := <-s.asked:
						take(a)
					case <-until:
						more = false
					case <-ctx.Done():
						more = false
					}
				}
			}
		}
		began := time.Now()
		// Not cut short when ctx ends: runs may be started by then.
		crash.Point("starting together")
		started, err := s.do(context.WithoutCancel(ctx), list)
		crash.Point("started together")
		for k, a := range list {
			crash.Point("answering")
			switch {
			case err == nil:
				a.answer <- answered{started: started[k]}
			case s.engine != nil && cannotClaim(err):
				a.answer <- answered{err: wrap(opStart, err)} // to each alone it would not be said
			default:
				a.answer <- answered{alone: true}
			}
		}
		company.Learn(len(list), time.Since(began))
	}
}

// cannotClaim reports whether the login may not do it, or the database has no such function yet.
func cannotClaim(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "42501" || pg.Code == "42883")
}

// most is how many go in a statement. Beside an engine that takes what is started it is half of those under way: while one half is started the ends of the other are recorded. If all went
// together, each of the two would wait for the other.
func (s *Starter) most() int {
	if s.engine == nil || !s.taking.Load() {
		return s.opts.Batch
	}
	return min(s.opts.Batch, max(8, (int(s.callers.Load())+s.engine.InHand()+1)/2))
}

// statement starts list, all of it or nothing.
func (s *Starter) statement(ctx context.Context, list []*request) ([]Started, error) {
	args := make([]any, len(list[0].args))
	for c := range args {
		column := make([]*string, len(list))
		for k, a := range list {
			if text, ok := a.args[c].(string); ok {
				column[k] = &text
			}
		}
		args[c] = column
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Deadline)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	var started []Started
	if claim := s.claim(len(list)); claim != nil {
		started, err = s.claiming(ctx, conn, claim, args)
	} else {
		started, err = s.leaving(ctx, conn, args)
	}
	if err == nil && len(started) != len(list) {
		err = fmt.Errorf("deed: %s: %d answers to %d requests", opStart, len(started), len(list))
	}
	return started, err
}

// claim is what the engine takes of what n requests start, if there is one. Whoever asks has a connection: room is kept meanwhile.
func (s *Starter) claim(n int) *runstep.Claim {
	if s.engine == nil {
		return nil
	}
	claim := s.engine.Claim(n)
	s.taking.Store(claim != nil)
	return claim
}

// leaving starts runs, and leaves their steps to whoever claims them.
func (s *Starter) leaving(ctx context.Context, conn *pgxpool.Conn, args []any) ([]Started, error) {
	defer conn.Release()
	rows, err := conn.Query(ctx, query.StartMany, args...)
	if err != nil {
		return nil, err
	}
	started, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Started])
	if err == nil && s.engine != nil {
		s.engine.Wake()
	}
	return started, err
}

// claiming starts runs, and has the engine take steps of them.
func (s *Starter) claiming(ctx context.Context, conn *pgxpool.Conn, claim *runstep.Claim, args []any) (started []Started, err error) {
	var steps []runstep.Claimed
	others := false // wait
	at := time.Now()
	rows, err := conn.Query(ctx, query.StartAndClaim, append(args, claim.Queues, claim.Worker, claim.Most, claim.Lease.Seconds())...)
	if err == nil {
		started, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Started, error) {
			run, step, waits, err := scanClaimed(row)
			if others = others || waits; step != nil {
				steps = append(steps, *step)
			}
			return run, err
		})
	}
	conn.Release()
	if err != nil {
		steps = nil
	}
	claim.Take(steps, at)
	if others {
		s.engine.Wake()
	}
	return started, err
}

// scanClaimed reads what was started, its step that was claimed, if one was, and whether others of it wait.
func scanClaimed(row pgx.CollectableRow) (run Started, step *runstep.Claimed, waits bool, err error) {
	var c runstep.Claimed
	var place *int // null without a step, and so is the rest
	var claim *int64
	var owner, name, plan, version *string
	var once *bool
	err = row.Scan(&run.ID, &run.New, &run.Status, &waits, &place, &claim, &owner, &name, &once, &plan, &version, &c.Hash, (*[]byte)(&c.Input))
	if err != nil || place == nil {
		return run, nil, waits, err
	}
	c.Run, c.Place, c.Claim, c.Step, c.AtMostOnce, c.Plan, c.Version = run.ID, *place, *claim, *name, *once, *plan, *version
	c.Tenant, err = tenant.Parse(*owner)
	return run, &c, waits, err
}
