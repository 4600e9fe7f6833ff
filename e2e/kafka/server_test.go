package kafka_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deedhq/deed/e2e/gate"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/sink/sinktest"
)

func TestMain(m *testing.M) { sinktest.Main(m) }

const (
	// patience bounds every wait; it only matters to a test that fails.
	patience   = 3 * time.Minute
	partitions = 4
)

// seeds are the brokers of a real cluster to use in place of kfake, if
// KAFKA_SEEDS names them. What needs kfake's control is not run then.
func seeds() []string {
	if env := os.Getenv("KAFKA_SEEDS"); env != "" {
		return strings.Split(env, ",")
	}
	return nil
}

// cluster is a topic of its own in a cluster, and what it holds.
type cluster struct {
	t       *testing.T
	fake    *kfake.Cluster // nil for a real one
	gates   []*gate.Gate   // of the fake's brokers
	brokers []string
	topic   string
	reader  *kgo.Client

	mu      sync.Mutex // guards the fields below
	records []*kgo.Record
	shut    bool
}

// start makes a topic in the cluster of KAFKA_SEEDS, else in one of three
// brokers in this process; config is the topic's.
func start(t *testing.T, config map[string]string, options ...kfake.Opt) *cluster {
	t.Helper()
	c := &cluster{t: t, brokers: seeds()}
	if c.brokers == nil {
		c.run(options)
	}
	c.open(config)
	return c
}

// at makes a topic in the cluster of these brokers, behind these gates.
func at(t *testing.T, brokers []string, gates []*gate.Gate, config map[string]string) *cluster {
	t.Helper()
	c := &cluster{t: t, brokers: brokers, gates: gates}
	c.open(config)
	return c
}

// open makes the topic and reads it until the test ends.
func (c *cluster) open(config map[string]string) {
	t := c.t
	t.Helper()
	c.topic = "deed-" + strings.ToLower(rand.Text())
	var err error
	c.reader, err = kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.ConsumeTopics(c.topic), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableClientMetrics(), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))
	if err != nil {
		t.Fatal(err)
	}
	create(t, c.reader, c.topic, config)
	var reading sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	reading.Go(func() { // ends with ctx
		for ctx.Err() == nil {
			c.reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.records = append(c.records, r)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		reading.Wait()
		if c.fake == nil {
			remove(t, c.reader, c.topic)
		}
		c.reader.Close()
	})
}

func (c *cluster) run(options []kfake.Opt) {
	c.t.Helper()
	var mu sync.Mutex
	listen := kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		if err != nil {
			return nil, err
		}
		d := gate.Of(l)
		mu.Lock()
		defer mu.Unlock()
		c.gates = append(c.gates, d)
		return d, nil
	})
	fake, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), listen}, options...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(fake.Close)
	c.fake, c.brokers = fake, fake.ListenAddrs()
}

func create(t *testing.T, client *kgo.Client, topic string, config map[string]string) {
	t.Helper()
	want := kmsg.NewCreateTopicsRequestTopic()
	want.Topic, want.NumPartitions, want.ReplicationFactor = topic, partitions, -1
	for name, value := range config {
		entry := kmsg.NewCreateTopicsRequestTopicConfig()
		entry.Name, entry.Value = name, &value
		want.Configs = append(want.Configs, entry)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, want)
	answer, err := request.RequestWith(t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
	// Its partitions' brokers hear of it a little later.
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err = ends(t.Context(), client, topic); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("topic %s is not there: %v", topic, err)
		}
	}
}

func remove(t *testing.T, client *kgo.Client, topic string) {
	t.Helper()
	gone := kmsg.NewDeleteTopicsRequestTopic()
	gone.Topic = kmsg.StringPtr(topic)
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.Topics, request.TopicNames = append(request.Topics, gone), []string{topic}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := request.RequestWith(ctx, client); err != nil {
		t.Errorf("delete topic %s: %v", topic, err)
	}
}

