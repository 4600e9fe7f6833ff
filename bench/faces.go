package main

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/schema"
)

// faceBatch is how many messages a call claims, and marks delivered.
const faceBatch = 100

// faceConns are how many workers claim at once, one figure each.
var faceConns = []int{1, 4}

//go:embed seed004.sql
var seed004SQL string

// facePeers are what speaks the app face's SQL: deed, and the table with two
// functions that the face is called after.
var facePeers = []peer{faceDeed{}, faceSeed{}}

// faceDeed is deed with the face app.
type faceDeed struct{ bare }

func (faceDeed) name() string     { return deedPeer{}.name() }
func (faceDeed) template() string { return "deed_app" }

func (faceDeed) install(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := schema.Up(ctx, conn.Conn()); err != nil {
		return err
	}
	_, err = schema.InstallFaces(ctx, conn.Conn(), []string{"app"}, nil)
	return err
}

func (faceDeed) grant(ctx context.Context, pool *pgxpool.Pool) error {
	return deedPeer{}.grant(ctx, pool)
}

func (faceDeed) stored(ctx context.Context, conn *pgx.Conn) (waiting, finished int, err error) {
	return deedPeer{}.stored(ctx, conn)
}

func (faceDeed) fillSQL() string {
	return `select count(*) from deed.publish_many(
	  array_fill('bench'::text, array[$1::int]),
	  array(select convert_to(jsonb_build_object('n', n, 'pad', $2::text)::text, 'UTF8') from generate_series(1, $1::int) n))`
}

// faceSeed is the table and its functions.
type faceSeed struct{ bare }

func (faceSeed) name() string     { return "seed 004" }
func (faceSeed) template() string { return "seed004" }

func (faceSeed) install(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, seed004SQL)
	return err
}

func (faceSeed) grant(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `grant usage on schema app to `+login+`; grant select, insert, update on public.outbox to `+login)
	return err
}

func (faceSeed) stored(ctx context.Context, conn *pgx.Conn) (waiting, finished int, err error) {
	err = conn.QueryRow(ctx, `
		select count(*) filter (where delivered_at is null), count(*) filter (where delivered_at is not null) from public.outbox`).Scan(&waiting, &finished)
	return waiting, finished, err
}

func (faceSeed) fillSQL() string {
	return `with made as (
	  insert into public.outbox (topic, payload)
	  select 'bench', jsonb_build_object('n', n, 'pad', $2::text) from generate_series(1, $1::int) n returning 1
	)
	select count(*) from made`
}

// claimAndMark measures how many messages a second are claimed and marked
// delivered through the app face's two functions, among a backlog that is topped
// up again and again.
func claimAndMark(ctx context.Context, e *env) error {
	stored, finished := 0, 0
	for _, backlog := range e.opts.backlog {
		for _, conns := range faceConns {
			pool, err := e.pool(ctx, conns)
			if err != nil {
				return err
			}
			var took time.Duration
			marked := 0
			for took < e.opts.business && marked < e.opts.messages {
				if err := e.topUp(ctx, backlog-(stored-finished)); err != nil {
					return err
				}
				stored = max(stored, finished+backlog)
				if marked == 0 {
					if err := e.settle(ctx); err != nil {
						return err
					}
				}
				n, d, err := e.claimRound(ctx, pool, conns, min(backlog/2, e.opts.messages-marked), e.opts.business-took)
				if err != nil {
					return err
				}
				took, marked, finished = took+d, marked+n, finished+n
			}
			e.record(fmt.Sprintf("%d pending, %d conns", backlog, conns), "messages/s", float64(marked)/took.Seconds())
		}
	}
	return e.expectStored(ctx, stored-finished, finished)
}

// topUp stores n messages more, in transactions of ten thousand.
func (e *env) topUp(ctx context.Context, n int) error {
	sql := e.peer.(interface{ fillSQL() string }).fillSQL()
	for n > 0 {
		step := min(n, 10_000)
		var made int
		if err := e.owner.QueryRow(ctx, sql, step, pad).Scan(&made); err != nil {
			return err
		}
		if made != step {
			return fmt.Errorf("stored %d messages, want %d", made, step)
		}
		n -= made
	}
	return nil
}

// claimRound has workers claim and mark until about quota messages are marked or
// the time is over; two round trips a batch.
func (e *env) claimRound(ctx context.Context, pool *pgxpool.Pool, workers, quota int, limit time.Duration) (int, time.Duration, error) {
	var mu sync.Mutex
	var firstErr error
	marked := 0
	started := time.Now()
	more := func(n int, err error) bool {
		mu.Lock()
		defer mu.Unlock()
		marked += n
		if firstErr == nil {
			firstErr = err
		}
		return firstErr == nil && marked < quota && time.Since(started) < limit
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			token := fmt.Sprintf("00000000-0000-4000-8000-%012d", w+1)
			for more(e.claimBatch(ctx, pool, token)) {
			}
		})
	}
	wg.Wait()
	return marked, time.Since(started), firstErr
}

func (e *env) claimBatch(ctx context.Context, pool *pgxpool.Pool, token string) (int, error) {
	rows, err := pool.Query(ctx, `select id::text, topic, payload from app.outbox_claim($1, $2::text::uuid, null)`, faceBatch, token)
	if err != nil {
		return 0, err
	}
	ids := make([]string, 0, faceBatch)
	var id, topic string
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &topic, &payload}, func() error {
		ids = append(ids, id)
		return nil
	})
	if err != nil {
		return 0, err
	}
	var n int
	err = pool.QueryRow(ctx, `select app.outbox_mark_delivered($1::text::uuid, $2::text[]::uuid[])`, token, ids).Scan(&n)
	if err == nil && (n != len(ids) || n == 0) {
		err = fmt.Errorf("marked %d of %d", n, len(ids))
	}
	return n, err
}
