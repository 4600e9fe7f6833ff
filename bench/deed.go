package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/schema"
)

// deedBatch is what a claim takes at the most; the other settings of deed's
// worker are the defaults.
const deedBatch = 1000

type deedPeer struct{}

func (deedPeer) name() string     { return "deed" }
func (deedPeer) template() string { return "deed" }
func (deedPeer) tuning() string   { return fmt.Sprintf("Handle, BatchSize %d", deedBatch) }

// install declares the subscription as well, as a service in use has it.
func (p deedPeer) install(ctx context.Context, pool *pgxpool.Pool) error {
	if err := p.migrate(ctx, pool); err != nil {
		return err
	}
	return p.subscribe(ctx, pool)
}

func (deedPeer) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		_, err := schema.Up(ctx, conn.Conn())
		return err
	})
}

func (deedPeer) subscribe(ctx context.Context, pool *pgxpool.Pool) error {
	var id int
	if err := pool.QueryRow(ctx, `select subscription from deed.subscribe('bench', 'handler')`).Scan(&id); err != nil {
		return err
	}
	for finished := false; !finished; {
		if err := pool.QueryRow(ctx, `select finished from deed.backfill($1)`, id).Scan(&finished); err != nil {
			return err
		}
	}
	return nil
}

func (deedPeer) grant(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `grant deed_app, deed_worker to `+login)
	return err
}

func (deedPeer) publisher(pool *pgxpool.Pool) (publisher, error) { return deedPublisher{pool}, nil }

type deedPublisher struct{ pool *pgxpool.Pool }

func (deedPublisher) one(ctx context.Context, tx pgx.Tx, n int) error {
	_, err := deed.Publish(ctx, tx, deedMessage(n))
	return err
}

func (p deedPublisher) many(ctx context.Context, from, count int) error {
	msgs := make([]deed.Message, count)
	for i := range msgs {
		msgs[i] = deedMessage(from + i)
	}
	_, err := deed.Publish(ctx, p.pool, msgs...)
	return err
}

// withCommit is deed, with a queue or a stream, whose messages are sent with the
// commit.
type withCommit struct{ peer }

func (p withCommit) name() string { return p.peer.name() + " in tx" }

func (withCommit) publisher(pool *pgxpool.Pool) (publisher, error) {
	return commitPublisher{deedPublisher{pool}}, nil
}

type commitPublisher struct{ deedPublisher }

func (p commitPublisher) inTx(ctx context.Context, do func(tx pgx.Tx) error, n int) error {
	_, err := deed.InTx(ctx, p.pool, pgx.TxOptions{}, func(tx *deed.Tx) error {
		if err := do(tx); err != nil {
			return err
		}
		return tx.Publish(ctx, deedMessage(n))
	})
	return err
}

// inPipeline is deed, with a queue or a stream, whose messages are sent with the whole
// transaction.
type inPipeline struct{ peer }

func (p inPipeline) name() string { return p.peer.name() + " pipelined" }

func (inPipeline) publisher(pool *pgxpool.Pool) (publisher, error) {
	return pipelinePublisher{deedPublisher{pool}}, nil
}

type pipelinePublisher struct{ deedPublisher }

func (pipelinePublisher) queue(ctx context.Context, b *pgx.Batch, n int) error {
	s, err := deed.NewStatement(ctx, deedMessage(n))
	if err != nil {
		return err
	}
	s = s.Raising()
	b.Queue(s.SQL, s.Args...).Query(func(rows pgx.Rows) error {
		_, err := s.Published(rows)
		return err
	})
	return nil
}

func deedMessage(n int) deed.Message {
	return deed.Message{Topic: "bench", Key: strconv.Itoa(n), Value: note{N: n, Pad: pad}}
}

type deedWorker struct {
	client *deed.Client
	cancel context.CancelFunc
	result chan error
}

func (deedPeer) work(ctx context.Context, pool *pgxpool.Pool, handle func(int)) (worker, error) {
	sub := deed.Handle("bench", func(_ context.Context, r deed.Received[note]) error {
		handle(r.Value.N)
		return nil
	})
	sub.BatchSize = deedBatch
	return startClient(ctx, pool, deed.Options{Subscriptions: []deed.Subscription{sub}})
}

// woken is deed where the publisher is in the worker's process, as with Client.InTx.
type woken struct{ peer }

func (p woken) name() string { return p.peer.name() + " woken" }

func (p woken) work(ctx context.Context, pool *pgxpool.Pool, handle func(int)) (worker, error) {
	w, err := p.peer.work(ctx, pool, handle)
	if err != nil {
		return nil, err
	}
	return wokenWorker{w.(*deedWorker)}, nil
}

type wokenWorker struct{ *deedWorker }

func (w wokenWorker) wake() { w.client.Wake() }

func startClient(ctx context.Context, pool *pgxpool.Pool, opts deed.Options) (worker, error) {
	client, err := deed.New(ctx, pool, opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &deedWorker{client: client, cancel: cancel, result: make(chan error, 1)}
	go func() { w.result <- client.Run(ctx) }()
	return w, nil
}

func (w *deedWorker) drained(ctx context.Context) (bool, error) { return w.client.Drained(ctx) }

func (w *deedWorker) stop() error {
	w.cancel()
	return <-w.result
}

func (deedPeer) stored(ctx context.Context, conn *pgx.Conn) (waiting, finished int, err error) {
	err = conn.QueryRow(ctx, `
		select (select count(*) from deed.pending), (select coalesce(sum(finished), 0) from deed.receipts)`).Scan(&waiting, &finished)
	return waiting, finished, err
}
