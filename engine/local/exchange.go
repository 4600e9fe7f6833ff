package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// Limit lets the loop take as many as it has room for.
func (e *Engine) Limit(n int) (int, time.Duration) { return n, 0 }

// Exchange records what became of steps, and claims more, in one round trip; what has an effect in the
// database before, in a transaction with it. The same outcomes again are harmless: an end is recorded once, by its claim.
func (e *Engine) Exchange(ctx context.Context, done []work.Done[*item], n int) (claimed []*item, next time.Duration, err error) {
	var plain, effects []*ending
	for _, d := range done {
		end := endOf(d)
		switch {
		case d.Item.recorded:
		case end.message != nil || end.owed != nil:
			effects = append(effects, end)
		default:
			plain = append(plain, end)
		}
	}
	if err := e.settle(ctx, effects); err != nil {
		return nil, 0, err
	}
	claimed, next, err = e.exchange(ctx, plain, n)
	if err == nil || passing(err) || len(plain) == 0 {
		return claimed, next, err
	}
	if err := e.each(ctx, plain, err); err != nil {
		return nil, 0, err
	}
	return e.exchange(ctx, nil, n)
}

// passing reports whether a repeat may cure err.
func passing(err error) bool {
	return deed.CodeOf(err) == deed.Internal && (sqlstate.Passing(err) || sqlstate.Again(err))
}

// endOf is what became of a step.
func endOf(d work.Done[*item]) *ending {
	it := d.Item
	switch {
	case d.Released && it.end == nil && d.Err == nil:
		return it.unbegun(0)
	case d.Released && it.end == nil:
		return it.back(0, !it.once) // a panic
	case d.Released:
		end := it.back(0, it.end.notDone)
		if it.end.outcome == end.outcome {
			end.data = it.end.data // whether it was begun
		}
		return end
	case it.end == nil:
		return it.asked(it.failed(d.Err, time.Time{})) // a panic
	}
	return it.end
}

// exchange records ends and claims up to n steps.
func (e *Engine) exchange(ctx context.Context, ends []*ending, n int) (claimed []*item, next time.Duration, err error) {
	b := &pgx.Batch{}
	if len(ends) > 0 {
		args, err := finishArgs(ends)
		if err != nil {
			return nil, 0, err
		}
		b.Queue(query.Finish, args...)
	}
	if n > 0 {
		b.Queue(query.Claim, e.queues, e.opts.Worker, n, e.opts.Lease.Seconds(), nullIfEmpty(e.after), e.suspects.none())
		b.Queue(query.Next)
	}
	if b.Len() == 0 {
		return nil, 0, nil
	}
	at := time.Now()
	crash.Point("exchanging")
	if len(ends) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = e.budgeted(ctx)
		defer cancel()
	}
	results := e.pool.SendBatch(ctx, b)
	var said []string
	var wait *float64
	if len(ends) > 0 {
		said, err = collect[string](results)
	}
	if err == nil && n > 0 {
		claimed, err = e.claimed(results, at)
	}
	if err == nil && n > 0 {
		wait, err = first[float64](results)
	}
	if err = errors.Join(err, results.Close()); err != nil {
		return nil, 0, err
	}
	crash.Point("exchanged")
	e.count(ends, said)
	e.suspects.took(claimed, at.Add(e.opts.Lease))
	return claimed, e.lookAgain(wait), nil
}

// lookAgain is in what time to claim again where nothing was claimed, if the next that waits for its time is due in so many seconds; nil: nothing does.
func (e *Engine) lookAgain(wait *float64) time.Duration {
	next := e.opts.PollInterval/2 + rand.N(e.opts.PollInterval)
	if wait != nil { // bounded first: until the year 9999 are more seconds than a Duration holds
		next = max(time.Duration(min(*wait, next.Seconds())*float64(time.Second)), time.Millisecond)
	}
	return next
}

func nullIfEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func collect[T any](results pgx.BatchResults) ([]T, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

func first[T any](results pgx.BatchResults) (*T, error) {
	list, err := collect[T](results)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// claimed are the steps that were claimed, and which tenant the next claim goes on behind.
func (e *Engine) claimed(results pgx.BatchResults, at time.Time) ([]*item, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	last, round := "", ""
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*item, error) {
		it := &item{at: at}
		var owner string
		err := row.Scan(&it.run, &it.place, &it.claim, &owner, &it.step, &it.attempt, &it.engine, &it.lost, &it.keyN, &it.once, &it.parked, &it.verdict, &it.begun,
			&it.plan, &it.version, &it.hash, (*[]byte)(&it.input))
		if err == nil {
			it.tenant, err = tenant.Parse(owner)
		}
		last = max(last, owner)
		if owner <= e.after {
			round = max(round, owner) // it has gone round
		}
		return it, err
	})
	if round != "" {
		last = round
	}
	if last != "" {
		e.after = last
	}
	return items, err
}

