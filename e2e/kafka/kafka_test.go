package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/sink/kafka"
)

// message makes message number n of a topic.
func message(n int64, change func(*deed.Message)) deed.Message {
	m := deed.Message{
		Topic: "orders", Key: "o-1", Type: "a", Payload: fmt.Appendf(nil, `{"n":%d}`, n), ContentType: "application/json",
		ID: deed.NewID(time.Unix(1_900_000_000, 0), n), Seq: n, Attempt: 1,
	}
	if change != nil {
		change(&m)
	}
	return m
}

// kinds puts outcomes into words.
func kinds(outcomes []error) string {
	var words []string
	for _, err := range outcomes {
		switch {
		case err == nil:
			words = append(words, "delivered")
		case deed.IsUnavailable(err):
			words = append(words, "unavailable")
		case deed.IsPermanent(err):
			words = append(words, "discard")
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			words = append(words, "context")
		default:
			words = append(words, "attempt")
		}
	}
	return strings.Join(words, " ")
}

func expect(t *testing.T, outcomes []error, want string) {
	t.Helper()
	if got := kinds(outcomes); got != want {
		t.Errorf("outcomes %q, want %q: %v", got, want, errors.Join(outcomes...))
	}
}

// times returns how often each message is in the topic, by number.
func (c *cluster) times() map[int64]int {
	counts := map[int64]int{}
	for _, a := range c.arrived() {
		id, err := deed.ParseID(a.ID)
		if err != nil {
			c.t.Error(err)
		}
		counts[id.Seq()]++
	}
	return counts
}

// Kafka refuses a batch as a whole; each message has its own outcome all the
// same.
func TestPartialFailure(t *testing.T) {
	t.Parallel()
	c := start(t, map[string]string{"max.message.bytes": "20000"})
	var ms []deed.Message
	var want []string
	for n := range int64(40) {
		size := 1000 // together more than the topic takes
		word := "delivered"
		switch {
		case n == 7:
			size, word = 30_000, "discard"
		case n == 20:
			size, word = 2_000_000, "discard" // more than the client takes
		}
		ms = append(ms, message(n+1, func(m *deed.Message) {
			m.Payload, m.Key = []byte(strings.Repeat("x", size)), fmt.Sprint("o-", n) // those of one key would be held back
			if n%2 == 0 {
				m.Key = ""
			}
		}))
		want = append(want, word)
	}
	expect(t, open(t, c, nil).Deliver(t.Context(), ms), strings.Join(want, " "))
	wait(t, "all others to arrive", func() bool { return len(c.times()) == 38 })
	for n, times := range c.times() {
		if times != 1 {
			t.Errorf("message %d is there %d times", n, times)
		}
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	sink := open(t, c, nil)
	expect(t, sink.Deliver(t.Context(), []deed.Message{
		message(1, func(m *deed.Message) { m.Payload, m.Headers = nil, map[string]string{"x-note": "ü"} }),
		message(2, func(m *deed.Message) { m.Key, m.Type, m.ContentType = "", "", "text/plain" }),
	}), "delivered delivered")
	wait(t, "both to arrive", func() bool { return len(c.all()) == 2 })
	for _, r := range c.all() {
		headers := map[string]string{}
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		_, typed := headers["deed-type"]
		first := headers["deed-id"] == message(1, nil).ID.String()
		if first && (r.Value == nil || string(r.Key) != "o-1" || headers["x-note"] != "ü" || headers["content-type"] != "application/json") ||
			!first && (r.Key != nil || typed || headers["content-type"] != "text/plain") || headers["deed-topic"] != "orders" {
			t.Errorf("record with key %q, value %q, headers %v", r.Key, r.Value, headers)
		}
	}
}

// kcat is not ours and not franz-go's: it reads with librdkafka.
func TestKcatReadsIt(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Fatalf("%v: `make setup` installs it", err)
	}
	c := start(t, nil)
	sink := open(t, c, func(o *kafka.Options) { o.Compression = "gzip" })
	var ms []deed.Message
	for n := range int64(60) {
		ms = append(ms, message(n+1, func(m *deed.Message) { m.Key = fmt.Sprintf("key-%d", n%5) }))
	}
	expect(t, sink.Deliver(t.Context(), ms), strings.TrimSpace(strings.Repeat("delivered ", len(ms))))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "kcat", "-C", "-q", "-e", "-b", strings.Join(c.brokers, ","), "-t", c.topic,
		"-o", "beginning", "-f", `%p %k %s %h\n`).CombinedOutput()
	if err != nil {
		t.Fatalf("kcat: %v\n%s", err, out)
	}
	partition := map[string]string{}
	next := map[string]int{}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines {
		fields := strings.SplitN(line, " ", 4)
		if len(fields) != 4 {
			t.Fatalf("kcat says %q", line)
		}
		key := fields[1]
		var k int
		if _, err := fmt.Sscanf(key, "key-%d", &k); err != nil {
			t.Fatal(err)
		}
		n := k + 1 + 5*next[key]
		next[key]++
		if want := fmt.Sprintf(`{"n":%d}`, n); fields[2] != want {
			t.Errorf("of %s comes %s, want %s: the order of the call", key, fields[2], want)
		}
		if p, ok := partition[key]; ok && p != fields[0] {
			t.Errorf("%s is in the partitions %s and %s", key, p, fields[0])
		}
		partition[key] = fields[0]
		if want := "deed-id=" + message(int64(n), nil).ID.String(); !strings.Contains(fields[3], want) {
			t.Errorf("headers %q lack %s", fields[3], want)
		}
	}
	if len(lines) != len(ms) {
		t.Errorf("kcat read %d records, want %d", len(lines), len(ms))
	}
}

