// Package relay_test runs the program deed against a real NATS server and
// against kfake.
package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/e2e/gate"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	patience = pgtest.Patience
	messages = 300
)

// A broker that is away costs its messages no attempt and holds back neither
// the other broker's nor, once it is there, its own.
func TestRelay_DrainsIntoBothBrokers(t *testing.T) {
	t.Parallel()
	stream, url := startNATS(t)
	fake, front := startKafka(t)
	db := pgtest.New(t)
	dir := t.TempDir()
	bin := filepath.Join(dir, "deed")
	build := exec.Command("go", "build", "-o", bin, "./cmd/deed")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	file := filepath.Join(dir, "deed.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `topics:
  orders: {sinks: [stream, log], from: beginning}
sinks:
  stream: {type: nats, url: env:NATS_URL, subject: "events.{topic}"}
  log: {type: kafka, brokers: [%s], topic: events, timeout: 5s}
`, fake.ListenAddrs()[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	publish(t, db)

	front.Shut()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	var log bytes.Buffer
	relay := exec.CommandContext(ctx, bin, "relay", "--config", file, "--until-empty", "--listen", "")
	relay.Env = append(os.Environ(), "DEED_DATABASE_URL="+db.URL(pgtest.Worker), "NATS_URL="+url)
	relay.Stdout, relay.Stderr = &log, &log
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- relay.Wait() }() // ends with the process
	stored := func() uint64 {
		info, err := stream.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Msgs
	}
	wait(t, "NATS to have everything while Kafka is away", func() bool { return stored() == messages })
	attempts := 0
	wait(t, "Kafka's to be brought, too, and to wait", func() bool {
		waiting := 0
		row := db.Pool(pgtest.Admin).QueryRow(ctx, `
			select count(*), coalesce(sum(p.attempts), 0) from deed.pending p
			join deed.subscriptions s on s.id = p.subscription where s.name = 'log'`)
		if err := row.Scan(&waiting, &attempts); err != nil {
			t.Fatal(err)
		}
		return waiting == messages
	})
	if attempts != 0 {
		t.Errorf("those that wait for Kafka have %d attempts, want none", attempts)
	}
	front.Open()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("deed relay: %v\n%s", err, log.String())
		}
	case <-time.After(patience):
		cancel()
		<-ended
		t.Fatalf("deed relay does not end\n%s", log.String())
	}
	if n := stored(); n != messages {
		t.Errorf("the stream has %d messages, want %d", n, messages)
	}
	written := int64(0)
	for _, p := range fake.PartitionInfos("events") {
		written += p.HighWatermark
	}
	if written != messages {
		t.Errorf("Kafka has %d records, want %d", written, messages)
	}
	var installation string
	if err := db.Pool(pgtest.Admin).QueryRow(ctx, "select installation::text from deed.settings").Scan(&installation); err != nil {
		t.Fatal(err)
	}
	first, err := stream.GetMsg(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	if id := first.Header.Get("Nats-Msg-Id"); installation == "" || !strings.HasPrefix(id, installation+".") {
		t.Errorf("Nats-Msg-Id %q does not begin with the installation's id %q", id, installation)
	}
}

func startNATS(t *testing.T) (jetstream.Stream, string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, Username: "deed", Password: "secret",
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server does not start")
	}
	url := "nats://deed:secret@" + s.Addr().String()
	nc, err := nats.Connect(url, nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience) // else it is five seconds
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	if err != nil {
		t.Fatal(err)
	}
	return stream, url
}

func startKafka(t *testing.T) (*kfake.Cluster, *gate.Gate) {
	t.Helper()
	var front *gate.Gate
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "events"),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			l, err := net.Listen(network, address)
			if err != nil {
				return nil, err
			}
			front = gate.Of(l)
			return front, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return fake, front
}

func publish(t *testing.T, db *pgtest.DB) {
	t.Helper()
	ms := make([]deed.Message, messages)
	for i := range ms {
		ms[i] = deed.Message{Topic: "orders", Key: fmt.Sprint(i % 7), Payload: fmt.Appendf(nil, `{"n":%d}`, i)}
	}
	err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
		_, err := deed.Publish(t.Context(), tx, ms...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wait polls until ok holds.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !pgtest.Wait(patience, ok) {
		t.Fatalf("waited %s for %s", patience, what)
	}
}
