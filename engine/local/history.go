package local

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/sqlfile"
	"github.com/deedhq/deed/run"
)

//go:embed code.sql
var codeText string

// codeQuery holds the statements of code.sql; read-only.
var codeQuery = sqlfile.Load[codeStatements](codeText)

// codeStatements are those of code.sql, in its order.
type codeStatements struct{ Record, History string }

// cutShort are the codes of attempts in which an inner step may have been called, and its end not recorded.
var cutShort = []string{"OUTCOME_UNKNOWN", "PANIC", "WORKER_LOST"}

// historyPage is how many events of inner steps are read at once.
const historyPage = 1000

// recorded is what the log has of an inner step: its newest attempt.
type recorded struct {
	attempt  int
	of       int // the outer step's attempt in which that was
	typ      run.Type
	first    int64 // the number of its first event
	last     int64
	output   json.RawMessage
	failure  run.Error
	reason   string
	notDone  bool
	keyN     int        // of one that has failed: n of its key
	until    *time.Time // until when it sleeps
	due      bool       // which was over when this was read
	begun    time.Time
	asBranch bool // it is a branch, and not a step
}

// history reads what is recorded of it's inner steps into c.
func (c *code) history(ctx context.Context) error {
	after := int64(0)
	for {
		n, last, err := c.historyAfter(ctx, after)
		if err != nil || n < historyPage {
			return err
		}
		after = last
	}
}

func (c *code) historyAfter(ctx context.Context, after int64) (n int, last int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.e.opts.Deadline)
	defer cancel()
	rows, err := c.e.pool.Query(ctx, codeQuery.History, c.it.run, after, c.it.step, historyPage)
	if err != nil {
		return 0, 0, err
	}
	var name, typ, reason string
	var output, failure []byte
	var r recorded
	var engine int
	_, err = pgx.ForEachRow(rows, []any{&name, &typ, &r.attempt, &engine, &last, &r.begun, &r.of, &output, &failure, &reason, &r.notDone, &r.keyN, &r.until, &r.due}, func() error {
		n++
		r.typ, r.last, r.reason = run.Type(typ), last, reason
		r.output, r.failure = append(json.RawMessage(nil), output...), run.Error{}
		if len(failure) > 0 {
			if err := json.Unmarshal(failure, &r.failure); err != nil {
				return fmt.Errorf("the error of step %s: %w", name, err)
			}
		}
		if name == c.it.step {
			// Of an attempt that was begun anew it is not known, either, however it has ended: what was called before that need not have come again.
			if slices.Contains(cutShort, r.failure.Code) || engine > 1 && !c.it.once {
				c.unsure = r.attempt
			}
			return nil
		}
		c.root.remember(strings.Split(strings.TrimPrefix(name, c.it.step+"/"), "/"), r)
		return nil
	})
	return n, last, err
}

// remember notes an event of the inner step at path.
func (b *branch) remember(path []string, r recorded) {
	name := path[0]
	known, ok := b.recorded[name]
	if !ok {
		known = &recorded{first: r.last, asBranch: len(path) > 1}
		b.recorded[name] = known
		b.order = append(b.order, name)
	}
	if len(path) > 1 {
		known.last = r.last
		b.child(name).remember(path[1:], r)
		return
	}
	first, begun := known.first, known.begun
	if r.typ == run.StepStarted || r.attempt > known.attempt {
		begun = r.begun
	}
	until, due := r.until, r.due
	if r.typ != run.StepStarted && r.attempt == known.attempt {
		until, due = known.until, known.due
	}
	*known = r
	known.first, known.begun, known.until, known.due = first, begun, until, due
}

// nextKey is n of the key of the attempt after one that has failed. One that was no attempt's before is above all that were, and no higher
// than the outer step's attempt: each has one of the inner step at the most.
func (r *recorded) nextKey() int {
	if r.notDone {
		return max(r.attempt, r.keyN) + 1
	}
	return r.keyN
}

// ended reports whether the newest attempt has.
func (r *recorded) ended() bool { return r.typ != "" && r.typ != run.StepStarted }

// result is what the code gets of an attempt that has ended.
func (r *recorded) result() (json.RawMessage, error) {
	switch r.typ {
	case run.StepFailed:
		return nil, &run.Failure{Category: r.failure.Category, Code: r.failure.Code, Final: !r.failure.Retryable, NotDone: r.notDone, Err: errors.New(r.failure.Message)}
	case run.StepSkipped:
		return nil, run.Skip(r.reason)
	}
	return r.output, nil
}

// stands reports whether a failure in an attempt of the outer step before this one is a part of the run: code has gone on
// after it. One that code has ended with is tried again.
func (b *branch) stands(name string, failed *recorded) bool {
	for other, r := range b.recorded {
		if other != name && max(r.first, branchLast(r)) > failed.last {
			return true
		}
	}
	for child := b; child.parent != nil; child = child.parent {
		for other, r := range child.parent.recorded {
			if !child.beside[other] && r.first > failed.last { // branches beside it prove nothing
				return true
			}
		}
	}
	return false
}

// branchLast is the number of the newest event in a branch; 0 for a step.
func branchLast(r *recorded) int64 {
	if r.asBranch {
		return r.last
	}
	return 0
}