// A topic that is missing, or not permitted, is the destination that is away.
func TestTopicThatIsMissing(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	later := c.topic + "-later"
	sink := open(t, c, func(o *kafka.Options) { o.Topic = later })
	expect(t, sink.Deliver(t.Context(), []deed.Message{message(1, nil), message(2, nil)}), "unavailable unavailable")
	create(t, c.reader, later, nil)
	t.Cleanup(func() { remove(t, c.reader, later) })
	wait(t, "the topic to be found", func() bool {
		return kinds(sink.Deliver(t.Context(), []deed.Message{message(1, nil)})) == "delivered"
	})
}

func TestOwnTopic(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	sink := open(t, c, func(o *kafka.Options) { o.Topic = "" })
	own := strings.Replace(c.topic, "-", ".", 1) // deed.…
	create(t, c.reader, own, nil)
	t.Cleanup(func() { remove(t, c.reader, own) })
	c.reader.AddConsumeTopics(own)
	name := func(topic string) func(*deed.Message) { return func(m *deed.Message) { m.Topic = topic } }
	wait(t, "the topic to be found", func() bool {
		return kinds(sink.Deliver(t.Context(), []deed.Message{message(1, name(strings.Replace(own, ".", "/", 1)))})) == "delivered"
	})
	expect(t, sink.Deliver(t.Context(), []deed.Message{
		message(2, name(strings.Replace(own, ".", ":", 1))), message(3, name("::")), message(4, name(own)),
	}), "delivered discard delivered")
}

// What needs brokers that do as they are told is not run on a real cluster.
func TestFaults(t *testing.T) {
	t.Parallel()
	if seeds() != nil {
		return
	}
	t.Run("LongOutage", longOutage)
	t.Run("Silence", silence)
	t.Run("OneBrokerIsSilent", oneBrokerIsSilent)
	t.Run("AcknowledgedBeforeTheEnd", acknowledgedBeforeTheEnd)
	t.Run("GivenUpWhileItWaits", givenUpWhileItWaits)
	t.Run("Brokers", brokerFaults)
	t.Run("AcknowledgementIsAwaited", acknowledgementIsAwaited)
	t.Run("Login", login)
}

