package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// finishEdge is how many finishes are timed at either end, of many.
const finishEdge = 1000

// recordPages measures what it takes to record a page of a lane, at first and
// after very many pages, while a snapshot from before them is held. Each is a
// statement and a transaction, as a worker's; but commits are not waited for,
// since a disk's time would hide what is looked for.
func recordPages(ctx context.Context, e *env) error {
	held, err := pgx.Connect(ctx, e.cluster.URL(e.database))
	if err != nil {
		return err
	}
	defer held.Close(ctx)
	if _, err := held.Exec(ctx, `begin isolation level repeatable read; select count(*) from business`); err != nil {
		return fmt.Errorf("hold a snapshot: %w", err)
	}
	worker, err := pgx.Connect(ctx, e.url())
	if err != nil {
		return err
	}
	defer worker.Close(ctx)
	if _, err := worker.Exec(ctx, `set synchronous_commit = off`); err != nil {
		return err
	}
	l, err := takeLane(ctx, worker)
	if err != nil {
		return err
	}
	n := e.opts.pages
	edge := min(finishEdge, n/4)
	var took []time.Duration
	for _, count := range []int{edge / 10, edge, n - edge/10 - 2*edge, edge} { // the first of these to warm up
		started := time.Now()
		for range count {
			if err := l.finish(ctx, worker); err != nil {
				return err
			}
		}
		took = append(took, time.Since(started)/time.Duration(max(count, 1)))
	}
	e.record("finish, the first", "µs", float64(took[1].Nanoseconds())/1e3)
	e.record("finish, the last", "µs", float64(took[3].Nanoseconds())/1e3)
	e.record("the last by the first", "times", took[3].Seconds()/took[1].Seconds())
	var rows int
	err = e.owner.QueryRow(ctx, `select count(*) from deed.progress where lane = $1 and messages = 1 and total = n - $2`, l.no, l.taken).Scan(&rows)
	e.expect("pages that were recorded one after the other", rows, n)
	if err != nil {
		return err
	}
	return e.expectStored(ctx, 0, n)
}

// takenLane is a lane that records pages of one message each, without reading
// them.
type takenLane struct {
	sub, no  int
	fence    int64
	taken    int64 // the number of the row with which it was taken
	n        int64
	from, to int64 // windows
	fromH    string
	toH      string
	slot     int
	id       int64
	was      string
}

// takeLane takes the lanes of the stream and opens a window, up to which the
// first one is as if it were being read.
func takeLane(ctx context.Context, conn *pgx.Conn) (*takenLane, error) {
	l := &takenLane{}
	err := conn.QueryRow(ctx, `
		select t.subscription, t.lane, t.fence, t.slot_from
		from deed.subscriptions s
		cross join lateral deed.take_lanes(gen_random_uuid(), 'bench', array[s.id], p_protocol => 2) t
		where s.topic = 'bench'
		order by t.lane
		limit 1`).Scan(&l.sub, &l.no, &l.fence, &l.slot)
	if err != nil {
		return nil, fmt.Errorf("take lanes: %w", err)
	}
	if err := conn.QueryRow(ctx, `select deed.open_window()`).Scan(&l.to); err != nil {
		return nil, fmt.Errorf("open a window: %w", err)
	}
	err = conn.QueryRow(ctx, `
		select g.n, g.from_window, f.h::text, t.h::text, concat_ws('/', g.from_window, 0, g.slot, g.id)
		from deed.progress g
		join deed.windows f on f.n = g.from_window
		join deed.windows t on t.n = $3
		where g.subscription = $1 and g.lane = $2
		order by g.n desc
		limit 1`, l.sub, l.no, l.to).Scan(&l.n, &l.from, &l.fromH, &l.toH, &l.was)
	if err != nil {
		return nil, fmt.Errorf("read the lane's position: %w", err)
	}
	l.taken = l.n
	return l, nil
}

// finish records the next page.
func (l *takenLane) finish(ctx context.Context, conn *pgx.Conn) error {
	l.id++
	var n *int64
	err := conn.QueryRow(ctx, `
		select n from deed.finish_page($1, $2, $3, $4, $5, $6, $7::text::xid8, $8, $9::text::xid8, $10, $11, 1, $11, $11, 'bench')`,
		l.sub, l.no, l.fence, l.n, l.was, l.from, l.fromH, l.to, l.toH, l.slot, l.id).Scan(&n)
	if err != nil {
		return fmt.Errorf("finish page %d: %w", l.id, err)
	}
	if n == nil {
		return fmt.Errorf("finish page %d: not recorded", l.id)
	}
	l.n = *n
	l.was = fmt.Sprintf("%d/%d/%d/%d", l.from, l.to, l.slot, l.id)
	return nil
}
