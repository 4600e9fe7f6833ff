package local

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/idempotency"
	"github.com/deedhq/deed/internal/runstep"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// inner is an inner step that is being done.
type inner struct {
	b       *branch
	name    string // the whole one
	attempt int
	keyN    int  // of its key; no higher than the outer step's attempt
	moved   bool // no attempt before this one can have been made under it
	started time.Time
	made    *artifacts
}

// find is the inner step that the code asks for, to be done; or nil, with what is recorded of it.
func (b *branch) find(ask runstep.Ask) (*inner, json.RawMessage, error) {
	c := b.of
	c.mu.Lock()
	defer c.mu.Unlock()
	name, r, err := b.ask(ask)
	switch {
	case err != nil:
		return nil, nil, err
	case r == nil:
		if err := b.anew(name); err != nil {
			return nil, nil, err
		}
		// It may have been called in an attempt before, and not recorded: its key is another one when the outer step's is.
		return &inner{b: b, name: b.prefix + name, attempt: 1, keyN: c.it.keyN, moved: c.unsure < c.it.keyN, started: time.Now()}, nil, nil
	case r.asBranch || !r.ended():
		return nil, nil, c.diverged("the code asks for the step %s, of which a branch or a sleep is recorded", b.prefix+name)
	case r.typ == run.StepFailed && r.of < c.it.attempt && !b.stands(name, r):
		return b.again(name, r), nil, nil
	}
	if r.typ == run.StepFailed && !r.notDone {
		c.unknown = true
	}
	output, err := r.result()
	return nil, output, err
}

// again is a step that has failed and is tried again. Its key stays while it may have been done, or until a person wants it done
// anew: the outer step has moved to a key of its own then, in an attempt after.
func (b *branch) again(name string, r *recorded) *inner {
	n, outer := r.nextKey(), b.of.it.keyN
	if r.of < outer {
		n = max(n, outer)
	}
	moved := n > r.keyN && b.of.unsure <= max(r.of, outer-1)
	return &inner{b: b, name: b.prefix + name, attempt: r.attempt + 1, keyN: n, moved: moved, started: time.Now()}
}

// first is as the item's: of an attempt that the code has begun anew it is not known how far it came before. What was done before the code
// slept is recorded.
func (i *inner) first() bool { return i.moved && (i.b.of.it.engine <= 1 || i.b.of.it.once) }

// context is what the inner step's own code gets: it has no inner steps.
func (i *inner) context(ctx context.Context) context.Context {
	it := i.b.of.it
	sum := idempotency.Key(it.run, i.name, strconv.Itoa(i.keyN))
	known := i.b.of.e.known(it, i.name, i.attempt, hex.EncodeToString(sum[:]))
	i.made = known.Artifacts.(*artifacts)
	return runstep.WithCode(runstep.With(ctx, known), leaf{})
}

// errNotReturned is what an inner step has failed with that has panicked, or ended its goroutine. It may have been done, and however its step goes on or
// ends, as code may recover from a panic and a branch end alone, the next attempt has to know of it.
var errNotReturned = &run.Failure{Code: "PANIC", Err: errors.New("its code did not return: it panicked, or called runtime.Goexit")}

