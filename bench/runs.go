package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
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
	longShare      = 10   // of the messages: so many events does the long run have
	longEdge       = 500  // events that are timed at either end of it
)

// running measures the log of runs: appends by thousands on one connection, one at a time on
// many and through an Appender, many of one run, and a long run beside a snapshot that is held; what
// an event takes of the disk; and how fast all of it is projected.
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
	spread := func(w, i int) string { return ids[(w+singleWriters*i)%len(ids)] }
	one := func(int, int) string { return ids[0] }
	for _, m := range []struct {
		metric  string
		writers int
		run     func(w, i int) string
		take    func(context.Context, *pgxpool.Pool, int, func(w, i int) string) (float64, error)
	}{
		{"one at a time, 64 connections", singleWriters, spread, e.appendOnes},
		{"one at a time, 64 callers of an Appender", singleWriters, spread, e.appendByOne},
		{"16 writers of one run", writersOfOne, one, e.appendOnes},
		{"16 callers of an Appender, of one run", writersOfOne, one, e.appendByOne},
	} {
		n, err := m.take(ctx, pool, m.writers, m.run)
		if err != nil {
			return fmt.Errorf("%s: %w", m.metric, err)
		}
		e.record(m.metric, "events/s", n)
	}
	if err := e.appendLong(ctx, ids[1]); err != nil {
		return err
	}
	if err := e.recordSize(ctx); err != nil {
		return err
	}
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
	written, err := e.written(ctx)
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
	writtenThen, err := e.written(ctx)
	if err != nil {
		return err
	}
	n := float64(calls * appendsAtOnce)
	e.record("by thousands, one connection", "events/s", n/took.Seconds())
	e.record("server's processor", "µs/event", float64((after-before).Microseconds())/n)
	e.record("WAL, by thousands", "bytes/event", float64(writtenThen-written)/n)
	return nil
}

// written is how many bytes of WAL there are, since ever.
func (e *env) written(ctx context.Context) (n int64, err error) {
	err = e.owner.QueryRow(ctx, `select (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&n)
	return n, err
}

// recordSize records what an event takes in its run's log, with the indexes; that of its message is not in it.
func (e *env) recordSize(ctx context.Context) error {
	var size float64
	err := e.owner.QueryRow(ctx, `
		select (select sum(pg_total_relation_size(i.inhrelid)) from pg_inherits i where i.inhparent = 'deed.run_log'::regclass)::float8 / (select count(*) from deed.run_log)`).Scan(&size)
	e.record("table and indexes", "bytes/event", size)
	return err
}

// appendLong appends to one run until it is long, an event at a time, while a snapshot from before is held: what
// one takes among the first, and what among the last.
func (e *env) appendLong(ctx context.Context, id string) error {
	held, err := pgx.Connect(ctx, e.cluster.URL(e.database))
	if err != nil {
		return err
	}
	defer held.Close(ctx)
	if _, err := held.Exec(ctx, `begin isolation level repeatable read; select count(*) from deed.runs`); err != nil {
		return fmt.Errorf("hold a snapshot: %w", err)
	}
	pool, err := e.pool(ctx, 1)
	if err != nil {
		return err
	}
	// Commits are not waited for: a disk's time would hide what is looked for.
	if _, err := pool.Exec(ctx, `set synchronous_commit = off`); err != nil {
		return err
	}
	n := max(20, e.opts.messages/longShare)
	edge := min(longEdge, n/4)
	took := make([]time.Duration, n)
	for i := range took {
		ev := workflow.New{Run: id, Type: workflow.StepStarted, Step: fmt.Sprint("long-", i), Attempt: 1}
		began := time.Now()
		if _, err := workflow.Append(ctx, pool, "bench/1", ev); err != nil {
			return err
		}
		took[i] = time.Since(began)
	}
	middle := func(list []time.Duration) float64 { return slices.Sorted(slices.Values(list))[len(list)/2].Seconds() }
	first, last := middle(took[edge/2:edge/2+edge]), middle(took[n-edge:]) // what is before warms up
	e.record("a long run, the first", "µs/event", first*1e6)
	e.record("a long run, the last", "µs/event", last*1e6)
	e.record("a long run, the last by the first", "times", last/first)
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
func (e *env) appendByOne(ctx context.Context, pool *pgxpool.Pool, writers int, run func(w, i int) string) (float64, error) {
	a, err := workflow.NewAppender(pool, workflow.AppenderOptions{Adapter: "bench/1"})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { _ = a.Run(ctx) })
	defer beside.Wait()
	defer cancel()
	return e.eachAppends(writers, fmt.Sprint("gathered-", writers), run, func(ev workflow.New) error {
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