// An outage of an hour is many calls that end without an attempt. What they
// held is given up: it does not arrive behind their backs when it is over.
func longOutage(t *testing.T) {
	t.Parallel()
	away(t, start(t, nil))
}

func away(t *testing.T, c *cluster) {
	sink := open(t, c, func(o *kafka.Options) { o.Timeout = time.Second })
	found(t, sink)
	late := open(t, c, func(o *kafka.Options) { o.Timeout = time.Second }) // knows no broker yet
	c.down()
	var calls sync.WaitGroup
	for n := range int64(64) {
		calls.Go(func() {
			s := []*kafka.Sink{sink, late}[n%2]
			expect(t, s.Deliver(t.Context(), []deed.Message{message(100+n, nil), message(200+n, nil)}), "unavailable unavailable")
		})
	}
	calls.Wait()
	c.up()
	for i, s := range []*kafka.Sink{sink, late} {
		wait(t, "the sink to find the brokers", func() bool {
			return kinds(s.Deliver(t.Context(), []deed.Message{message(int64(2+i), nil)})) == "delivered"
		})
	}
	for n := range c.times() {
		if n >= 100 {
			t.Errorf("message %d arrived after it was given up", n)
		}
	}
}

// found has a sink deliver message 1, which may take longer than a time-out of a second: it has to find the brokers.
func found(t *testing.T, sink *kafka.Sink) {
	t.Helper()
	wait(t, "the sink to find the brokers", func() bool {
		return kinds(sink.Deliver(t.Context(), []deed.Message{message(1, nil)})) == "delivered"
	})
}

// Brokers that say nothing any more are an outage, known by the time-out.
func silence(t *testing.T) {
	t.Parallel()
	silent(t, start(t, nil))
}