// Step is [runstep.Code]'s.
func (b *branch) Step(ctx context.Context, ask runstep.Ask, do func(context.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	i, output, err := b.find(ask)
	if i == nil {
		return output, err
	}
	if !work.Ours(ctx, b.of.it) {
		return nil, b.of.stop(b.of.it.back(0, !b.of.it.once), errLost) // as after the process was frozen between two steps
	}
	returned := false
	defer func() {
		if !returned {
			_ = i.failed(errNotReturned)
		}
	}()
	crash.Point("inner calling")
	output, err = b.of.it.guard.call(func() (json.RawMessage, error) { return do(i.context(ctx)) })
	returned = true
	crash.Point("inner called")
	if len(output) > maxOutput {
		err = &run.Failure{Code: "OUTPUT_TOO_LARGE", Final: true, Err: fmt.Errorf("the output has %d bytes; at most %d are possible: keep it elsewhere, and return where", len(output), maxOutput)}
	}
	if err != nil {
		return nil, i.failed(err)
	}
	data := map[string]any{}
	if len(output) > 0 && string(output) != "null" {
		data["output"] = output
	}
	i.made.into(data)
	return output, i.record("completed", data)
}

// failed records a failure, and returns it as it will read when the code runs again. What only an engine's attempt has
// ended is not recorded: the code is to end.
func (i *inner) failed(err error) error {
	c := i.b.of
	_, err = c.it.guard.checked(nil, err)
	if reason, ok := run.Skipped(err); ok {
		reason = errortext.Stored(reason, 1000, "")
		return cmp.Or(i.record("skipped", map[string]any{"reason": reason}), run.Skip(reason))
	}
	end := c.it.failed(err, i.started)
	if deed.IsUnavailable(err) {
		pause, _ := deed.RetryAfter(err)
		return c.stop(c.it.back(cmp.Or(pause, work.Backoff(c.it.engine, time.Second, time.Minute)), !c.it.once || end.notDone), err)
	}
	if c.cut() {
		return c.stop(c.it.back(0, !c.it.once), err)
	}
	end.notDone = end.notDone && i.first()
	data := map[string]any{"error": end.data["error"], "key_n": i.keyN}
	if end.notDone {
		data["not_done"] = true
	} else {
		c.mu.Lock()
		c.unknown = true
		c.mu.Unlock()
	}
	said := end.data["error"].(run.Error)
	return cmp.Or(i.record("failed", data), error(&run.Failure{Category: said.Category, Code: said.Code, Final: !said.Retryable, NotDone: end.notDone, Err: errors.New(said.Message)}))
}

// Tx is [runstep.Code]'s.
func (b *branch) Tx(ctx context.Context, ask runstep.Ask, do func(context.Context, pgx.Tx) error) error {
	i, _, err := b.find(ask)
	if i == nil {
		return err
	}
	c := b.of
	for n := 1; ; n++ {
		said, closed, err := i.transaction(ctx, do)
		switch {
		case err == nil:
			crash.Point("tx committed")
			return nil
		case errors.Is(err, errNotNow):
			return c.lost()
		case ctx.Err() == nil && undone(said, err) && (closed || ofServer(err)) && (c.it.once || work.Lasts(ctx, c.it)):
			c.e.discreet(c.it).Warn("the transaction of an inner step was undone; it is made again", "inner", i.name, "error", err)
			if work.Sleep(ctx, work.Backoff(n, 50*time.Millisecond, 5*time.Second)) {
				continue
			}
		case said != "" && !refused(err) || ctx.Err() == nil && (closed || ofServer(err)):
			// It may have been committed, or the database is away for longer than the lease lasts. When the code runs again, the log says.
			return c.stop(c.it.back(work.Backoff(c.it.engine, 100*time.Millisecond, time.Minute), !c.it.once), fmt.Errorf("the transaction of %s: %w", i.name, err))
		}
		return i.failed(err)
	}
}

// transaction does i in one. said is what was said of its record, "" before that; closed, that the connection was, or that there was none. One whose code does not
// return has failed as a step's has, once it is rolled back.
func (i *inner) transaction(ctx context.Context, do func(context.Context, pgx.Tx) error) (said string, closed bool, err error) {
	c := i.b.of
	returned := false
	defer func() {
		if !returned {
			_ = i.failed(errNotReturned)
		}
	}()
	closed = true
	err = pgx.BeginTxFunc(ctx, c.e.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		defer func() { closed = tx.Conn().IsClosed() }() // here: afterwards it is somebody else's
		if err := tenant.Set(ctx, tx, c.it.tenant); err != nil {
			return err
		}
		if err := do(i.context(ctx), tx); err != nil {
			return err
		}
		crash.Point("in tx")
		// Last: whoever has a run's row takes no other lock.
		data := map[string]any{}
		i.made.into(data)
		list, err := c.e.recordIn(ctx, tx, []*record{i.note("completed", data)})
		if err != nil {
			return err
		}
		if said = list[0].result; said != "recorded" {
			return errNotNow
		}
		crash.Point("tx recorded")
		return nil
	})
	returned = true
	return said, closed, err
}

