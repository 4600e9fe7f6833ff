//go:build brokers

package kafka_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/e2e/broker"
	"github.com/deedhq/deed/e2e/gate"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/sink/kafka"
)

// Kafka's own server behind a gate: an outage and a silence of it are as those
// of the one that is made up.
func TestServer_AwayAndSilent(t *testing.T) {
	t.Parallel()
	var front *gate.Gate
	servers := startServers(t, broker.Options{Behind: func(address string) string {
		front = gate.Before(t, address)
		return front.Addr().String()
	}})
	for name, test := range map[string]func(*testing.T, *cluster){"Away": away, "Silent": silent} {
		t.Run(name, func(t *testing.T) { // one after the other: they share the gate
			test(t, at(t, servers.Addresses(), []*gate.Gate{front}, nil))
		})
	}
}

// Three servers, of which the leader is killed, another freezes, two are away at
// once, and one has a full disk, while a stream and a queue are drained into
// them: nothing is lost, a stream's keys keep their order, an outage burns no
// attempt, and what comes twice is some of what was under way.
func TestServers_KilledFrozenAndFull(t *testing.T) {
	t.Parallel()
	disk, fill := smallDisk(t)
	servers := startServers(t, broker.Options{
		Nodes: 3, Logs: map[int]string{3: filepath.Join(disk, "records")}, Set: map[string]string{"min.insync.replicas": "2"},
	})
	d := drain(t, servers)
	node := func(partition int32) *broker.Node { return servers.Nodes[d.stream.leader(partition)-1] }

	d.phase("all are well", func() {})
	var killed *broker.Node
	d.phase("the leader of a partition is killed", func() {
		killed = node(0)
		killed.Kill()
	})
	// It was one of the three that this topic must have.
	strict := d.strict()
	wait(t, "the cluster to miss the killed one", func() bool { return d.stream.leader(0) != int32(killed.ID) })
	expect(t, strict.Deliver(t.Context(), []deed.Message{message(1, nil), message(2, nil)}), "unavailable unavailable")
	d.restart(killed)
	wait(t, "the strict topic to be written", func() bool {
		return kinds(strict.Deliver(t.Context(), []deed.Message{message(1, nil)})) == "delivered"
	})

	var frozen *broker.Node
	d.phase("the leader of another freezes", func() {
		frozen = node(1)
		frozen.Freeze()
	})
	frozen.Thaw()
	d.whole()

	// Two of three: there is no majority, hence nothing to write to.
	frozen, killed = servers.Nodes[0], servers.Nodes[1]
	frozen.Freeze()
	killed.Kill()
	before := d.unavailable()
	wait(t, "calls to find nobody", func() bool { return d.unavailable() > before+20 })
	frozen.Thaw()
	d.restart(killed)
	d.phase("they are back", func() {})

	d.phase("a disk is full", func() { fill() })
	select {
	case <-servers.Nodes[2].Ended():
	case <-time.After(patience):
		t.Errorf("the server goes on, though it cannot write:\n%s", servers.Nodes[2].Log())
	}
	d.judge()
}

// startServers starts servers that end with the test.
func startServers(t *testing.T, o broker.Options) *broker.Cluster {
	t.Helper()
	o.Dir = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c, err := broker.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		if t.Failed() {
			for _, n := range c.Nodes {
				t.Logf("node %d:\n%s", n.ID, n.Log())
			}
		}
	})
	return c
}

