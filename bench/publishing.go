package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// bulk measures publishing many messages a transaction, on one connection.
func bulk(ctx context.Context, e *env) error {
	took, err := e.fill(ctx, e.opts.messages)
	if err != nil {
		return err
	}
	e.record("published", "messages/s", float64(e.opts.messages)/took.Seconds())
	return e.expectStored(ctx, e.opts.messages, 0)
}

// bulkByTwo measures the same over two connections.
func bulkByTwo(ctx context.Context, e *env) error {
	var publishers [2]publisher
	for i := range publishers {
		p, err := e.onePublisher(ctx)
		if err != nil {
			return err
		}
		publishers[i] = p
	}
	half := e.opts.messages / 2
	var both sync.WaitGroup
	errs := make([]error, 2)
	started := time.Now()
	for i, n := range []int{half, e.opts.messages - half} {
		both.Go(func() { errs[i] = e.publishAll(ctx, publishers[i], i*half, n) })
	}
	both.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	e.record("published", "messages/s", float64(e.opts.messages)/time.Since(started).Seconds())
	return e.expectStored(ctx, e.opts.messages, 0)
}

// fill publishes n messages in bulk and says how long it took.
func (e *env) fill(ctx context.Context, n int) (time.Duration, error) {
	return e.fillFrom(ctx, 0, n)
}

// fillFrom publishes n messages whose numbers begin with first.
func (e *env) fillFrom(ctx context.Context, first, n int) (time.Duration, error) {
	p, err := e.onePublisher(ctx)
	if err != nil {
		return 0, err
	}
	started := time.Now()
	err = e.publishAll(ctx, p, first, n)
	return time.Since(started), err
}

// onePublisher has a connection of its own.
func (e *env) onePublisher(ctx context.Context) (publisher, error) {
	pool, err := e.pool(ctx, 1)
	if err != nil {
		return nil, err
	}
	return e.publisher(pool)
}

// publishAll publishes by the batch.
func (e *env) publishAll(ctx context.Context, p publisher, first, n int) error {
	for from := first; from < first+n; from += e.opts.batch {
		if err := p.many(ctx, from, min(e.opts.batch, first+n-from)); err != nil {
			return err
		}
	}
	return nil
}

// business measures transactions that insert a row of their own and publish
// one message, on several connections at once.
func business(ctx context.Context, e *env) error {
	pool, err := e.pool(ctx, e.opts.clients)
	if err != nil {
		return err
	}
	p, err := e.publisher(pool)
	if err != nil {
		return err
	}
	var clients sync.WaitGroup
	var committed atomic.Int64
	errs := make([]error, e.opts.clients)
	started := time.Now()
	for c := range e.opts.clients {
		clients.Go(func() {
			for first := true; first || time.Since(started) < e.opts.business && errs[c] == nil; first = false { // one each: by none nothing can be divided
				errs[c] = transact(ctx, pool, p, c, int(committed.Load()))
				if errs[c] == nil {
					committed.Add(1)
				}
			}
		})
	}
	clients.Wait()
	took := time.Since(started)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	n := int(committed.Load())
	e.record("committed", "transactions/s", float64(n)/took.Seconds())
	var rows int
	if err := e.owner.QueryRow(ctx, `select count(*) from business`).Scan(&rows); err != nil {
		return err
	}
	e.expect("business rows", rows, n)
	if e.peer == (bare{}) {
		n = 0
	}
	return e.expectStored(ctx, n, 0)
}

const insertBusiness = `insert into business (client, amount) values ($1, $2)`

// transact is one business transaction with one message.
func transact(ctx context.Context, pool *pgxpool.Pool, p publisher, client, n int) error {
	if b, ok := p.(batcher); ok {
		return transactAtOnce(ctx, pool, b, client, n)
	}
	insert := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertBusiness, client, 12.5)
		return err
	}
	if t, ok := p.(transactor); ok {
		return t.inTx(ctx, insert, n)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := insert(tx); err != nil {
			return err
		}
		return p.one(ctx, tx, n)
	})
}

// transactAtOnce sends the whole transaction in one pipeline.
func transactAtOnce(ctx context.Context, pool *pgxpool.Pool, p batcher, client, n int) error {
	batch := &pgx.Batch{}
	batch.Queue(`begin`)
	batch.Queue(insertBusiness, client, 12.5)
	if err := p.queue(ctx, batch, n); err != nil {
		return err
	}
	batch.Queue(`commit`).Exec(func(ended pgconn.CommandTag) error {
		if ended.String() != "COMMIT" {
			return fmt.Errorf("the transaction ended with %s", ended)
		}
		return nil
	})
	return pool.SendBatch(ctx, batch).Close()
}