// undone reports whether nothing of a transaction can have been committed: its record was not answered, so its COMMIT was never sent, or
// the database has not done it.
func undone(said string, err error) bool { return said == "" || refusedCommit(err) }

// refusedCommit reports whether a commit that the database could not do now is undone: one that it has ended its session over may have been done.
func refusedCommit(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.SeverityUnlocalized == "ERROR"
}

// ofServer reports whether the database has said that it cannot now: not what the transaction does is wrong.
func ofServer(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && sqlstate.Passing(pg)
}

// refused reports whether the database has said no, for good: a transaction is undone then, also at its commit.
func refused(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !sqlstate.Passing(pg)
}

// shortSleep is what the code waits for itself.
const shortSleep = time.Second

// maxSleep is how long an inner step may sleep.
const maxSleep = 3652 * 24 * time.Hour

// Sleep is [runstep.Code]'s.
func (b *branch) Sleep(ctx context.Context, ask runstep.Ask, d time.Duration) error {
	i, until, err := b.findSleep(ask)
	if i == nil {
		return err
	}
	switch {
	case until != nil && !until.IsZero():
		return b.sleep(*until)
	case until != nil: // it is over
		return i.record("completed", map[string]any{})
	case d > maxSleep:
		return &run.Failure{Code: "SLEEP_TOO_LONG", Final: true, NotDone: true, Err: fmt.Errorf("%s: a sleep of %s; at most ten years are possible", i.name, d)}
	case d > shortSleep:
		return i.fallAsleep(d)
	}
	crash.Point("sleeping")
	if d > 0 && !work.Sleep(ctx, d) {
		if b.of.cut() {
			return b.of.stop(b.of.it.back(0, !b.of.it.once), ctx.Err())
		}
		return ctx.Err()
	}
	return i.record("completed", map[string]any{})
}

// findSleep is as find, of a sleep: until is when one that has begun ends, the zero time for one that is over.
func (b *branch) findSleep(ask runstep.Ask) (i *inner, until *time.Time, err error) {
	c := b.of
	c.mu.Lock()
	defer c.mu.Unlock()
	name, r, err := b.ask(ask)
	if err != nil {
		return nil, nil, err
	}
	i = &inner{b: b, name: b.prefix + name, attempt: 1, keyN: 1, started: time.Now()}
	switch {
	case r == nil:
		if err := b.anew(name); err != nil {
			return nil, nil, err
		}
		return i, nil, nil
	case r.asBranch || r.typ == run.StepFailed:
		return nil, nil, c.diverged("the code asks for the sleep %s, of which something else is recorded", i.name)
	case r.ended():
		return nil, nil, nil
	case r.due:
		i.started = r.begun
		return i, &time.Time{}, nil
	}
	return i, r.until, nil
}

// leaf is what inner steps have of inner steps: none.
type leaf struct{}

var errNested = &run.Failure{Code: "STEP_IN_STEP", Final: true, Err: errors.New("an inner step has no inner steps: the code that calls it has")}

func (leaf) Step(context.Context, runstep.Ask, func(context.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	return nil, errNested
}

func (leaf) Tx(context.Context, runstep.Ask, func(context.Context, pgx.Tx) error) error {
	return errNested
}
func (leaf) Sleep(context.Context, runstep.Ask, time.Duration) error { return errNested }
func (leaf) Parallel(context.Context, []runstep.Branch) error        { return errNested }