// smallDisk makes a disk of 48 MB, and returns what fills it to the last byte.
// It needs root, who alone mounts: for others the file size that a process may
// write is no full disk, so they are told to be root.
func smallDisk(t *testing.T) (dir string, fill func()) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("deed-test", dir, "tmpfs", 0, "size=48m,mode=0777"); err != nil {
		t.Fatalf("mount a small disk: %v; this test must run as root, or in: unshare --user --map-root-user --mount", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir, func() {
		f, err := os.Create(filepath.Join(dir, "filler"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		block := make([]byte, 4096)
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("filling the disk ended with %v", err)
		}
	}
}

// draining is a stream and a queue that are published to and drained all the
// time.
type draining struct {
	t             *testing.T
	db            *pgtest.DB
	servers       *broker.Cluster
	stream, queue *cluster
	stopPublisher func() (published int)
	client        *deed.Client
	spies         [2]*attempts
}

const topicOfStream, topicOfQueue = "orders", "jobs"

func drain(t *testing.T, servers *broker.Cluster) *draining {
	t.Helper()
	d := &draining{t: t, db: pgtest.New(t), servers: servers}
	d.stream, d.queue = at(t, servers.Addresses(), nil, nil), at(t, servers.Addresses(), nil, nil)
	quick := func(topic string) func(*kafka.Options) {
		return func(o *kafka.Options) { o.Timeout, o.Topic = 3*time.Second, topic }
	}
	var subs []deed.Subscription
	for i, s := range []struct{ from, to string }{{topicOfStream, d.stream.topic}, {topicOfQueue, d.queue.topic}} {
		d.spies[i] = &attempts{Sink: open(t, d.stream, quick(s.to))}
		subs = append(subs, deed.Subscription{Topic: s.from, Name: "kafka", Sink: d.spies[i]})
	}
	var err error
	d.client, err = deed.New(t.Context(), d.db.Pool(pgtest.Worker), deed.Options{
		Topics: []deed.Topic{{Name: topicOfStream, Mode: deed.ModeStream}, {Name: topicOfQueue}}, Subscriptions: subs,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.client.Run(ctx) }() // ended below
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the relay ended with: %v", err)
		}
	})
	// What is published to a topic that is not declared yet comes without order.
	wait(t, "the topics to be declared", func() bool {
		return pgtest.One[bool](t, d.db.Pool(pgtest.Owner), `
			select count(*) = 2 and not exists (select from deed.backfills where finished_at is null) from deed.subscriptions where id > 0`)
	})
	d.publisher()
	return d
}

// record is what is published: the n-th of its key.
type record struct {
	Key string `json:"key"`
	N   int    `json:"n"`
}

// publisher publishes until it is stopped.
func (d *draining) publisher() {
	stop := make(chan struct{})
	done := make(chan int, 1)
	go func() { // ended by stop
		const keys = 10
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		n := 0
		for {
			select {
			case <-stop:
				done <- n * keys
				return
			case <-tick.C:
			}
			n++
			var ms []deed.Message
			for k := range keys {
				payload, _ := json.Marshal(record{fmt.Sprint("key-", k), n})
				for _, topic := range []string{topicOfStream, topicOfQueue} {
					ms = append(ms, deed.Message{Topic: topic, Key: fmt.Sprint("key-", k), Payload: payload})
				}
			}
			err := pgx.BeginFunc(context.Background(), d.db.Pool(pgtest.App), func(tx pgx.Tx) error {
				_, err := deed.Publish(context.Background(), tx, ms...)
				return err
			})
			if err != nil {
				d.t.Errorf("publish: %v", err)
				done <- (n - 1) * keys
				return
			}
		}
	}()
	d.stopPublisher = sync.OnceValue(func() int {
		close(stop)
		return <-done
	})
	d.t.Cleanup(func() { d.stopPublisher() })
}

// phase does something, and waits until what is published after that arrives.
func (d *draining) phase(what string, do func()) {
	d.t.Helper()
	begun := time.Now()
	do()
	for _, topic := range []string{topicOfStream, topicOfQueue} {
		newest := pgtest.One[int64](d.t, d.db.Pool(pgtest.Owner), `select coalesce(max(id), 0) from deed.log where topic = $1`, topic)
		spy := d.spies[slices.Index([]string{topicOfStream, topicOfQueue}, topic)]
		wait(d.t, what+": the "+topic+" to be written", func() bool { return spy.read(func() bool { return spy.newest > newest }) })
	}
	d.t.Logf("%s: written after %s", what, time.Since(begun).Round(100*time.Millisecond))
}

func (d *draining) unavailable() int {
	n := 0
	for _, s := range d.spies {
		s.read(func() bool { n += s.unavailable; return true })
	}
	return n
}

// strict is a sink whose topic all three servers must have.
func (d *draining) strict() *kafka.Sink {
	topic := d.stream.topic + "-strict"
	create(d.t, d.stream.reader, topic, map[string]string{"min.insync.replicas": "3"})
	return open(d.t, d.stream, func(o *kafka.Options) { o.Topic, o.Timeout = topic, 3*time.Second })
}

// restart starts a killed node and waits until it has caught up.
func (d *draining) restart(n *broker.Node) {
	d.t.Helper()
	if err := n.Start(); err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	if err := n.Await(ctx); err != nil {
		d.t.Fatal(err)
	}
	d.whole()
}

// whole waits until all three have all partitions.
func (d *draining) whole() {
	d.t.Helper()
	wait(d.t, "all replicas to be in sync", func() bool {
		for _, c := range []*cluster{d.stream, d.queue} {
			for _, p := range c.partitions() {
				if len(p.ISR) != 3 {
					return false
				}
			}
		}
		return true
	})
}

