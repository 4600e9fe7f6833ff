package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/held"
	"github.com/deedhq/deed/internal/sqlfile"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

// WorkerOptions configures a [Worker]. The zero value works.
type WorkerOptions struct {
	// PollInterval is how often it looks for jobs that are due, half as much more or less.
	// Default 1s.
	PollInterval time.Duration
	// Heartbeat is for how long a job is locked while it is expanded: one whose worker has
	// stopped is taken back then (C5). At least 10s. Default 5m.
	Heartbeat time.Duration
	// Retention is for how long deliveries of a run are kept once it has ended, at least 48h; then what became
	// of them is written on the run ([Sealed]), and they go. Default: for ever.
	Retention time.Duration
	// OnNewCluster says what to do on another cluster than the installation's, or in another
	// environment. Default: [deed.Hold]: a copy expands nothing.
	OnNewCluster deed.OnNewCluster
	// Environment is where this process runs, as in [deed.Options].
	Environment string
	// Worker names this process in claims and the audit log. Default host:pid.
	Worker string
	// Logger receives warnings and ends of runs. Default: discard.
	Logger *slog.Logger
}

// statement is the deadline of one. An expansion is of a thousand members.
const statement = 30 * time.Second

// looksAtOnce is how many jobs one statement looks at.
const looksAtOnce = 200

// looksApart is how long it has jobs come due for a look, to look at them together: so long an open one waits at least.
const looksApart = 300 * time.Millisecond

// decidedAtOnce is of how many runs one statement decides the tests: what is decided of one is not undone with another's.
const decidedAtOnce = 1

// counting is the deadline of what counts a run by its rows, whose cost grows with it: a decision, and whether a run is to pause itself.
const counting = 5 * time.Minute

// sweptAtOnce is how many deliveries one statement skips.
const sweptAtOnce = 1000

// Worker expands the jobs of campaigns and ends them. Any number may run; they share the
// work.
type Worker struct {
	pool *pgxpool.Pool
	opts WorkerOptions
	gate *held.Gate

	open     []string // runs that have ended with deliveries that have not, which Verify finds: Retain leaves them
	unsealed []string // runs that could not be sealed: Retain tries them again after all others

	mark   *time.Time    // where looks at jobs begin; nil: at the first
	marked time.Time     // until when
	looked chan struct{} // holds one: jobs were looked at, since runs were asked for what fails of them
}

// NewWorker makes one, and looks whether its statements fit the installed schema. pool's
// login holds deed_worker.
func NewWorker(ctx context.Context, pool *pgxpool.Pool, opts WorkerOptions) (*Worker, error) {
	if opts.PollInterval == 0 {
		opts.PollInterval = time.Second
	}
	if opts.Heartbeat == 0 {
		opts.Heartbeat = 5 * time.Minute
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Worker == "" {
		host, _ := os.Hostname()
		opts.Worker = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if opts.PollInterval < time.Millisecond || opts.PollInterval > time.Hour || opts.Heartbeat < 10*time.Second || opts.Heartbeat > 24*time.Hour {
		return nil, invalidf("new campaign worker", "option PollInterval %s is not from 1ms to 1h, or Heartbeat %s not from 10s to 24h", opts.PollInterval, opts.Heartbeat)
	}
	if opts.Retention != 0 && opts.Retention < 48*time.Hour {
		return nil, invalidf("new campaign worker", "option Retention %s is below 48h", opts.Retention)
	}
	opts.OnNewCluster = cmp.Or(opts.OnNewCluster, deed.Hold)
	if err := opts.OnNewCluster.Check(opts.Environment); err != nil {
		return nil, invalidf("new campaign worker", "%w", err)
	}
	conn, err := pool.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = sqlfile.Check(ctx, conn.Conn(), query)
	}
	if err != nil {
		return nil, deed.WrapError("new campaign worker", err)
	}
	return &Worker{pool: pool, opts: opts, open: []string{}, looked: make(chan struct{}, 1), gate: &held.Gate{
		Pool: pool, What: "campaigns", OnNewCluster: string(opts.OnNewCluster), Environment: opts.Environment,
		Logger: opts.Logger, Deadline: statement, Passing: sqlstate.Passing,
	}}, nil
}

// Run expands and ends jobs until ctx ends. It blocks. While the database is away it waits, and
// on another cluster than the installation's for admin.Client.Adopt, unless it is to go on; if the
// cluster comes to be another one while it runs, it ends with an error.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.gate.Wait(ctx, func(error) {}, nil); err != nil {
		return deed.WrapError("run campaigns", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var watching sync.WaitGroup
	watching.Go(func() { w.gate.Watch(ctx, w.pool, end) })
	watching.Go(func() { w.tell(ctx) })
	watching.Go(func() { w.beside(ctx, "tests of campaigns were not decided", time.Minute, nil, w.decide) })
	watching.Go(func() { w.beside(ctx, "what runs of campaigns skip was not skipped", 5*time.Second, nil, w.sweep) })
	watching.Go(func() {
		w.beside(ctx, "runs of campaigns were not asked for what fails of them", 5*time.Second, w.looked, w.pauseFailing)
	})
	if w.opts.Retention > 0 {
		watching.Go(func() { w.retain(ctx) })
	}
	w.loop(ctx)
	end(nil)
	watching.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, held.ErrHeld) {
		return fmt.Errorf("deed: run campaigns: %w", cause)
	}
	return nil
}

