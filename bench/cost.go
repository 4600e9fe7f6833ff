package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// cost measures what publishing and draining take of the server: bytes of WAL,
// statements, transactions, rows written. Autovacuum is off meanwhile, since
// whether it comes by is chance; a checkpoint is made before each part, so the
// full-page images of a server at work are in the bytes.
func cost(ctx context.Context, e *env) (err error) {
	if err := e.autovacuum(ctx, "off"); err != nil {
		return err
	}
	defer func() {
		if on := e.autovacuum(context.WithoutCancel(ctx), "on"); err == nil {
			err = on
		}
	}()
	n := e.opts.messages
	err = e.counting(ctx, "publishing", func() error {
		_, err := e.fill(ctx, n)
		return err
	})
	if err != nil {
		return err
	}
	if err := e.settle(ctx); err != nil {
		return err
	}
	err = e.counting(ctx, "draining", func() error {
		pool, err := e.pool(ctx, workerConns)
		if err != nil {
			return err
		}
		_, err = e.drainAll(ctx, pool, n)
		return err
	})
	if err != nil {
		return err
	}
	return e.expectStored(ctx, 0, n)
}

func (e *env) autovacuum(ctx context.Context, value string) error {
	if err := e.exec(ctx, `alter system set autovacuum = `+value); err != nil {
		return err
	}
	return e.exec(ctx, `select pg_reload_conf()`)
}

// counts are totals since the server began.
type counts struct{ wal, rows, transactions, statements int64 }

// counting records what do takes, divided by the messages.
func (e *env) counting(ctx context.Context, part string, do func() error) error {
	before, err := e.counts(ctx)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := e.counts(ctx)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name          string
		after, before int64
	}{
		{"WAL bytes", after.wal, before.wal},
		{"rows written", after.rows, before.rows},
		{"statements", after.statements, before.statements},
		{"transactions", after.transactions, before.transactions},
	} {
		e.record(part+": "+c.name, "a message", float64(c.after-c.before)/float64(e.opts.messages))
	}
	return nil
}

// counts ends the peer's sessions first: a session's statistics are known for
// certain when it has ended.
func (e *env) counts(ctx context.Context) (c counts, err error) {
	e.closePools()
	for others := 1; others > 0; time.Sleep(5 * time.Millisecond) {
		err := e.owner.QueryRow(ctx, `
			select count(*) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid()`).Scan(&others)
		if err != nil {
			return c, fmt.Errorf("wait for sessions to end: %w", err)
		}
	}
	c.statements = e.sent.n.Load()
	err = e.owner.QueryRow(ctx, `
		select (pg_current_wal_insert_lsn() - '0/0')::bigint,
		  (select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables),
		  (select xact_commit from pg_stat_database where datname = current_database())`).Scan(&c.wal, &c.rows, &c.transactions)
	return c, err
}

// statements counts what a pool's connections send, begin and commit included.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}
func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { s.n.Add(1) }
func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (s *statements) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	s.n.Add(1)
	return ctx
}
func (s *statements) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}
