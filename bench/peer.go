package main

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A note is what is published: about 200 bytes of JSON.
type note struct {
	N   int    `json:"n"` // from 0
	Pad string `json:"pad"`
}

var pad = strings.Repeat("0123456789abcdef", 11)

// Kind is River's name for the type of job.
func (note) Kind() string { return "bench" }

// A peer stores messages in a transaction and brings them to a handler.
type peer interface {
	name() string
	template() string // whose template it uses
	tuning() string   // how its worker is set, for people

	// install makes the peer's schema, and grant lets the plain login use it.
	install(ctx context.Context, pool *pgxpool.Pool) error
	grant(ctx context.Context, pool *pgxpool.Pool) error

	// publisher stores notes through pool.
	publisher(pool *pgxpool.Pool) (publisher, error)

	// work starts a worker, as its makers would have it tuned, that calls
	// handle for each note; stop ends it and waits.
	work(ctx context.Context, pool *pgxpool.Pool, handle func(n int)) (worker, error)

	// stored counts what waits and what is finished, by the peer's tables.
	stored(ctx context.Context, conn *pgx.Conn) (waiting, finished int, err error)
}

// A filler is a peer whose template holds messages already.
type filler interface {
	fillTemplate(ctx context.Context, pool *pgxpool.Pool, o options) error
}

type publisher interface {
	one(ctx context.Context, tx pgx.Tx, n int) error
	many(ctx context.Context, from, count int) error // in a transaction of its own
}

// A transactor is a publisher that runs the business transaction itself.
type transactor interface {
	inTx(ctx context.Context, do func(tx pgx.Tx) error, n int) error
}

// A batcher is a publisher that puts a message into a pipeline beside other
// statements.
type batcher interface {
	queue(ctx context.Context, b *pgx.Batch, n int) error
}

type worker interface {
	drained(ctx context.Context) (bool, error)
	stop() error
}

// A waker is a worker that is told of what its own process has published.
type waker interface {
	wake()
}

var peers = []peer{deedPeer{}, riverPeer{}}

// streamPeers are who drains in order, or as fast as can be.
var streamPeers = []peer{streamPeer{}, riverPeer{}, watermillBest, watermillDefault, queueLoop, cursorLoop, deleteLoop}

// bare publishes nothing: what a business transaction costs without a peer.
type bare struct{}

func (bare) name() string     { return "bare" }
func (bare) template() string { return "bare" }
func (bare) tuning() string   { return "" }

func (bare) install(context.Context, *pgxpool.Pool) error        { return nil }
func (bare) grant(context.Context, *pgxpool.Pool) error          { return nil }
func (b bare) publisher(*pgxpool.Pool) (publisher, error)        { return b, nil }
func (bare) one(context.Context, pgx.Tx, int) error              { return nil }
func (bare) many(context.Context, int, int) error                { return nil }
func (bare) stored(context.Context, *pgx.Conn) (int, int, error) { return 0, 0, nil }

func (bare) work(context.Context, *pgxpool.Pool, func(int)) (worker, error) { return nil, nil }