// partitions asks the cluster about the topic's.
func (c *cluster) partitions() []kmsg.MetadataResponseTopicPartition {
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &c.topic
	request.Topics = append(request.Topics, topic)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := request.RequestWith(ctx, c.reader)
	if err == nil && len(answer.Topics) == 1 {
		if err = kerr.ErrorForCode(answer.Topics[0].ErrorCode); err == nil {
			return answer.Topics[0].Partitions
		}
	}
	c.t.Fatalf("partitions of %s: %v", c.topic, err)
	return nil
}

func (c *cluster) leader(partition int32) int32 {
	for _, p := range c.partitions() {
		if p.Partition == partition {
			return p.Leader
		}
	}
	c.t.Fatalf("%s has no partition %d", c.topic, partition)
	return 0
}

// judge compares what arrived with what was published.
func (d *draining) judge() {
	published := d.stopPublisher()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	operator, err := admin.New(d.t.Context(), d.db.Pool(pgtest.Worker), admin.Options{})
	if err != nil {
		d.t.Fatal(err)
	}
	wait(d.t, "everything to be delivered", func() bool {
		<-tick.C
		status, err := operator.Status(d.t.Context())
		if err != nil {
			d.t.Fatal(err)
		}
		return !slices.ContainsFunc(status, func(s admin.TopicStatus) bool { return s.Pending > 0 || s.Dead > 0 })
	})
	for i, c := range []*cluster{d.stream, d.queue} {
		name := []string{topicOfStream, topicOfQueue}[i]
		times, highest, last := map[record]int{}, map[string]int{}, map[string]int{}
		came := map[string][]int{}
		repeats := 0
		for _, r := range c.all() {
			var at record
			if err := json.Unmarshal(r.Value, &at); err != nil || at.Key != string(r.Key) {
				d.t.Fatalf("%s: record %q under the key %q: %v", name, r.Value, r.Key, err)
			}
			if times[at]++; times[at] > 1 {
				repeats++
			}
			came[at.Key] = append(came[at.Key], at.N)
			if i == 0 && at.N > highest[at.Key]+1 {
				d.t.Errorf("%s: of %s number %d comes after %v", name, at.Key, at.N, came[at.Key][max(0, len(came[at.Key])-8):])
			}
			highest[at.Key], last[at.Key] = max(highest[at.Key], at.N), at.N
		}
		if len(times) != published {
			d.t.Errorf("%s: %d of %d messages are there", name, len(times), published)
		}
		for key := range last {
			if i == 0 && last[key] != highest[key] {
				d.t.Errorf("%s: the last of %s is number %d, the newest is %d", name, key, last[key], highest[key])
			}
		}
		spy := d.spies[i]
		spy.read(func() bool {
			if spy.attempt != 1 {
				d.t.Errorf("%s: attempt %d was made; no message was at fault", name, spy.attempt)
			}
			if repeats > spy.unknown {
				d.t.Errorf("%s: %d repeats, though only %d outcomes were not delivered", name, repeats, spy.unknown)
			}
			d.t.Logf("%s: %d messages, %d records, %d outcomes unavailable", name, published, len(times)+repeats, spy.unavailable)
			return true
		})
	}
	if n := pgtest.One[int](d.t, d.db.Pool(pgtest.Owner), `select count(*) from deed.pending`); n != 0 {
		d.t.Errorf("%d rows are pending", n)
	}
}

// attempts watches a sink.
type attempts struct {
	*kafka.Sink

	mu          sync.Mutex // guards the fields below
	attempt     int        // the highest
	newest      int64      // delivered message
	unavailable int        // outcomes
	unknown     int        // outcomes that are no delivery
}

func (a *attempts) Deliver(ctx context.Context, ms []deed.Message) []error {
	outcomes := a.Sink.Deliver(ctx, ms)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, m := range ms {
		a.attempt = max(a.attempt, m.Attempt)
		switch {
		case outcomes == nil || outcomes[i] == nil:
			a.newest = max(a.newest, m.Seq)
			continue
		case deed.IsUnavailable(outcomes[i]):
			a.unavailable++
		case !strings.Contains(kinds(outcomes[i:i+1]), "context"):
			slog.Warn("refused", "error", outcomes[i])
		}
		a.unknown++
	}
	return outcomes
}

func (a *attempts) read(fn func() bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fn()
}
