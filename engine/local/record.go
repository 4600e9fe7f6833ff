package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run"
)

// record is what became of an inner step, as deed.record_steps takes it.
type record struct {
	it      *item
	name    string
	attempt int
	outcome string
	data    map[string]any
	started time.Time
	again   *float64 // seconds
	answer  chan answer
}

// answer is what was said of a record.
type answer struct {
	said
	err error
}

// said is a row of deed.record_steps.
type said struct {
	result string
	until  *time.Time
}

func (i *inner) note(outcome string, data map[string]any) *record {
	return &record{it: i.b.of.it, name: i.name, attempt: i.attempt, outcome: outcome, data: data, started: i.started, answer: make(chan answer, 1)}
}

// record records the end of i.
func (i *inner) record(outcome string, data map[string]any) error {
	_, err := i.tell(i.note(outcome, data))
	return err
}

// fallAsleep records that i sleeps from now on, and has the branch end.
func (i *inner) fallAsleep(d time.Duration) error {
	r := i.note("waiting", map[string]any{})
	seconds := d.Seconds()
	r.again = &seconds
	s, err := i.tell(r)
	if err != nil {
		return err
	}
	return i.b.sleep(*s.until)
}

// tell has r recorded. While the database is away it is tried again while the lease lasts, whether or not the step's time is over, or that of who has asked
// for i; what the database refuses has failed. The code ends where nothing is recorded.
func (i *inner) tell(r *record) (said, error) {
	c := i.b.of
	for n := 1; ; n++ {
		s, err := c.e.inner.write(r)
		switch {
		case err == nil && s.result == "lost":
			return s, c.lost()
		case err == nil:
			return s, nil
		case errors.Is(err, errSilent):
			return s, c.stop(c.it.back(0, !c.it.once), err)
		case !passing(err) && r.outcome != "failed":
			f := &run.Failure{Code: "OUTPUT_REFUSED", Final: true, Err: errors.New("what it returned cannot be stored: " + deed.WrapError("record step", err).Error())}
			return s, i.failed(f)
		case !passing(err):
			return s, c.stop(c.it.failed(fmt.Errorf("that %s has failed cannot be stored: %w", r.name, err), c.it.started), err)
		}
		if !c.it.once && !c.lasts() {
			return s, c.stop(c.it.back(0, true), err) // somebody else may have it by now
		}
		c.e.about(c.it).Warn("the end of an inner step was not recorded; it is tried again", "inner", r.name, "error", err)
		if !c.pause(work.Backoff(n, 50*time.Millisecond, 5*time.Second)) {
			return s, c.stop(c.it.back(0, !c.it.once), err)
		}
	}
}

// errLost is what the code gets whose step is another's by now.
var errLost = errors.New("the step is another's by now: nothing of this is recorded")

// lost has the code end: what it did is not recorded, which the log has with the step's own end.
func (c *code) lost() error {
	return c.stop(c.it.back(0, true), errLost)
}

// recordPooled records list in a statement of its own.
func (e *Engine) recordPooled(ctx context.Context, list []*record) ([]said, error) {
	crash.Point("recording")
	answers, err := e.recordIn(ctx, e.pool, list)
	crash.Point("recorded")
	return answers, err
}

// recordIn records list through db, and returns what was said of each.
func (e *Engine) recordIn(ctx context.Context, db deed.DB, list []*record) ([]said, error) {
	n := len(list)
	runs, places, claims, names, attempts, outcomes := make([]string, n), make([]int, n), make([]int64, n), make([]string, n), make([]int, n), make([]string, n)
	data, started, again := make([]string, n), make([]time.Time, n), make([]*float64, n)
	for k, r := range list {
		runs[k], places[k], claims[k], names[k], attempts[k], outcomes[k] = r.it.run, r.it.place, r.it.claim, r.name, r.attempt, r.outcome
		started[k], again[k] = r.started, r.again
		text, err := json.Marshal(r.data)
		if err != nil {
			return nil, &deed.Error{Op: "record step", Code: deed.Invalid, Err: fmt.Errorf("the end of inner step %s: %w", r.name, err)}
		}
		data[k] = string(text)
	}
	ctx, cancel := e.budgeted(ctx)
	defer cancel()
	rows, err := db.Query(ctx, codeQuery.Record, runs, places, claims, names, attempts, outcomes, data, started, again, e.opts.Lease.Seconds(), adapter)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s said, err error) {
		err = row.Scan(&s.result, &s.until)
		return s, err
	})
}
