package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	workflow "github.com/deedhq/deed/run"
)

const (
	runsMade       = 1000
	singleWriters  = 64
	writersOfOne   = 16
	appendsAtOnce  = 1000
	projectionSize = 1000 // hints in one delivery
)

// running measures the log of runs: appends by thousands on one connection, one at a time on
// many and through an Appender, and many of one run; and how fast all of it is projected.
func running(ctx context.Context, e *env) error {
	ids, err := e.runningRuns(ctx)
	if err != nil {
		return err
	}
	if err := e.appendThousands(ctx, ids); err != nil {
		return err
	}
	pool, err := e.pool(ctx, singleWriters)
	if err != nil {
		return err
	}
	n, err := e.appendOnes(ctx, pool, singleWriters, func(w, i int) string { return ids[(w+singleWriters*i)%len(ids)] })
	if err != nil {
		return err
	}
	e.record("one at a time, 64 connections", "events/s", n)
	if n, err = e.appendByOne(ctx, pool, ids); err != nil {
		return err
	}
	e.record("one at a time, 64 callers of an Appender", "events/s", n)
	if n, err = e.appendOnes(ctx, pool, writersOfOne, func(int, int) string { return ids[0] }); err != nil {
		return err
	}
	e.record("16 writers of one run", "events/s", n)
	var gaps int
	if err := e.owner.QueryRow(ctx, `select count(*) from (select from deed.run_log group by run_id having count(*) <> max(run_seq)) g`).Scan(&gaps); err != nil {
		return err
	}
	e.expect("runs with a gap", gaps, 0)
	return e.projectAll(ctx, pool, ids)
}

// runningRuns makes runs that take events of steps.
func (e *env) runningRuns(ctx context.Context) (ids []string, err error) {
	err = e.owner.QueryRow(ctx, `
		select array_agg(r.run_id::text) from (
		  select (deed.create_run('bench', '1', g::text, p_tenant => '00000000-0000-0000-0000-000000000000')).run_id from generate_series(1, $1::int) g
		) r`, runsMade).Scan(&ids)
	for _, typ := range []workflow.Type{workflow.RunApproved, workflow.RunStarted} {
		if err == nil {
			_, err = e.owner.Exec(ctx, `
				select from deed.write_events($1::text[]::uuid[], array_fill($2::text, array[$3::int]), array_fill(null::text, array[$3::int]), array_fill(1, array[$3::int]))`, ids, string(typ), runsMade)
		}
	}
	return ids, err
}

func (e *env) appendThousands(ctx context.Context, ids []string) error {
	pool, err := e.pool(ctx, 1)
	if err != nil {
		return err
	}
	_, before, err := e.processorTime(ctx)
	if err != nil {
		return err
	}
	calls := max(1, e.opts.messages/appendsAtOnce)
	began := time.Now()
	for c := range calls {
		events := make([]workflow.New, appendsAtOnce)
		for i := range events {
			events[i] = workflow.New{Run: ids[i%len(ids)], Type: workflow.StepStarted, Step: fmt.Sprint("by-thousands-", c), Attempt: 1}
		}
		if _, err := workflow.Append(ctx, pool, "bench/1", events...); err != nil {
			return err
		}
	}
	took := time.Since(began)
	_, after, err := e.processorTime(ctx)
	if err != nil {
		return err
	}
	n := float64(calls * appendsAtOnce)
	e.record("by thousands, one connection", "events/s", n/took.Seconds())
	e.record("server's processor", "µs/event", float64((after-before).Microseconds())/n)
	return nil
}

// appendOnes has writers append an event each, in transactions of their own, for a while, and
// returns how many there were in a second.
func (e *env) appendOnes(ctx context.Context, pool *pgxpool.Pool, writers int, run func(w, i int) string) (float64, error) {
	return e.eachAppends(writers, fmt.Sprint(writers), run, func(ev workflow.New) error {
		_, err := workflow.Append(ctx, pool, "bench/1", ev)
		return err
	})
}

// appendByOne is appendOnes by an Appender, which gathers what they bring.
func (e *env) appendByOne(ctx context.Context, pool *pgxpool.Pool, ids []string) (float64, error) {
	a, err := workflow.NewAppender(pool, workflow.AppenderOptions{Adapter: "bench/1"})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { _ = a.Run(ctx) })
	defer beside.Wait()
	defer cancel()
	return e.eachAppends(singleWriters, "gathered", func(w, i int) string { return ids[(w+singleWriters*i)%len(ids)] }, func(ev workflow.New) error {
		_, err := a.Append(ctx, ev)
		return err
	})
}

func (e *env) eachAppends(writers int, name string, run func(w, i int) string, do func(workflow.New) error) (float64, error) {
	var n atomic.Int64
	began := time.Now()
	failed := make([]error, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := 0; time.Since(began) < e.opts.business && failed[w] == nil; i++ {
				ev := workflow.New{Run: run(w, i), Type: workflow.StepStarted, Step: fmt.Sprint(name, "-", w, "-", i), Attempt: 1}
				failed[w] = do(ev)
				n.Add(1)
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(began).Seconds(), errors.Join(failed...)
}

func (e *env) projectAll(ctx context.Context, pool *pgxpool.Pool, ids []string) error {
	if err := e.settle(ctx); err != nil {
		return err
	}
	p := workflow.NewProjector(pool, workflow.ProjectorOptions{})
	ms := make([]deed.Message, 0, projectionSize)
	for _, id := range ids {
		ms = append(ms, deed.Message{Payload: fmt.Appendf(nil, `{"runId": %q, "runSeq": 2}`, id), CreatedAt: time.Now()})
	}
	began := time.Now()
	if err := errors.Join(p.Deliver(ctx, ms)...); err != nil {
		return err
	}
	e.record("projected", "events/s", float64(p.Stats().Events)/time.Since(began).Seconds())
	var events int
	if err := e.owner.QueryRow(ctx, `select count(*) from deed.run_log`).Scan(&events); err != nil {
		return err
	}
	e.expect("projected events", int(p.Stats().Events), events)
	return nil
}
