package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

// AppenderOptions configures an [Appender]. The zero value works.
type AppenderOptions struct {
	// Adapter is the version of whoever appends, at most 40 characters. Default: none.
	Adapter string

	// Statements is how many append at a time, each on a connection of the pool; on its others,
	// at most as many, runs are waited for that somebody else has locked, and further ones are tried again from
	// time to time. Default: 4, or half of the pool's connections if that is less.
	Statements int

	// Batch is the most events that one statement appends, at most 10,000. Default 1,000.
	Batch int

	// Deadline is how long a statement may take; then it is tried again. Default 10s.
	Deadline time.Duration

	// Logger is told of statements that failed and are tried again. Default: discard.
	Logger *slog.Logger
}

func (o AppenderOptions) withDefaults(connections int) (AppenderOptions, error) {
	o.Statements = cmp.Or(o.Statements, min(4, max(1, connections/2)))
	o.Batch = cmp.Or(o.Batch, 1000)
	o.Deadline = cmp.Or(o.Deadline, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	var errs []error
	if n := utf8.RuneCountInString(o.Adapter); n > 40 {
		errs = append(errs, fmt.Errorf("adapter has %d characters: at most 40 are possible", n))
	}
	if o.Statements < 0 {
		errs = append(errs, fmt.Errorf("statements %d is negative", o.Statements))
	} else if o.Statements >= connections {
		errs = append(errs, fmt.Errorf("statements %d: the pool needs a connection for each and one to wait with, and has %d", o.Statements, connections))
	}
	if o.Batch < 0 || o.Batch > 10_000 {
		errs = append(errs, fmt.Errorf("batch %d: 1 to 10,000 are possible", o.Batch))
	}
	if o.Deadline < 0 {
		errs = append(errs, fmt.Errorf("deadline %s is negative", o.Deadline))
	}
	return o, errors.Join(errs...)
}

const (
	opAppend     = "append events"
	mostBytes    = 4 << 20 // of data in one statement, about
	mostHalvings = 14      // after which a batch is one event
)

// Appender appends what many goroutines bring, each event in a transaction of its own as its caller
// sees it: those that wait at a time go in one statement and one commit. For callers
// who have no transaction that the event belongs to; who has one calls [Append] in it. It may be used by
// any number of goroutines while [Appender.Run] runs.
type Appender struct {
	pool *pgxpool.Pool
	opts AppenderOptions
	wake chan struct{} // somebody may find something in the queue
	room chan struct{} // taken by who waits for a run

	mu      sync.Mutex
	queue   []*arrival      // guarded by mu: not answered, and in no statement
	busy    map[string]bool // guarded by mu: runs that a statement is about, or waits for
	shrink  int             // guarded by mu: statements take 1/2^shrink of a batch, since some fail
	running bool            // guarded by mu: Run was called
	stopped bool            // guarded by mu

	appended, statements atomic.Int64
}

// arrival is an event whose caller waits.
type arrival struct {
	ctx    context.Context // its caller's, who has left when it ends
	event  New
	run    string
	tried  bool // guarded by Appender.mu: a statement had it of which nobody knows what became
	held   int  // guarded by Appender.mu: how often its run was found locked
	answer chan outcome
}

type outcome struct {
	appended Appended
	err      error
}

// NewAppender makes one, which appends on connections of pool: at least two, which others use as little as can be.
// Its login holds deed_worker. An error names what is wrong with opts.
func NewAppender(pool *pgxpool.Pool, opts AppenderOptions) (*Appender, error) {
	connections := int(pool.Config().MaxConns)
	opts, err := opts.withDefaults(connections)
	if err != nil {
		return nil, invalidf("new appender", "%w", err)
	}
	return &Appender{
		pool: pool, opts: opts, busy: map[string]bool{},
		wake: make(chan struct{}, opts.Statements), room: make(chan struct{}, min(opts.Statements, connections-opts.Statements)),
	}, nil
}

// AppenderStats are counters of an [Appender] since it was made.
type AppenderStats struct {
	Events     int64 // appended; repeats are not counted
	Statements int64 // that were made
}

// Stats returns a's counters.
func (a *Appender) Stats() AppenderStats {
	return AppenderStats{a.appended.Load(), a.statements.Load()}
}

// Append appends e, and returns when that is committed; what is wrong with it is its own caller's
// error, and nobody else's: those of [Append]. While the database is away, or somebody else keeps the run locked, it is
// tried again until ctx ends; where an answer was lost, the event is then Repeated, though nobody
// else has appended it (R3). When it returns because ctx has ended, or because Run has, the event may be appended or not; to append it again
// tells.
func (a *Appender) Append(ctx context.Context, e New) (Appended, error) {
	if err := new(columns).add(e); err != nil {
		return Appended{}, invalidf(opAppend, "event 1: %w", err)
	}
	e.Data = slices.Clone(e.Data) // a caller who leaves may use it again
	w := &arrival{ctx: ctx, event: e, run: strings.ToLower(e.Run), answer: make(chan outcome, 1)}
	a.mu.Lock()
	if a.stopped {
		a.mu.Unlock()
		return Appended{}, errStopped
	}
	a.queue = append(a.queue, w)
	a.mu.Unlock()
	a.look()
	select {
	case o := <-w.answer:
		return o.appended, o.err
	case <-ctx.Done():
		return Appended{}, fmt.Errorf("deed: %s: %w; the event may have been appended", opAppend, context.Cause(ctx))
	}
}

var (
	errStopped      = errors.New("deed: " + opAppend + ": the Appender has stopped, and the event was not appended")
	errStoppedAfter = errors.New("deed: " + opAppend + ": the Appender has stopped before it knew whether the event was appended; append it again")
)

// look wakes somebody who looks into the queue; if all have been woken, they have yet to look.
func (a *Appender) look() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run appends what is brought until ctx ends. Statements that are under way then end first, within their
// deadline, but for those that wait for a run; whoever still waits gets an error. It is called once.
func (a *Appender) Run(ctx context.Context) error {
	a.mu.Lock()
	again := a.running
	a.running = true
	a.mu.Unlock()
	if again {
		return errors.New("deed: an Appender's Run is called once")
	}
	var workers sync.WaitGroup
	for range a.opts.Statements {
		workers.Go(func() { a.work(ctx, &workers) })
	}
	workers.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	for _, w := range a.queue {
		err := errStopped
		if w.tried {
			err = errStoppedAfter
		}
		w.answer <- outcome{err: err}
	}
	a.queue = nil
	return nil
}

// work appends what waits, all of it that there is at a time in one statement: the next ones gather
// while it is under way. Runs that somebody else has locked are waited for apart.
func (a *Appender) work(ctx context.Context, workers *sync.WaitGroup) {
	for ctx.Err() == nil {
		list := a.take("")
		if len(list) == 0 {
			select {
			case <-ctx.Done():
			case <-a.wake:
			}
			continue
		}
		// Not cut short when ctx ends: events may be in the log by then.
		held, err := a.append(context.WithoutCancel(ctx), query.TryAppend, list)
		a.free(list, held)
		for run, times := range held {
			workers.Go(func() { a.await(ctx, run, times) })
		}
		a.pause(ctx, err)
	}
}

// await appends what is of a run that somebody else has locked, and that was found so these many times, as soon as it is free. What comes to it
// meanwhile waits with it. While others take all the room there is, as their runs may stay locked for long, this one may be free again: it is tried
// with what else there is, the later the more often it was.
func (a *Appender) await(ctx context.Context, run string, times int) {
	again := time.NewTimer(work.Backoff(times, 50*time.Millisecond, 2*time.Second))
	defer again.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			a.free([]*arrival{{run: run}}, nil)
			return
		case a.room <- struct{}{}:
		}
		list := a.take(run)
		var err error
		if len(list) > 0 {
			_, err = a.append(ctx, query.Append, list)
		}
		<-a.room
		if err == nil {
			a.free([]*arrival{{run: run}}, nil)
			return
		}
		a.pause(ctx, err)
	}
}

