package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// loopPeer is the least that SQL can do: a table, and one connection that goes
// through it. It promises nothing of order, retries, late commits or two
// workers; it is the floor to compare with.
type loopPeer struct {
	label  string
	what   string
	schema string
	insert string // $1: payloads
	// take handles up to a batch in one transaction and says how many; begin
	// prepares a table in use.
	take func(ctx context.Context, tx pgx.Tx, handle func(int)) (int, error)
	left string
	done string
}

func (p loopPeer) name() string     { return p.label }
func (p loopPeer) template() string { return "loop_" + p.label[:3] }
func (p loopPeer) tuning() string   { return p.what }

func (p loopPeer) install(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, p.schema)
	return err
}

func (p loopPeer) grant(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `
		grant all on all tables in schema public to `+login+`;
		grant all on all sequences in schema public to `+login)
	return err
}

func (p loopPeer) publisher(pool *pgxpool.Pool) (publisher, error) {
	return loopPublisher{p, pool}, nil
}

type loopPublisher struct {
	loopPeer
	pool *pgxpool.Pool
}

func notePayload(n int) string { return fmt.Sprintf(`{"n":%d,"pad":"%s"}`, n, pad) }

func (p loopPublisher) one(ctx context.Context, tx pgx.Tx, n int) error {
	_, err := tx.Exec(ctx, p.insert, []string{notePayload(n)})
	return err
}

func (p loopPublisher) many(ctx context.Context, from, count int) error {
	payloads := make([]string, count)
	for i := range payloads {
		payloads[i] = notePayload(from + i)
	}
	_, err := p.pool.Exec(ctx, p.insert, payloads)
	return err
}

func (p loopPeer) work(ctx context.Context, pool *pgxpool.Pool, handle func(int)) (worker, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &loopWorker{pool: pool, cancel: cancel, left: p.left}
	w.running.Go(func() {
		for ctx.Err() == nil {
			n := 0
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
				n, err = p.take(ctx, tx, handle)
				return err
			})
			if n == 0 || err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(time.Millisecond):
				}
			}
		}
	})
	return w, nil
}

type loopWorker struct {
	pool    *pgxpool.Pool
	cancel  context.CancelFunc
	running sync.WaitGroup
	left    string
}

func (w *loopWorker) drained(ctx context.Context) (done bool, err error) {
	err = w.pool.QueryRow(ctx, `select not exists (`+w.left+`)`).Scan(&done)
	return done, err
}

func (w *loopWorker) stop() error {
	w.cancel()
	w.running.Wait()
	return nil
}

func (p loopPeer) stored(ctx context.Context, conn *pgx.Conn) (waiting, finished int, err error) {
	err = conn.QueryRow(ctx, `select (select count(*) from (`+p.left+`) l), (`+p.done+`)`).Scan(&waiting, &finished)
	return waiting, finished, err
}

// handleAll hands the payloads of rows over.
func handleAll(rows pgx.Rows, id *int64, handle func(int)) (count int, err error) {
	defer rows.Close()
	for rows.Next() {
		var payload []byte
		if err := rows.Scan(id, &payload); err != nil {
			return count, err
		}
		n, err := noteNumber(payload)
		if err != nil {
			return count, err
		}
		handle(n)
		count++
	}
	return count, rows.Err()
}

var cursorLoop = loopPeer{
	label: "cursor loop", what: "1,000 rows by id, one row updated",
	schema: `create table outbox (id bigint generated always as identity primary key, payload jsonb not null);
		create table position (id bigint not null);
		insert into position values (0)`,
	insert: `insert into outbox (payload) select p::jsonb from unnest($1::text[]) p`,
	take: func(ctx context.Context, tx pgx.Tx, handle func(int)) (int, error) {
		var at int64
		rows, err := tx.Query(ctx, `select id, payload from outbox where id > (select id from position) order by id limit 1000`)
		if err != nil {
			return 0, err
		}
		n, err := handleAll(rows, &at, handle)
		if n > 0 && err == nil {
			_, err = tx.Exec(ctx, `update position set id = $1`, at)
		}
		return n, err
	},
	left: `select from outbox where id > (select id from position)`,
	done: `select count(*) from outbox where id <= (select id from position)`,
}

var deleteLoop = loopPeer{
	label: "delete loop", what: "1,000 rows locked, deleted and returned",
	schema: `create table outbox (id bigint generated always as identity primary key, payload jsonb not null);
		create table finished (n bigint not null)`,
	insert: `insert into outbox (payload) select p::jsonb from unnest($1::text[]) p`,
	take: func(ctx context.Context, tx pgx.Tx, handle func(int)) (int, error) {
		var at int64
		rows, err := tx.Query(ctx, `
			delete from outbox
			where id = any (array(select id from outbox order by id limit 1000 for update skip locked))
			returning id, payload`)
		if err != nil {
			return 0, err
		}
		n, err := handleAll(rows, &at, handle)
		if n > 0 && err == nil {
			_, err = tx.Exec(ctx, `insert into finished values ($1)`, n)
		}
		return n, err
	},
	left: `select from outbox`,
	done: `select coalesce(sum(n), 0) from finished`,
}

// queueLoop reads with a visibility time and deletes, as pgmq does.
var queueLoop = loopPeer{
	label: "pgmq-like", what: "read 1,000 with a visibility time, delete them",
	schema: `create table q (msg_id bigint generated always as identity primary key, read_ct int not null default 0,
		  enqueued_at timestamptz not null default now(), vt timestamptz not null, message jsonb);
		create index on q (vt);
		create table finished (n bigint not null)`,
	insert: `insert into q (vt, message) select clock_timestamp(), p::jsonb from unnest($1::text[]) p`,
	take: func(ctx context.Context, tx pgx.Tx, handle func(int)) (int, error) {
		var at int64
		rows, err := tx.Query(ctx, `
			with cte as (
			  select msg_id from q where vt <= clock_timestamp() order by msg_id limit 1000 for update skip locked
			)
			update q m set vt = clock_timestamp() + interval '30 seconds', read_ct = read_ct + 1
			from cte where m.msg_id = cte.msg_id
			returning m.msg_id, m.message`)
		if err != nil {
			return 0, err
		}
		var ids []int64
		n, err := handleAll(rows, &at, func(n int) { handle(n); ids = append(ids, at) })
		if n > 0 && err == nil {
			_, err = tx.Exec(ctx, `with gone as (delete from q where msg_id = any ($1) returning 1) insert into finished select count(*) from gone`, ids)
		}
		return n, err
	},
	left: `select from q`,
	done: `select coalesce(sum(n), 0) from finished`,
}

// sameColumns is a table with the log's columns and as many indexes, filled by
// one statement.
var sameColumns = loopPeer{
	label: "same columns", what: "insert … select unnest into a table with the log's columns and two indexes",
	schema: `create table outbox (
		  id bigint generated always as identity, xid xid8 not null default pg_current_xact_id(), slot int not null, list_version bigint not null,
		  tenant_id uuid not null, created_at timestamptz not null, process_after timestamptz, topic text not null, key text, type text,
		  aggregate_type text, content_type text not null, headers jsonb, payload bytea not null);
		create unique index on outbox (slot, id);
		create index on outbox (xid)`,
	insert: `insert into outbox (slot, list_version, tenant_id, created_at, topic, key, content_type, payload)
		select (i & 63)::int, 1, '00000000-0000-0000-0000-000000000000', clock_timestamp(), 'bench', i::text, 'application/json', convert_to(p, 'UTF8')
		from unnest($1::text[]) with ordinality u(p, i)`,
	left: `select from outbox`,
	done: `select 0`,
}