// told is for how long it is said that a worker carries out campaigns; it is said again after a third of that.
const told = time.Minute

// tell says that this worker carries out campaigns ([Served]), until ctx ends.
func (w *Worker) tell(ctx context.Context) {
	until := told.Seconds()
	for failures := 0; ctx.Err() == nil; {
		wait := told / 3
		if err := w.note(ctx, &until); err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			failures++
			w.opts.Logger.Warn("not told that campaigns are carried out here; will try again", "error", err)
			wait = work.Backoff(failures, 100*time.Millisecond, told/3)
		}
		work.Sleep(ctx, wait)
	}
	if err := w.note(context.WithoutCancel(ctx), nil); err != nil {
		w.opts.Logger.Debug("not told that campaigns are not carried out here any more", "error", err)
	}
}

func (w *Worker) note(ctx context.Context, seconds *float64) error {
	ctx, cancel := context.WithTimeout(ctx, leaving)
	defer cancel()
	_, err := w.pool.Exec(ctx, query.Note, w.opts.Worker, seconds)
	return err
}

// leaving is the deadline of what is told, and givingBack that of what is said of a job in hand: a stop waits for them.
const (
	leaving    = 2 * time.Second
	givingBack = 10 * time.Second
)

// beside does one kind of work, until ctx ends: as often as there is something to look for, or each time that it is asked to; after a failure
// again in most at the most. It takes as long as a run is large, and what cannot be done of one holds up nothing else.
func (w *Worker) beside(ctx context.Context, failed string, most time.Duration, asked <-chan struct{}, do func(context.Context) (n int, err error)) {
	for failures := 0; ctx.Err() == nil; {
		if asked != nil && failures == 0 {
			select {
			case <-asked:
			case <-ctx.Done():
				return
			}
		}
		n, err := do(ctx)
		var wait time.Duration
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			w.opts.Logger.Warn(failed+"; will try again", "error", err)
			wait = work.Backoff(failures, 100*time.Millisecond, most)
		default:
			failures = 0
			if n == 0 && asked == nil {
				wait = w.apart()
			}
		}
		work.Sleep(ctx, wait)
	}
}

// apart is for how long nothing is looked for where there was nothing.
func (w *Worker) apart() time.Duration { return w.opts.PollInterval/2 + rand.N(w.opts.PollInterval) }

