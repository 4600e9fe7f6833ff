package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
)

// A broker runs in this process and has what it is sent in "bench".
type broker interface {
	sink() (closingSink, error) // deed's
	// produce sends a record for each payload, as deed's sink makes it, with the
	// bare client, and returns when all are acknowledged.
	produce(ctx context.Context, payloads [][]byte) error
	records(ctx context.Context) (int, error)
	stop()
}

type closingSink interface {
	deed.BatchSink
	io.Closer
}

// bareClient is a broker's client without a database: the records are there
// already.
type bareClient struct {
	bare
	label string
}

func (p bareClient) name() string { return p.label }

var bareKafka, bareNATS = bareClient{label: "bare Kafka"}, bareClient{label: "bare NATS"}

func intoKafka(ctx context.Context, e *env) error { return drainInto(ctx, e, startKafka) }
func intoNATS(ctx context.Context, e *env) error  { return drainInto(ctx, e, startNATS) }

// drainInto measures how fast a stream is drained into a broker of its own, or
// the bare client sends it the same.
func drainInto(ctx context.Context, e *env, start func(context.Context) (broker, error)) (err error) {
	b, err := start(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	n := e.opts.messages
	if _, isBare := e.peer.(bareClient); isBare {
		err = e.produceAll(ctx, b, n)
	} else {
		err = e.drainThrough(ctx, b)
	}
	if err != nil {
		return err
	}
	has, err := b.records(ctx)
	e.expect("records that the broker has", has, n)
	return err
}

func (e *env) produceAll(ctx context.Context, b broker, n int) error {
	payloads := make([][]byte, n)
	for i := range payloads {
		payloads[i] = []byte(notePayload(i))
	}
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	started := time.Now()
	if err := b.produce(ctx, payloads); err != nil {
		return err
	}
	e.record("drained", "messages/s", float64(n)/time.Since(started).Seconds())
	return nil
}

func (e *env) drainThrough(ctx context.Context, b broker) error {
	sink, err := b.sink()
	if err != nil {
		return err
	}
	e.peer = sinkPeer{sink: sink}
	return errors.Join(drain(ctx, e), sink.Close())
}

// sinkPeer is a stream that is delivered to a sink.
type sinkPeer struct {
	streamPeer
	sink deed.BatchSink
}

func (p sinkPeer) work(ctx context.Context, pool *pgxpool.Pool, handle func(int)) (worker, error) {
	return startClient(ctx, pool, deed.Options{Subscriptions: []deed.Subscription{
		{Topic: "bench", Name: "handler", Sink: notingSink{p.sink, handle}, BatchSize: deedBatch},
	}})
}

// notingSink notes what a sink has delivered.
type notingSink struct {
	deed.BatchSink
	handle func(int)
}

func (s notingSink) Deliver(ctx context.Context, msgs []deed.Message) []error {
	outcomes := s.BatchSink.Deliver(ctx, msgs)
	for i := range msgs {
		if outcomes != nil && outcomes[i] != nil {
			continue
		}
		n, err := noteNumber(msgs[i].Payload)
		if err != nil {
			return fail(len(msgs), err)
		}
		s.handle(n)
	}
	return outcomes
}

// keepFirst puts an error into refused, which has room for one. What is refused
// after the last look at it, the count of the records shows.
func keepFirst(refused chan error, err error) {
	select {
	case refused <- err:
	default:
	}
}

func first(refused chan error) error {
	select {
	case err := <-refused:
		return err
	default:
		return nil
	}
}
