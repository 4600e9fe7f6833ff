package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// River's worker is tuned for throughput: its defaults fetch ten times a second
// at the most.
const (
	riverWorkers  = 1000
	riverCooldown = time.Millisecond
	riverPoll     = 10 * time.Millisecond
)

type riverPeer struct{}

func (riverPeer) name() string     { return "river" }
func (riverPeer) template() string { return "river" }

func (riverPeer) tuning() string {
	return fmt.Sprintf("MaxWorkers %d, FetchCooldown %s, FetchPollInterval %s", riverWorkers, riverCooldown, riverPoll)
}

func (riverPeer) install(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (riverPeer) grant(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `
		grant all on all tables in schema public to `+login+`;
		grant all on all sequences in schema public to `+login)
	return err
}

type riverPublisher struct{ client *river.Client[pgx.Tx] }

func (riverPeer) publisher(pool *pgxpool.Pool) (publisher, error) {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	return riverPublisher{client}, err
}

func (p riverPublisher) one(ctx context.Context, tx pgx.Tx, n int) error {
	_, err := p.client.InsertTx(ctx, tx, note{N: n, Pad: pad}, nil)
	return err
}

func (p riverPublisher) many(ctx context.Context, from, count int) error {
	params := make([]river.InsertManyParams, count)
	for i := range params {
		params[i].Args = note{N: from + i, Pad: pad}
	}
	_, err := p.client.InsertManyFast(ctx, params)
	return err
}

type riverWorker struct {
	client *river.Client[pgx.Tx]
	pool   *pgxpool.Pool
}

func (riverPeer) work(ctx context.Context, pool *pgxpool.Pool, handle func(int)) (worker, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[note]) error {
		handle(job.Args.N)
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     riverCooldown,
		FetchPollInterval: riverPoll,
		Logger:            slog.New(slog.DiscardHandler),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:           workers,
	})
	if err != nil {
		return nil, err
	}
	return &riverWorker{client, pool}, client.Start(ctx)
}

func (w *riverWorker) drained(ctx context.Context) (done bool, err error) {
	err = w.pool.QueryRow(ctx, `
		select not exists (
		  select from river_job where state in ('available', 'running', 'retryable', 'scheduled', 'pending')
		)`).Scan(&done)
	return done, err
}

func (w *riverWorker) stop() error { return w.client.Stop(context.Background()) }

func (riverPeer) stored(ctx context.Context, conn *pgx.Conn) (waiting, finished int, err error) {
	err = conn.QueryRow(ctx, `
		select count(*) filter (where state <> 'completed'), count(*) filter (where state = 'completed') from river_job`).Scan(&waiting, &finished)
	return waiting, finished, err
}