func silent(t *testing.T, c *cluster) {
	sink := open(t, c, func(o *kafka.Options) { o.Timeout = time.Second })
	found(t, sink)
	for _, d := range c.gates {
		d.Hush()
	}
	speak := sync.OnceFunc(func() {
		for _, d := range c.gates {
			d.Speak()
		}
	})
	t.Cleanup(speak)
	begun := time.Now()
	expect(t, sink.Deliver(t.Context(), []deed.Message{message(2, nil), message(3, nil)}), "unavailable unavailable")
	if d := time.Since(begun); d > 30*time.Second {
		t.Errorf("the call took %s, with a time-out of 1s", d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	expect(t, open(t, c, func(o *kafka.Options) { o.Timeout = patience }).Deliver(ctx, []deed.Message{message(4, nil)}), "context")
	if d := time.Since(begun); d > 30*time.Second {
		t.Errorf("the call went on for %s after its context had ended", d)
	}
	speak()
	wait(t, "the sink to be understood", func() bool {
		return kinds(sink.Deliver(t.Context(), []deed.Message{message(2, nil)})) == "delivered"
	})
}

// One silent broker is an outage of its partitions alone.
func oneBrokerIsSilent(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	sink := open(t, c, nil)
	var ms []deed.Message
	for n := range int64(60) {
		ms = append(ms, message(n+1, func(m *deed.Message) { m.Key = fmt.Sprintf("key-%d", n) }))
	}
	expect(t, sink.Deliver(t.Context(), ms), strings.TrimSpace(strings.Repeat("delivered ", len(ms))))
	home := map[string]int32{} // of each key
	for _, r := range c.all() {
		home[string(r.Key)] = c.fake.LeaderFor(c.topic, r.Partition)
	}
	silent := home["key-0"]
	var want []string
	for _, m := range ms {
		word := "delivered"
		if home[m.Key] == silent {
			word = "unavailable"
		}
		want = append(want, word)
	}
	c.gateOf(silent).Hush()
	t.Cleanup(c.gateOf(silent).Speak)
	expect(t, sink.Deliver(t.Context(), ms), strings.Join(want, " "))
	c.gateOf(silent).Speak()
	wait(t, "the broker to be understood", func() bool {
		return !strings.Contains(kinds(sink.Deliver(t.Context(), ms)), "unavailable")
	})
}

// What has been acknowledged is delivered, also where the call ends while it waits for the records before to make room.
func acknowledgedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	for p := range int32(partitions) { // not all on one broker, as chance may have it
		if err := c.fake.MoveTopicPartition(c.topic, p, p%3); err != nil {
			t.Fatal(err)
		}
	}
	sink := open(t, c, func(o *kafka.Options) { o.Timeout, o.MaxPending = patience, 2 })
	var first []deed.Message
	for n := range int64(60) {
		first = append(first, message(n+1, func(m *deed.Message) { m.Key = fmt.Sprintf("key-%d", n) }))
	}
	expect(t, sink.Deliver(t.Context(), first), strings.TrimSpace(strings.Repeat("delivered ", len(first))))
	home := map[string]int32{} // of each key
	for _, r := range c.all() {
		home[string(r.Key)] = c.fake.LeaderFor(c.topic, r.Partition)
	}
	silent, other := "key-0", ""
	for key, broker := range home {
		if broker != home[silent] {
			other = key
		}
	}
	c.gateOf(home[silent]).Hush()
	t.Cleanup(c.gateOf(home[silent]).Speak)
	// One of two slots is the first record's for good, so each of the others is written once the one before is
	// acknowledged; the last of them never.
	var ms []deed.Message
	for n, key := range []string{silent, other, other, other, silent, other} {
		ms = append(ms, message(int64(100+n), func(m *deed.Message) { m.Key = key }))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outcomes := make(chan []error, 1)
	go func() { outcomes <- sink.Deliver(ctx, ms) }() // ends with ctx
	wait(t, "the third to be written", func() bool { return c.size() == len(first)+3 })
	cancel()
	got := <-outcomes
	expect(t, got[:3], "context delivered delivered")
	expect(t, got[4:], "context context")
}

// What a call tells as not delivered is not written later, also where its time ends, after 7.5 seconds, while it waits for
// room: one record is with the brokers then, which has been there for a while.
func givenUpWhileItWaits(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	sink := open(t, c, func(o *kafka.Options) { o.Timeout, o.MaxPending = 5*time.Second, 1 })
	found(t, sink)
	c.slow(2 * time.Second)
	for first := int64(100); ; first += 100 {
		var ms []deed.Message
		for n := range int64(6) {
			ms = append(ms, message(first+n, nil))
		}
		began := time.Now()
		outcomes := sink.Deliver(t.Context(), ms)
		stood := time.Since(began) > 9*time.Second // it takes eight: the machine stood still, and what was on its way was given up
		wait(t, "the sink to be done with them", func() bool {
			return kinds(sink.Deliver(t.Context(), []deed.Message{message(2, nil)})) == "delivered"
		})
		if stood && first < 1000 {
			continue
		}
		if !deed.IsUnavailable(outcomes[5]) {
			t.Errorf("the last: %v, want that there was no room for it", outcomes[5])
		}
		times := c.times()
		for i, m := range ms {
			if delivered := outcomes[i] == nil; delivered != (times[m.Seq] > 0) {
				t.Errorf("message %d is there %d times, and the call says: %v", m.Seq, times[m.Seq], outcomes[i])
			}
		}
		return
	}
}

// What a broker says about itself costs no attempt, and the producer recovers,
// also from losing its sequence.
func brokerFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  *kerr.Error
		want string
	}{
		{kerr.NotEnoughReplicas, "unavailable"},
		{kerr.NotEnoughReplicasAfterAppend, "unavailable"},
		{kerr.NotLeaderForPartition, "unavailable"},
		{kerr.KafkaStorageError, "unavailable"},
		{kerr.TopicAuthorizationFailed, "unavailable"},
		{kerr.OutOfOrderSequenceNumber, "unavailable"},
		{kerr.InvalidRecord, "attempt"},
		{kerr.CorruptMessage, "attempt"},
		{kerr.UnknownServerError, "attempt"},
	} {
		t.Run(tt.err.Message, func(t *testing.T) {
			t.Parallel()
			c := start(t, nil)
			sink := open(t, c, func(o *kafka.Options) {
				o.Timeout = 5 * time.Second // time to hear the fault
				if tt.want == "attempt" {
					o.Timeout = patience // it is heard on a connection of its own, too
				}
			})
			found(t, sink)
			fault := c.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: tt.err, Count: -1})
			expect(t, sink.Deliver(t.Context(), []deed.Message{message(2, nil)}), tt.want)
			fault.Remove()
			wait(t, "the sink to recover", func() bool {
				return kinds(sink.Deliver(t.Context(), []deed.Message{message(3, nil)})) == "delivered"
			})
			wait(t, "the last to arrive", func() bool { return c.times()[3] > 0 })
		})
	}
}

