package main

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// watermillPeer is Watermill's SQL publisher and subscriber.
type watermillPeer struct {
	label string
	batch int
	poll  time.Duration
}

var (
	watermillBest    = watermillPeer{"watermill", 20_000, 5 * time.Millisecond}
	watermillDefault = watermillPeer{"watermill default", 100, time.Second}
)

func (p watermillPeer) name() string   { return p.label }
func (watermillPeer) template() string { return "watermill" }

func (p watermillPeer) tuning() string {
	return fmt.Sprintf("SubscribeBatchSize %d, PollInterval %s", p.batch, p.poll)
}

func (p watermillPeer) schema() sql.DefaultPostgreSQLSchema {
	return sql.DefaultPostgreSQLSchema{SubscribeBatchSize: p.batch}
}

func (p watermillPeer) install(ctx context.Context, pool *pgxpool.Pool) error {
	for _, queries := range [][]sql.Query{
		p.schema().SchemaInitializingQueries("bench"), sql.DefaultPostgreSQLOffsetsAdapter{}.SchemaInitializingQueries("bench"),
	} {
		for _, q := range queries {
			if _, err := pool.Exec(ctx, q.Query, q.Args...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (watermillPeer) grant(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `
		grant all on all tables in schema public to `+login+`;
		grant all on all sequences in schema public to `+login)
	return err
}

type watermillPublisher struct {
	watermillPeer
	pool *pgxpool.Pool
}

func (p watermillPeer) publisher(pool *pgxpool.Pool) (publisher, error) {
	return watermillPublisher{p, pool}, nil
}

func noteMessage(n int) *message.Message {
	return message.NewMessage(watermill.NewUUID(), []byte(notePayload(n)))
}

// one sends what Watermill's publisher would, in a pgx transaction.
func (p watermillPublisher) one(ctx context.Context, tx pgx.Tx, n int) error {
	q, err := p.schema().InsertQuery("bench", message.Messages{noteMessage(n)})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, q.Query, q.Args...)
	return err
}

func (p watermillPublisher) many(ctx context.Context, from, count int) error {
	msgs := make(message.Messages, count)
	for i := range msgs {
		msgs[i] = noteMessage(from + i)
	}
	q, err := p.schema().InsertQuery("bench", msgs)
	if err != nil {
		return err
	}
	_, err = p.pool.Exec(ctx, q.Query, q.Args...)
	return err
}

type watermillWorker struct {
	db         *stdsql.DB
	subscriber *sql.Subscriber
	running    sync.WaitGroup
}

func (p watermillPeer) work(ctx context.Context, pool *pgxpool.Pool, handle func(int)) (worker, error) {
	w := &watermillWorker{db: stdlib.OpenDBFromPool(pool)}
	var err error
	w.subscriber, err = sql.NewSubscriber(w.db, sql.SubscriberConfig{
		PollInterval: p.poll, SchemaAdapter: p.schema(), OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{},
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	messages, err := w.subscriber.Subscribe(ctx, "bench")
	if err != nil {
		return nil, err
	}
	w.running.Go(func() {
		for m := range messages {
			if n, err := noteNumber(m.Payload); err == nil {
				handle(n)
			}
			m.Ack()
		}
	})
	return w, nil
}

const watermillLeft = `
	select from watermill_bench b
	where (b.transaction_id, b."offset") > (
	  select coalesce(max(o.last_processed_transaction_id), '0')::xid8, coalesce(max(o.offset_acked), 0)
	  from watermill_offsets_bench o
	)`

func (w *watermillWorker) drained(ctx context.Context) (done bool, err error) {
	err = w.db.QueryRowContext(ctx, `select not exists (`+watermillLeft+`)`).Scan(&done)
	return done, err
}

func (w *watermillWorker) stop() error {
	err := w.subscriber.Close()
	w.running.Wait()
	return err
}

func (watermillPeer) stored(ctx context.Context, conn *pgx.Conn) (waiting, finished int, err error) {
	var all int
	err = conn.QueryRow(ctx, `select (select count(*) from (`+watermillLeft+`) l), (select count(*) from watermill_bench)`).Scan(&waiting, &all)
	return waiting, all - waiting, err
}
