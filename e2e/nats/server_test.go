package nats_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deedhq/deed/e2e/gate"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/sink/sinktest"
)

func TestMain(m *testing.M) { sinktest.Main(m) }

// patience bounds every wait; it only matters to a test that fails.
const patience = pgtest.Patience

// cluster is a real NATS server with one stream, and what it has stored.
type cluster struct {
	t      *testing.T
	server *server.Server
	gate   *gate.Gate
	nc     *nats.Conn // past the gate
	js     jetstream.JetStream
	stream jetstream.Stream
	config jetstream.StreamConfig

	mu      sync.Mutex // guards the fields below
	stored  []jetstream.Msg
	slow    time.Duration
	judge   func([]byte) sinktest.Verdict
	between *nats.Subscription
	hold    chan struct{} // what the judge has passed waits for its end
	held    int           // how many wait
	most    int           // how many have waited at once
	passing sync.WaitGroup
}

// start runs a server until the test ends; change may alter its options and
// its stream's.
func start(t *testing.T, change ...func(*server.Options, *jetstream.StreamConfig)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	opts := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	c.config = jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}, Storage: jetstream.FileStorage}
	for _, f := range change {
		f(opts, &c.config)
	}
	c.run(opts)
	c.gate = gate.Before(t, c.server.Addr().String())
	options := []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.Timeout(patience)}
	if len(opts.Users) > 0 {
		options = append(options, nats.UserInfo(opts.Users[0].Username, opts.Users[0].Password))
	}
	var err error
	if c.nc, err = nats.Connect(c.server.ClientURL(), options...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.passing.Wait()
		c.nc.Close()
	})
	if c.js, err = jetstream.New(c.nc); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := patient(t)
	defer cancel()
	if c.stream, err = c.js.CreateStream(ctx, c.config); err != nil {
		t.Fatal(err)
	}
	consumer, err := c.js.OrderedConsumer(ctx, c.config.Name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stored = append(c.stored, m)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		consuming.Stop()
		<-consuming.Closed()
	})
	return c
}

// patient is a context for what JetStream is asked, which waits for five seconds otherwise.
func patient(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), patience)
}

func (c *cluster) run(opts *server.Options) {
	c.t.Helper()
	s, err := server.NewServer(opts)
	if err != nil {
		c.t.Fatal(err)
	}
	s.Start()
	c.t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		c.t.Fatal("the NATS server does not start")
	}
	c.server = s
}

// url is the server's, through the gate.
func (c *cluster) url() string { return "nats://" + c.gate.Addr().String() }

// all returns what the stream has, once the consumer has caught up with it.
func (c *cluster) all() []jetstream.Msg {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	info, err := c.stream.Info(ctx)
	if err != nil {
		c.t.Errorf("stream info: %v", err)
		return nil
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		list := c.stored[:len(c.stored):len(c.stored)]
		c.mu.Unlock()
		if uint64(len(list)) >= info.State.LastSeq {
			return list
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.t.Errorf("the consumer has %d of %d messages", len(list), info.State.LastSeq)
			return list
		}
	}
}

func (c *cluster) arrived() []sinktest.Arrival {
	var list []sinktest.Arrival
	for _, m := range c.all() {
		a := sinktest.Arrival{ID: m.Headers().Get("deed-id"), Payload: m.Data(), Headers: map[string]string{}}
		for name, field := range map[string]*string{"deed-topic": &a.Topic, "deed-key": &a.Key, "deed-type": &a.Type} {
			value, err := url.PathUnescape(m.Headers().Get(name))
			if err != nil {
				c.t.Error(err)
			}
			*field = value
		}
		for name := range m.Headers() {
			a.Headers[strings.ToLower(name)] = m.Headers().Get(name)
		}
		list = append(list, a)
	}
	return list
}

// interpose puts a judge and a pause before the stream: it takes what is
// published and passes it on under another subject, so that the stream's own
// acknowledgement goes to whoever published.
func (c *cluster) interpose() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.between != nil {
		return
	}
	config := c.config
	config.Subjects = []string{"stored.>"}
	ctx, cancel := patient(c.t)
	defer cancel()
	if _, err := c.js.UpdateStream(ctx, config); err != nil {
		c.t.Fatal(err)
	}
	var err error
	if c.between, err = c.nc.Subscribe("events.>", c.pass); err != nil {
		c.t.Fatal(err)
	}
	if err := c.nc.Flush(); err != nil { // until the server knows of it nobody takes what is published
		c.t.Fatal(err)
	}
}

func (c *cluster) pass(m *nats.Msg) {
	c.mu.Lock()
	slow, judge := c.slow, c.judge
	c.mu.Unlock()
	refuse := func(code, number int, text string) {
		answer := fmt.Appendf(nil, `{"error":{"code":%d,"err_code":%d,"description":%q}}`, code, number, text)
		if err := m.Respond(answer); err != nil {
			c.t.Error(err)
		}
	}
	if judge != nil {
		switch judge(m.Data) {
		case sinktest.ForNow:
			refuse(400, 10071, "wrong last sequence: 1")
			return
		case sinktest.ForGood:
			refuse(400, 10054, "message size exceeds maximum allowed")
			return
		}
	}
	on := &nats.Msg{Subject: "stored." + m.Subject, Reply: m.Reply, Header: m.Header, Data: m.Data}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held++
	c.most = max(c.most, c.held)
	hold := c.hold
	c.passing.Go(func() { // ends when the pause or the test does
		if hold != nil {
			<-hold
		}
		select {
		case <-time.After(slow):
		case <-c.t.Context().Done():
		}
		c.set(func() { c.held-- })
		if err := c.nc.PublishMsg(on); err != nil {
			c.t.Error(err)
		}
	})
}

// waiting returns how many messages wait before the stream.
func (c *cluster) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// wait polls until ok holds.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !pgtest.Wait(patience, ok) {
		t.Fatalf("waited %s for %s", patience, what)
	}
}