// finishArgs are ends as deed.finish_steps takes them.
func finishArgs(ends []*ending) ([]any, error) {
	n := len(ends)
	runs, places, claims, steps, attempts, outcomes := make([]string, n), make([]int, n), make([]int64, n), make([]string, n), make([]int, n), make([]string, n)
	data, started, notDone, again, until := make([]*string, n), make([]*time.Time, n), make([]bool, n), make([]*float64, n), make([]pgtype.Timestamptz, n)
	for i, end := range ends {
		it := end.it
		runs[i], places[i], claims[i], steps[i], attempts[i], outcomes[i] = it.run, it.place, it.claim, it.step, it.attempt, end.outcome
		notDone[i], again[i] = end.notDone, end.again
		switch {
		case end.woken:
			until[i] = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
		case end.until != nil:
			until[i] = pgtype.Timestamptz{Time: *end.until, Valid: true}
		}
		if !end.started.IsZero() {
			started[i] = &end.started
		}
		if end.data != nil {
			text, err := json.Marshal(end.data)
			if err != nil {
				return nil, fmt.Errorf("the end of step %s: %w", it.step, err)
			}
			s := string(text)
			data[i] = &s
		}
	}
	return []any{runs, places, claims, steps, attempts, outcomes, data, started, notDone, again, until, adapter}, nil
}

// adapter is what events say of who has appended them.
const adapter = "local/1"

// finish records ends through db, and returns what was said of each.
func (e *Engine) finish(ctx context.Context, db deed.DB, ends []*ending) ([]string, error) {
	args, err := finishArgs(ends)
	if err != nil {
		return nil, err
	}
	ctx, cancel := e.budgeted(ctx)
	defer cancel()
	rows, err := db.Query(ctx, query.Finish, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// each records ends one by one, of which together one is refused: no step fails for another.
func (e *Engine) each(ctx context.Context, ends []*ending, together error) error {
	for _, end := range ends {
		said, err := e.finish(ctx, e.pool, []*ending{end})
		if err != nil && !passing(err) && end.instead != nil {
			e.about(end.it).Warn("the output of a step cannot be stored; less of it is", "error", err)
			end.data["output"], end.instead = end.instead, nil
			said, err = e.finish(ctx, e.pool, []*ending{end})
		}
		if err != nil && !passing(err) {
			e.about(end.it).Error("the outcome of a step cannot be stored; the step has failed", "error", err)
			refused := end.it.failed(&run.Failure{Code: "OUTPUT_REFUSED", Final: true, Err: errors.New("what it returned cannot be stored: " + deed.WrapError("record step", err).Error())}, end.started)
			said, err = e.finish(ctx, e.pool, []*ending{refused})
		}
		if err != nil && !passing(err) {
			e.about(end.it).Error("that a step has failed cannot be stored; it is begun again when its lease is over", "error", err, "first", together)
			continue
		}
		if err != nil {
			return err
		}
		end.it.recorded = true
		e.count([]*ending{end}, said)
	}
	return nil
}

// Extend renews the leases of held.
func (e *Engine) Extend(ctx context.Context, held []*item) (lost []*item, err error) {
	n, at := len(held), time.Now()
	runs, places, claims := make([]string, n), make([]int, n), make([]int64, n)
	for i, it := range held {
		runs[i], places[i], claims[i] = it.run, it.place, it.claim
	}
	rows, err := e.pool.Query(ctx, query.Extend, runs, places, claims, e.opts.Lease.Seconds())
	if err != nil {
		return nil, err
	}
	kept, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, err
	}
	still := make([]bool, n)
	for _, k := range kept {
		still[k-1] = true
	}
	for i, it := range held {
		if still[i] {
			e.suspects.kept(it, at.Add(e.opts.Lease))
		} else {
			lost = append(lost, it)
		}
	}
	return lost, nil
}

// count counts what was recorded, and tells the log of what failed.
func (e *Engine) count(ends []*ending, said []string) {
	for i, end := range ends {
		switch {
		case end.outcome == "released" && said[i] != "lost":
			e.released.Add(1)
		case end.outcome == "offered" && said[i] != "lost":
		case said[i] == "lost":
			e.lost.Add(1)
			e.about(end.it).Warn("the step was another's by the time it ended; nothing is recorded")
		case end.outcome == "completed":
			e.done.Add(1)
		case end.outcome == "skipped":
			e.skipped.Add(1)
		case end.outcome == "failed":
			e.failed.Add(1)
			failure, _ := end.data["error"].(run.Error)
			e.about(end.it).Warn("step failed", "code", failure.Code, "retryable", failure.Retryable)
		}
	}
}

// about returns a log whose lines name a step.
func (e *Engine) about(it *item) *slog.Logger {
	return e.opts.Logger.With("run", it.run, "step", it.step, "attempt", it.attempt, "engine_attempt", it.engine, "tenant", it.tenant)
}
