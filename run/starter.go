package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/crash"
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

	// Deadline is how long a statement may take; then each of its requests is tried alone, for as long once more. Default 10s.
	Deadline time.Duration
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
	asked   chan *request
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
	select {
	case s.asked <- a:
	case <-s.stopped:
		return Started{}, errStarterStopped
	case <-ctx.Done():
		return Started{}, fmt.Errorf("deed: %s: %w", opStart, context.Cause(ctx))
	}
	var said answered
	select {
	case said = <-a.answer:
	case <-ctx.Done():
		return Started{}, fmt.Errorf("deed: %s: %w; the run may have been started", opStart, context.Cause(ctx))
	}
	if !said.alone {
		return said.started, nil
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
		for more := true; more && len(list) < s.opts.Batch && bytes < mostBytes; {
			select {
			case a := <-s.asked:
				take(a)
			default:
				if more = len(list) < enough; more {
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
			if err != nil {
				a.answer <- answered{alone: true}
			} else {
				a.answer <- answered{started: started[k]}
			}
		}
		company.Learn(len(list), time.Since(began))
	}
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
	rows, err := s.pool.Query(ctx, query.StartMany, args...)
	if err != nil {
		return nil, err
	}
	started, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Started])
	if err == nil && len(started) != len(list) {
		err = fmt.Errorf("deed: %s: %d answers to %d requests", opStart, len(started), len(list))
	}
	return started, err
}
