package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
)

// idleTopics are the streams of the worker that has nothing to do.
const idleTopics = 50

// idle measures what a worker of many streams takes while nothing is published:
// statements, and time of the processor, its own and its sessions'.
func idle(ctx context.Context, e *env) error {
	pool, err := e.pool(ctx, workerConns)
	if err != nil {
		return err
	}
	h := newHands(0)
	var opts deed.Options
	for i := range idleTopics {
		name := fmt.Sprintf("idle-%d", i)
		opts.Topics = append(opts.Topics, deed.Topic{Name: name, Mode: deed.ModeStream})
		opts.Subscriptions = append(opts.Subscriptions, deed.Subscription{Topic: name, Name: "handler", Sink: countingSink{h.handle}})
	}
	w, err := startClient(ctx, pool, opts)
	if err != nil {
		return err
	}
	err = e.observeIdle(ctx)
	if err := errors.Join(err, w.stop()); err != nil {
		return err
	}
	e.expect("calls of the handler", int(h.calls.Load()), 0)
	return e.expectStored(ctx, 0, 0)
}

// observeIdle waits until the worker holds all lanes, knows that nothing was
// published before, and has slowed down, which takes it two or three seconds; and
// then counts.
func (e *env) observeIdle(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	if err := e.lanesShared(waiting, 1, idleTopics*4); err != nil {
		return err
	}
	for owing := true; owing; time.Sleep(20 * time.Millisecond) {
		if err := e.owner.QueryRow(waiting, `select exists (select from deed.backfills where finished_at is null)`).Scan(&owing); err != nil {
			return fmt.Errorf("wait for the subscriptions' beginnings: %w", err)
		}
	}
	time.Sleep(e.opts.idle / 2)
	began, sent, windows := time.Now(), e.sent.n.Load(), 0
	own, sessions, err := e.processorTime(ctx)
	if err != nil {
		return err
	}
	if err := e.owner.QueryRow(ctx, `select count(*) from deed.windows`).Scan(&windows); err != nil {
		return err
	}
	time.Sleep(e.opts.idle)
	took := time.Since(began).Seconds()
	e.record("statements", "a second", float64(e.sent.n.Load()-sent)/took)
	ownNow, sessionsNow, err := e.processorTime(ctx)
	if err != nil {
		return err
	}
	if sessionsNow > 0 {
		e.record("processor", "% of a core", 100*(ownNow+sessionsNow-own-sessions).Seconds()/took)
		e.record("the program's part", "%", 100*(ownNow-own).Seconds()/took)
	}
	var opened int
	err = e.owner.QueryRow(ctx, `select count(*) - $1 from deed.windows`, windows).Scan(&opened)
	e.expect("windows that were opened", opened, 0)
	return err
}

// processorTime is what this program has taken so far, and the plain login's
// sessions, which is 0 where it is not known: elsewhere than on Linux.
func (e *env) processorTime(ctx context.Context) (own, sessions time.Duration, err error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, 0, fmt.Errorf("getrusage: %w", err)
	}
	own = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	sessions, err = e.sessionsTime(ctx, "")
	return own, sessions, err
}

// sessionsTime is what the plain login's sessions of an application_name have taken so far, of any if that is empty; 0 where it is not known.
func (e *env) sessionsTime(ctx context.Context, name string) (sum time.Duration, err error) {
	rows, err := e.owner.Query(ctx, `select pid from pg_stat_activity where datname = current_database() and usename = $1 and $2 in ('', application_name)`, login, name)
	if err != nil {
		return 0, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		sum += ticks(string(text))
	}
	return sum, nil
}

// ticks adds up utime and stime of a line of /proc/PID/stat, which are the 14th
// and 15th fields; the second one is in parentheses and may contain blanks.
func ticks(stat string) (sum time.Duration) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	for _, i := range []int{11, 12} {
		if i < len(fields) {
			n, _ := strconv.Atoi(fields[i])
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}