// take takes from the queue what is of a run, or, of "", what is of runs that nobody is busy with, and is
// busy with them. Whoever has left is forgotten.
func (a *Appender) take(run string) (list []*arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	most, bytes := max(1, a.opts.Batch>>a.shrink), 0
	mine := map[string]bool{run: run != ""}
	rest := a.queue[:0]
	for _, w := range a.queue {
		switch {
		case w.ctx.Err() != nil:
		case len(list) == most, bytes >= mostBytes, !mine[w.run] && (run != "" || a.busy[w.run]):
			rest = append(rest, w)
		default:
			list = append(list, w)
			bytes += len(w.event.Data)
			mine[w.run], a.busy[w.run] = true, true
		}
	}
	clear(a.queue[len(rest):])
	a.queue = rest
	return list
}

// free lets others take what is of the runs of list, but for those that are held.
func (a *Appender) free(list []*arrival, held map[string]int) {
	a.mu.Lock()
	for _, w := range list {
		if held[w.run] == 0 {
			delete(a.busy, w.run)
		}
	}
	more := len(a.queue) > 0
	a.mu.Unlock()
	if more {
		a.look()
	}
}

// append appends list in one statement; one that is refused in halves, until it is known which
// event is wrong. It answers all but those of runs that are held, which it returns with how often they were, and, if a repeat may cure err, those that
// it could not append: both are in the queue again.
func (a *Appender) append(ctx context.Context, sql string, list []*arrival) (held map[string]int, err error) {
	rows, err := a.statement(ctx, sql, list)
	switch {
	case err == nil:
		return a.answer(list, rows), nil
	case sqlstate.Passing(err):
		a.again(list, true)
		return nil, err
	case len(list) == 1:
		list[0].answer <- outcome{err: wrap(opAppend, err)}
		return nil, nil
	}
	held, err = map[string]int{}, nil
	for _, half := range [][]*arrival{list[:len(list)/2], list[len(list)/2:]} {
		if err != nil {
			a.again(half, false)
			continue
		}
		var more map[string]int
		more, err = a.append(ctx, sql, half)
		maps.Copy(held, more)
	}
	return held, err
}

