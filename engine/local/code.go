package local

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/deedhq/deed/internal/runstep"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run"
)

// code is the code of a step while it runs: what is recorded of its inner steps, and which it has asked for.
type code struct {
	e    *Engine
	it   *item
	root *branch
	// unsure is the newest attempt before this one of which it is not known which inner steps were called; 0: of all it is.
	unsure int
	// cut reports whether the code is being cut short: by a stop, or because the claim is another's.
	cut func() bool
	// lasts reports whether the lease does, and pause whether it has waited: they end with the attempt, not with the step's time or a context of the code's own.
	lasts func() bool
	pause func(time.Duration) bool

	mu      sync.Mutex
	over    error      // set: no inner step begins any more, and end is what becomes of the step whatever the code says
	end     *ending    // guarded by mu, as all below
	wake    *time.Time // the code sleeps until then
	unknown bool       // an inner step has failed that may have been done
}

// branch is a line of inner steps that come one after the other: the code itself, or one of those that run.Parallel does.
type branch struct {
	of     *code
	parent *branch
	prefix string // of its steps' whole names

	// Guarded by of.mu.
	recorded map[string]*recorded
	order    []string // the names in recorded, in the order of their first events
	passed   int      // so many of order were asked for
	asked    map[string]bool
	children map[string]*branch
	asleep   bool
	beside   map[string]bool // the names that were asked for with this one, in the parent
}

func (b *branch) child(name string) *branch {
	c := b.children[name]
	if c == nil {
		c = newBranch(b.of, b, b.prefix+name+"/")
		b.children[name] = c
	}
	return c
}

func newBranch(of *code, parent *branch, prefix string) *branch {
	return &branch{of: of, parent: parent, prefix: prefix, recorded: map[string]*recorded{}, asked: map[string]bool{}, children: map[string]*branch{}}
}

// begin makes the code of it ready to run: what was recorded before is read. A step that was never begun has nothing.
func (e *Engine) begin(ctx context.Context, it *item) (*code, error) {
	c := &code{e: e, it: it}
	c.root = newBranch(c, nil, it.step+"/")
	c.cut = func() bool {
		cause := context.Cause(ctx)
		return errors.Is(cause, work.ErrStopping) || errors.Is(cause, work.ErrLeaseLost)
	}
	c.lasts = func() bool { return work.Lasts(ctx, it) }
	c.pause = func(d time.Duration) bool { return work.Sleep(ctx, d) }
	if it.attempt == 1 && it.engine == 1 && !it.parked {
		return c, nil
	}
	return c, c.history(ctx)
}

// errEnded is what inner steps get that are asked for when the code has ended.
var errEnded = errors.New("the step's code has ended")

// ended says that the code has: no inner step begins any more. It returns what becomes of the step whatever the code has said; nil: what it
// said.
func (c *code) ended() (*ending, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		if c.end == nil {
			return nil, c.over
		}
		end := *c.end // who has not returned may have another reason yet
		return &end, c.over
	}
	c.over = errEnded
	if c.wake != nil {
		return &ending{it: c.it, outcome: "waiting", started: c.it.started, until: c.wake}, nil
	}
	return nil, nil
}

// mayBeDone reports whether an inner step has failed that may have been done all the same.
func (c *code) mayBeDone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unknown
}

// stop has the code begin nothing more; the first reason holds, but that nothing was done where another branch's says otherwise. It returns err.
func (c *code) stop(end *ending, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopLocked(end, err)
}

func (c *code) stopLocked(end *ending, err error) error {
	switch {
	case c.over == nil:
		c.over, c.end = err, end
	case c.end != nil && !end.notDone:
		c.end.notDone = false
	}
	return err
}

// diverged stops code that does not fit what is recorded, before it does anything more. A person is asked.
func (c *code) diverged(format string, args ...any) error {
	f := &run.Failure{Code: "RUN_DIVERGED", Final: true, Err: fmt.Errorf(format, args...)}
	return c.stopLocked(c.it.failed(f, c.it.started), f)
}

// errAsleep is what the code gets while it is to end and wait.
var errAsleep = errors.New("the run sleeps: return this error; the code runs again when the time has come")