func (w *Worker) loop(ctx context.Context) {
	var expands time.Time // when it looks again for a job that is due, and not only at what is under way
	for failures := 0; ; {
		var wait time.Duration
		var err error
		if !time.Now().Before(expands) {
			var expanded bool
			if expanded, err = w.expandOne(ctx); err == nil && !expanded {
				expands = time.Now().Add(w.apart())
			}
		}
		if !away(err) {
			looked, next, notLooked := w.look(ctx, max(0, time.Until(expands)))
			if looked > 0 {
				select {
				case w.looked <- struct{}{}:
				default:
				}
			}
			wait, err = next, errors.Join(err, notLooked)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			w.opts.Logger.Warn("jobs of campaigns were not looked at; will try again", "error", err)
			wait = work.Backoff(failures, 100*time.Millisecond, 5*time.Second)
		default:
			failures = 0
		}
		if wait > 0 && !work.Sleep(ctx, wait) {
			return
		}
	}
}

// away reports whether the database was not there to be asked, so that what comes next would ask in vain, too. What it has refused, or has not
// done in time, is of one kind of work, and holds up no other.
func away(err error) bool {
	_, refused := errors.AsType[*pgconn.PgError](err)
	return err != nil && !refused && !errors.Is(err, context.DeadlineExceeded)
}

// Step expands one job that is due, decides a test that can be, skips what is cancelled or has expired, and ends what is to end. It returns how long nothing
// more is to be done, as far as it knows.
func (w *Worker) Step(ctx context.Context) (wait time.Duration, err error) {
	expanded, err := w.expandOne(ctx)
	did := expanded
	for _, do := range []func(context.Context) (int, error){w.decide, w.sweep} {
		if away(err) {
			return 0, err
		}
		n, failed := do(ctx)
		err = errors.Join(err, failed)
		did = did || n > 0
	}
	if away(err) {
		return 0, err
	}
	poll := w.apart()
	if did {
		poll = 0
	}
	looked, wait, failed := w.look(ctx, poll)
	if failed == nil && looked > 0 {
		_, failed = w.pauseFailing(ctx)
	}
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return wait, nil
}

// look ends what is to end of jobs that are under way. It returns at how many it has looked, and how long to wait before the next look, at most poll.
func (w *Worker) look(ctx context.Context, poll time.Duration) (looked int, wait time.Duration, err error) {
	looked, next, err := w.rollUp(ctx)
	if err != nil || looked == looksAtOnce {
		return looked, 0, err
	}
	if next != nil {
		// Bounded first: what is due in the year 9999 is so in more seconds than a Duration holds.
		poll = min(poll, max(time.Duration(min(*next, poll.Seconds())*float64(time.Second)), looksApart))
	}
	return looked, poll, nil
}

type job struct {
	id, run, tenant string
	claim           int64
}

// expandOne expands one job that is due, if there is one. Where it is asked to stop meanwhile the job goes back.
func (w *Worker) expandOne(running context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(running, statement)
	defer cancel()
	rows, err := w.pool.Query(ctx, query.Claim, w.opts.Worker, 1, w.opts.Heartbeat.Seconds())
	if err != nil {
		return false, err
	}
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (j job, err error) {
		return j, row.Scan(&j.id, &j.run, &j.tenant, &j.claim)
	})
	if err != nil || len(jobs) == 0 {
		return false, err
	}
	crash.Point("locked")
	j := jobs[0]
	var state string
	var made int64
	err = w.pool.QueryRow(ctx, query.Expand, j.id, j.claim, w.opts.Worker).Scan(&state, &made)
	crash.Point("expanded")
	log := w.opts.Logger.With("job", j.id, "run", j.run, "tenant", j.tenant)
	pg, ok := errors.AsType[*pgconn.PgError](err)
	stopped := err != nil && running.Err() != nil
	if stopped {
		last, end := context.WithTimeout(context.WithoutCancel(running), givingBack)
		defer end()
		ctx = last
	}
	switch {
	case ok && pg.Code == "55P03": // somebody's transaction holds what it has to lock
		log.Warn("job of a campaign waits for a lock; it goes back", "error", err)
		if err = w.pool.QueryRow(ctx, query.PutBack, j.id, j.claim, errortext.Stored(pg.Message, 2000, ""), w.opts.Worker).Scan(&state); err != nil {
			return false, err
		}
	case ok && (sqlstate.Again(err) || !sqlstate.Passing(err)):
		log.Error("job of a campaign was not expanded", "error", err)
		why := errortext.Stored(pg.Message, 2000, "")
		if err = w.pool.QueryRow(ctx, query.GiveUp, j.id, j.claim, why, w.opts.Worker).Scan(&state); err != nil {
			return false, err
		}
	case stopped:
		// Its expansion may be under way still: this waits until that is undone, or done, and then it changes nothing.
		if back := w.pool.QueryRow(ctx, query.PutBack, j.id, j.claim, "its worker was stopped", w.opts.Worker).Scan(&state); back != nil {
			log.Warn("job of a campaign was not given back; it is taken back when its lease is over", "error", back)
		}
		return false, err
	case err != nil:
		return false, err // it is taken back when its lease is over
	}
	if state == "dead" {
		log.Error("job of a campaign is dead; its members get nothing")
	} else {
		log.Debug("job of a campaign", "state", state, "deliveries", made)
	}
	return true, nil
}