// size returns how many records the topic holds.
func (c *cluster) size() (n int) {
	if c.fake != nil {
		for _, p := range c.fake.PartitionInfos(c.topic) {
			n += int(p.HighWatermark)
		}
		return n
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := ends(ctx, c.reader, c.topic)
	if err != nil {
		c.t.Errorf("list offsets: %v", err)
	}
	return n
}

// ends adds up where the partitions of a topic end.
func ends(ctx context.Context, client *kgo.Client, name string) (n int, err error) {
	request := kmsg.NewPtrListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = name
	for p := range int32(partitions) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = p, -1 // the end
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	for _, topic := range answer.Topics {
		for _, p := range topic.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, fmt.Errorf("partition %d: %w", p.Partition, err)
			}
			n += int(p.Offset)
		}
	}
	return n, nil
}

// all returns what the topic holds, once the reader has caught up with it; during
// an outage, what has been read so far.
func (c *cluster) all() []*kgo.Record {
	c.mu.Lock()
	shut := c.shut
	c.mu.Unlock()
	want := 0
	if !shut || c.fake != nil {
		want = c.size()
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		c.mu.Lock()
		list, shut := c.records[:len(c.records):len(c.records)], c.shut
		c.mu.Unlock()
		if len(list) >= want || shut {
			return list
		}
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Errorf("the reader has %d of %d records", len(list), want)
			return list
		}
	}
}

func (c *cluster) arrived() []sinktest.Arrival {
	var list []sinktest.Arrival
	for _, r := range c.all() {
		a := sinktest.Arrival{Key: string(r.Key), Payload: r.Value, Headers: map[string]string{}}
		for _, h := range r.Headers {
			a.Headers[h.Key] = string(h.Value)
		}
		a.ID, a.Topic, a.Type = a.Headers["deed-id"], a.Headers["deed-topic"], a.Headers["deed-type"]
		list = append(list, a)
	}
	return list
}

func (c *cluster) down() {
	c.set(true)
	for _, d := range c.gates {
		d.Shut()
	}
}

func (c *cluster) up() {
	for _, d := range c.gates {
		d.Open()
	}
	c.set(false)
}

// gateOf returns a broker's.
func (c *cluster) gateOf(node int32) *gate.Gate {
	c.t.Helper()
	addr := c.brokers[node]
	for _, d := range c.gates {
		if d.Addr().String() == addr {
			return d
		}
	}
	c.t.Fatalf("no gate leads to broker %d", node)
	return nil
}

func (c *cluster) set(shut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = shut
}

// slow makes the brokers take d over each request to produce.
func (c *cluster) slow(d time.Duration) {
	c.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.SleepControl(func() {
			select {
			case <-time.After(d):
			case <-c.t.Context().Done():
			}
		})
		return nil, nil, false
	})
}

// refuse makes the brokers ask judge about the batches of each request. Kafka
// refuses a batch as a whole, for the worst of its records.
func (c *cluster) refuse(judge func([]byte) sinktest.Verdict) {
	j := &judged{t: c.t, judge: judge}
	for p := range int32(partitions) {
		for verdict, code := range map[sinktest.Verdict]*kerr.Error{
			sinktest.ForNow: kerr.InvalidRecord, sinktest.ForGood: kerr.MessageTooLarge,
		} {
			c.fake.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{p}, Err: code, Count: -1,
				When: func(r kmsg.Request) bool { return j.of(r.(*kmsg.ProduceRequest), p) == verdict },
			})
		}
	}
}

// judged remembers what was said of a request. It is used by the fake's own
// goroutine alone.
type judged struct {
	t        *testing.T
	judge    func([]byte) sinktest.Verdict
	request  *kmsg.ProduceRequest
	verdicts map[int32]sinktest.Verdict
}

func (j *judged) of(request *kmsg.ProduceRequest, partition int32) sinktest.Verdict {
	if j.request != request {
		j.request, j.verdicts = request, map[int32]sinktest.Verdict{}
		for _, topic := range request.Topics {
			for _, p := range topic.Partitions {
				for _, r := range decode(j.t, p.Records) {
					j.verdicts[p.Partition] = max(j.verdicts[p.Partition], j.judge(r.Value))
				}
			}
		}
	}
	return j.verdicts[partition]
}

func decode(t *testing.T, raw []byte) []kmsg.Record {
	var batch kmsg.RecordBatch
	if err := batch.ReadFrom(raw); err != nil {
		t.Error(err)
		return nil
	}
	records, err := kfake.BatchRecords(batch)
	if err != nil {
		t.Error(err)
	}
	return records
}

// wait polls until ok holds.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !pgtest.Wait(patience, ok) {
		t.Fatalf("waited %s for %s", patience, what)
	}
}
