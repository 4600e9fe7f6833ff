package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deedhq/deed"
	natssink "github.com/deedhq/deed/sink/nats"
)

// natsPending is how many messages may be unacknowledged at once, the sink's
// default.
const natsPending = 1000

// natsBroker keeps a stream in files and drops what comes twice by its id.
type natsBroker struct {
	server *server.Server
	files  string
	conn   *nats.Conn
	stream jetstream.Stream
}

func startNATS(ctx context.Context) (broker, error) {
	files, err := os.MkdirTemp("", "deed-bench-nats")
	if err != nil {
		return nil, err
	}
	b := &natsBroker{files: files}
	if err := b.start(ctx); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

func (b *natsBroker) start(ctx context.Context) (err error) {
	opts := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: b.files, NoLog: true, NoSigs: true}
	if b.server, err = server.NewServer(opts); err != nil {
		return err
	}
	b.server.Start()
	if !b.server.ReadyForConnections(time.Minute) {
		return errors.New("the NATS server does not start")
	}
	if b.conn, err = nats.Connect(b.server.ClientURL()); err != nil {
		return err
	}
	js, err := jetstream.New(b.conn)
	if err != nil {
		return err
	}
	b.stream, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "BENCH", Subjects: []string{"bench"}, Storage: jetstream.FileStorage})
	return err
}

func (b *natsBroker) stop() {
	if b.conn != nil {
		b.conn.Close()
	}
	if b.server != nil {
		b.server.Shutdown()
		b.server.WaitForShutdown()
	}
	_ = os.RemoveAll(b.files)
}

func (b *natsBroker) sink() (closingSink, error) {
	return natssink.New(natssink.Options{URL: b.server.ClientURL(), BatchSize: deedBatch, MaxPending: natsPending})
}

func (b *natsBroker) produce(ctx context.Context, payloads [][]byte) error {
	conn, err := nats.Connect(b.server.ClientURL())
	if err != nil {
		return err
	}
	defer conn.Close()
	refused := make(chan error, 1)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(natsPending),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { keepFirst(refused, err) }))
	if err != nil {
		return err
	}
	now := time.Now()
	for i, payload := range payloads {
		id := deed.NewID(now, int64(i)).String()
		m := &nats.Msg{Subject: "bench", Data: payload, Header: nats.Header{
			"deed-id": {id}, "deed-topic": {"bench"}, "deed-key": {strconv.Itoa(i)}, "content-type": {"application/json"},
			jetstream.MsgIDHeader: {id},
		}}
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return first(refused)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *natsBroker) records(ctx context.Context) (int, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int(info.State.Msgs), nil
}