// decide decides the tests of runs that can be.
func (w *Worker) decide(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, counting)
	defer cancel()
	err = w.pool.QueryRow(ctx, query.Decide, decidedAtOnce, w.opts.Worker).Scan(&n)
	if n > 0 {
		crash.Point("decided")
	}
	return n, err
}

// sweep skips what is queued of runs that are cancelled or have expired.
func (w *Worker) sweep(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statement)
	defer cancel()
	err = w.pool.QueryRow(ctx, query.Sweep, sweptAtOnce, w.opts.Worker).Scan(&n)
	return n, err
}

func (w *Worker) rollUp(ctx context.Context) (looked int, wait *float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statement)
	defer cancel()
	crash.Point("rolling up")
	if time.Now().After(w.marked) {
		w.mark = nil
	}
	var ended int
	var mark *time.Time
	var rest *float64
	err = w.pool.QueryRow(ctx, query.RollUp, looksAtOnce, w.opts.Worker, w.mark).Scan(&looked, &ended, &wait, &mark, &rest)
	if err == nil && mark != nil {
		w.mark, w.marked = mark, time.Now().Add(time.Duration(*rest*float64(time.Second)))
	}
	return looked, wait, err
}

// pauseFailing pauses runs of which too much fails, and says so.
func (w *Worker) pauseFailing(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, counting)
	defer cancel()
	rows, err := w.pool.Query(ctx, query.PauseFailing, w.opts.Worker)
	if err != nil {
		return 0, err
	}
	var run, owner, why string
	_, err = pgx.ForEachRow(rows, []any{&run, &owner, &why}, func() error {
		n++
		w.opts.Logger.Warn("run of a campaign has paused itself; deed campaign resume has it go on", "run", run, "tenant", owner, "why", why)
		return nil
	})
	return n, err
}

// Served reports whether a [Worker] runs, of a relay or of another program: where none does, no campaign that is
// deployed reaches anybody. One that was killed counts for a minute.
func Served(ctx context.Context, db deed.DB) (served bool, err error) {
	rows, err := db.Query(ctx, query.Served)
	if err == nil {
		served, err = pgx.CollectOneRow(rows, pgx.RowTo[bool])
	}
	return served, deed.WrapError("look for workers of campaigns", err)
}

// Drained reports whether no job is open, but for those of runs that begin more than a
// minute from now, or are paused, or of which all that is open waits for longer by its
// recipients' clocks, and no test can be decided.
func (w *Worker) Drained(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statement)
	defer cancel()
	var unfinished bool
	err := w.pool.QueryRow(ctx, query.Unfinished, time.Minute.Seconds()).Scan(&unfinished)
	return !unfinished, deed.WrapError("look for jobs of campaigns", err)
}
