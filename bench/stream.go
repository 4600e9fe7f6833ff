package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
)

// streamPeer is deed with the topic as a stream.
type streamPeer struct{ deedPeer }

func (streamPeer) name() string     { return "deed stream" }
func (streamPeer) template() string { return "stream" }
func (streamPeer) tuning() string {
	return fmt.Sprintf("stream, pages of %d, a sink that takes them whole", deedBatch)
}

func (p streamPeer) install(ctx context.Context, pool *pgxpool.Pool) error {
	if err := p.migrate(ctx, pool); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, `select deed.declare_topic('bench', 'stream')`)
	if err == nil {
		err = p.subscribe(ctx, pool)
	}
	return err
}

// countingSink notes what came and does nothing with it.
type countingSink struct{ handle func(int) }

func (s countingSink) BatchSize() int { return deedBatch }

func (s countingSink) Deliver(_ context.Context, msgs []deed.Message) []error {
	for i := range msgs {
		n, err := noteNumber(msgs[i].Payload)
		if err != nil {
			return fail(len(msgs), err)
		}
		s.handle(n)
	}
	return nil
}

func fail(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// noteNumber reads n of a note without decoding all of it.
func noteNumber(payload []byte) (int, error) {
	_, rest, _ := bytes.Cut(payload, []byte(`"n":`))
	rest = bytes.TrimLeft(rest, " ")
	end := bytes.IndexByte(rest, ',')
	if end < 0 {
		return 0, fmt.Errorf("not a note: %.40s", payload)
	}
	return strconv.Atoi(string(rest[:end]))
}

func (streamPeer) work(ctx context.Context, pool *pgxpool.Pool, handle func(int)) (worker, error) {
	return startClient(ctx, pool, deed.Options{Subscriptions: []deed.Subscription{
		{Topic: "bench", Name: "handler", Sink: countingSink{handle}, BatchSize: deedBatch},
	}})
}

func (streamPeer) stored(ctx context.Context, conn *pgx.Conn) (waiting, finished int, err error) {
	err = conn.QueryRow(ctx, `
		select (select count(*) from deed.pending) + coalesce(sum(l.behind), 0),
		  (select coalesce(sum(g.messages - g.aside), 0) from deed.progress g) + (select coalesce(sum(r.finished), 0) from deed.receipts r)
		from deed.lag(array(select id from deed.subscriptions where id <> 0), 1000000000) l`).Scan(&waiting, &finished)
	return waiting, finished, err
}