// The acknowledgement is what counts, not the sending.
func acknowledgementIsAwaited(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	asked := make(chan int16, 1)
	c.fake.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case asked <- r.(*kmsg.ProduceRequest).Acks:
		default:
		}
		return nil, nil, false
	})
	c.slow(500 * time.Millisecond)
	sink := open(t, c, nil)
	expect(t, sink.Deliver(t.Context(), []deed.Message{message(1, nil)}), "delivered")
	infos := c.fake.PartitionInfos(c.topic)
	if !slices.ContainsFunc(infos, func(p *kfake.PartitionInfo) bool { return p.HighWatermark == 1 }) {
		t.Error("delivered, but no partition has it")
	}
	if acks := <-asked; acks != -1 {
		t.Errorf("acks %d were asked for, want all (-1)", acks)
	}
}

func login(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "deed", "p"), kfake.Superuser("SCRAM-SHA-256", "deed2", "p"), kfake.Superuser("SCRAM-SHA-512", "deed5", "p"),
		kfake.TLS(&tls.Config{Certificates: srv.TLS.Certificates}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	c := &cluster{t: t, brokers: fake.ListenAddrs(), topic: "orders"}
	for _, tt := range []struct {
		sasl  kafka.SASL
		roots *x509.CertPool
		want  string
	}{
		{kafka.SASL{Mechanism: "plain", User: "deed", Password: "p"}, roots, "delivered"},
		{kafka.SASL{Mechanism: "scram-sha-256", User: "deed2", Password: "p"}, roots, "delivered"},
		{kafka.SASL{Mechanism: "scram-sha-512", User: "deed5", Password: "p"}, roots, "delivered"},
		{kafka.SASL{Mechanism: "scram-sha-512", User: "deed5", Password: "secret-guess"}, roots, "unavailable"},
		{kafka.SASL{}, roots, "unavailable"},
		{kafka.SASL{Mechanism: "plain", User: "deed", Password: "p"}, x509.NewCertPool(), "unavailable"},
	} {
		sink := open(t, c, func(o *kafka.Options) {
			o.SASL, o.TLS, o.Timeout = tt.sasl, &tls.Config{RootCAs: tt.roots, MinVersion: tls.VersionTLS12}, 2*time.Second
			if tt.want == "delivered" {
				o.Timeout = patience
			}
		})
		outcomes := sink.Deliver(t.Context(), []deed.Message{message(1, nil)})
		expect(t, outcomes, tt.want)
		if text := fmt.Sprint(outcomes); strings.Contains(text, "secret-guess") {
			t.Errorf("the password is in %s", text)
		}
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	sink := open(t, c, nil)
	expect(t, sink.Deliver(t.Context(), []deed.Message{message(1, nil)}), "delivered")
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	expect(t, sink.Deliver(t.Context(), []deed.Message{message(2, nil)}), "unavailable")
}