// row is what the statement says of an event; nulls: its run is locked.
type row struct {
	seq      *int64
	id       *string
	repeated *bool
}

func (a *Appender) statement(ctx context.Context, sql string, list []*arrival) ([]row, error) {
	var c columns
	for _, w := range list {
		if err := c.add(w.event); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, a.opts.Deadline)
	defer cancel()
	a.statements.Add(1)
	crash.Point("gathered")
	rows, err := a.pool.Query(ctx, sql, c.args(a.opts.Adapter)...)
	if err != nil {
		return nil, err
	}
	result, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (o row, err error) { return o, r.Scan(&o.seq, &o.id, &o.repeated) })
	if err == nil {
		crash.Point("gathered and appended")
	}
	return result, err
}

// answer tells callers what became of their events; those whose runs are held go on waiting.
func (a *Appender) answer(list []*arrival, rows []row) (held map[string]int) {
	var locked []*arrival
	held = map[string]int{}
	for i, w := range list {
		r := rows[i]
		if r.seq == nil {
			locked = append(locked, w)
			continue
		}
		if !*r.repeated {
			a.appended.Add(1)
		}
		w.answer <- outcome{appended: Appended{Seq: *r.seq, ID: *r.id, Repeated: *r.repeated}}
	}
	a.mu.Lock()
	a.shrink = max(0, a.shrink-1)
	for _, w := range locked {
		w.held++
		held[w.run] = max(held[w.run], w.held)
	}
	a.mu.Unlock()
	a.again(locked, false)
	return held
}

// again has list wait once more, behind what came meanwhile. After a failure statements are smaller, so that
// one that none can do without failing is alone in the end.
func (a *Appender) again(list []*arrival, failed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range list {
		w.tried = w.tried || failed
	}
	a.queue = append(a.queue, list...)
	if failed {
		a.shrink = min(a.shrink+1, mostHalvings)
	}
}

// pause waits after a failure, the longer the more there were.
func (a *Appender) pause(ctx context.Context, err error) {
	if err == nil {
		return
	}
	a.mu.Lock()
	n := a.shrink
	a.mu.Unlock()
	if ctx.Err() == nil {
		a.opts.Logger.Warn("events were not appended; will try again", "error", sqlstate.WithHint(err))
	}
	work.Sleep(ctx, work.Backoff(max(n, 1), 50*time.Millisecond, 2*time.Second))
}