// nameForm is what inner steps and branches are called, with the id of run.Named. As other forms that repeat a part a hundred
// times it is made at its first use: that takes a millisecond or several, and every command would spend it at its start.
var nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL\pN_.:-]{1,100}(\[[^/\[\]\x00-\x1f]*\])?$`) })

// ask looks up an inner step that the code asks for: its whole name, and what is recorded of it, or nil. Only with mu held.
func (b *branch) ask(ask runstep.Ask) (name string, r *recorded, err error) {
	c := b.of
	if c.over == nil && c.cut() {
		_ = c.stopLocked(c.it.back(0, !c.it.once), errEnded)
	}
	if c.over != nil {
		return "", nil, c.over
	}
	for p := b; p != nil; p = p.parent {
		if p.asleep {
			return "", nil, errAsleep
		}
	}
	name = ask.Name
	if _, known := b.recorded[name]; !known && b.recorded[ask.Was] != nil {
		name = ask.Was
	}
	if c.it.guard.inText(name) {
		return "", nil, errLeak()
	}
	if !utf8.ValidString(name) || !nameForm().MatchString(name) || len([]rune(b.prefix+name)) > 200 {
		return "", nil, &run.Failure{
			Code: "NAME_INVALID", Final: true, NotDone: true,
			Err: fmt.Errorf("inner step %q: want letters, digits, _ . : and -, 100 characters at most, and 200 with all that it is in, the id of run.Named included, as UTF-8", b.prefix+name),
		}
	}
	if b.asked[name] {
		return "", nil, c.diverged("the code asks for %s twice: steps of a name are told apart by run.Named", b.prefix+name)
	}
	b.asked[name] = true
	return name, b.recorded[name], nil
}

// anew reports what is wrong with beginning a step that is not recorded: a step that is, here or in a branch around, was passed
// over. Either code has changed, or it does not come to the same steps again.
func (b *branch) anew(name string) error {
	for p := b; p != nil; p = p.parent {
		for p.passed < len(p.order) && p.asked[p.order[p.passed]] {
			p.passed++
		}
		if p.passed < len(p.order) {
			return b.of.diverged("the code asks for %s, which is new, and has passed over %s, which is recorded: new code is a new version, and where the step "+
				"was only renamed the new one says run.Was", b.prefix+name, p.prefix+p.order[p.passed])
		}
	}
	return nil
}

// sleep has the branch end and wait.
func (b *branch) sleep(until time.Time) error {
	c := b.of
	c.mu.Lock()
	defer c.mu.Unlock()
	b.asleep = true
	if c.wake == nil || until.Before(*c.wake) {
		c.wake = &until
	}
	return errAsleep
}

// errGoexit is what a branch has failed with that has ended its goroutine.
var errGoexit = errors.New("the branch called runtime.Goexit, as t.FailNow does")

// Parallel is [runstep.Code]'s.
func (b *branch) Parallel(ctx context.Context, list []runstep.Branch) error {
	children, err := b.fork(list)
	if err != nil {
		return err
	}
	errs, panics := make([]error, len(list)), make([]any, len(list))
	var running sync.WaitGroup
	for i, br := range list {
		running.Go(func() {
			errs[i] = fmt.Errorf("%s: %w", br.Name, errGoexit) // unless it returns
			defer func() { panics[i] = recover() }()
			if errs[i] = br.Do(runstep.WithCode(ctx, children[i])); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", br.Name, errs[i])
			}
		})
	}
	running.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p) // as it would have been outside of a branch
		}
	}
	c := b.of
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, child := range children {
		b.asleep = b.asleep || child.asleep
	}
	if b.asleep {
		return errAsleep
	}
	return joined(errs)
}

// joined is what branches have come to, together: one that has failed is not hidden by one that was skipped, nor said not to have
// been done by one that was not.
func joined(errs []error) error {
	var failed []error
	nothing := true // was done, by all that have failed
	for _, err := range errs {
		if _, skipped := run.Skipped(err); err == nil || skipped {
			continue
		}
		failed = append(failed, err)
		f, ok := errors.AsType[*run.Failure](err)
		nothing = nothing && ok && f.NotDone
	}
	for i, err := range failed {
		if f, ok := errors.AsType[*run.Failure](err); ok && f.NotDone && !nothing {
			failed[i] = &run.Failure{Category: f.Category, Code: f.Code, Final: f.Final, Err: err}
		}
	}
	if failed != nil {
		return errors.Join(failed...)
	}
	return errors.Join(errs...)
}

// fork asks for branches, all at once.
func (b *branch) fork(list []runstep.Branch) ([]*branch, error) {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	var children []*branch
	beside := map[string]bool{}
	for _, br := range list {
		name, r, err := b.ask(br.Ask)
		if err != nil {
			return nil, err
		}
		if r != nil && !r.asBranch {
			return nil, b.of.diverged("the code asks for the branch %s, of which a step is recorded", b.prefix+name)
		}
		child := b.child(name)
		child.beside, beside[name] = beside, true
		children = append(children, child)
	}
	return children, nil
}
