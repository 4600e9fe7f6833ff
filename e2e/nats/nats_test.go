package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/e2e/gate"
	"github.com/deedhq/deed/sink/nats"
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

func TestRepeatIsDroppedByTheStream(t *testing.T) {
	t.Parallel()
	c := start(t)
	here := open(t, c, nil)
	there := open(t, c, func(o *nats.Options) { o.Installation = func() string { return "there" } })
	m := message(1, nil)
	for _, sink := range []*nats.Sink{here, here, there, here} {
		expect(t, sink.Deliver(t.Context(), []deed.Message{m}), "delivered")
	}
	stored := c.all()
	if len(stored) != 2 {
		t.Fatalf("the stream has %d messages, want one of each installation", len(stored))
	}
	// The hash is of the subject, and stays: with another one what is sent again would be stored again.
	for i, want := range []string{"here." + m.ID.String() + ".867beb6eaa573a2e", "there." + m.ID.String() + ".867beb6eaa573a2e"} {
		if got := stored[i].Headers().Get("Nats-Msg-Id"); got != want {
			t.Errorf("Nats-Msg-Id %q, want %q", got, want)
		}
	}
}

// Two subscriptions of a topic may each have a subject of their own, and one stream take both:
// what it has under one subject is no repeat under the other.
func TestTwoSubjectsOfOneStream(t *testing.T) {
	t.Parallel()
	c := start(t, func(_ *server.Options, s *jetstream.StreamConfig) { s.Subjects = []string{"billing.>", "search.>"} })
	m := message(1, nil)
	for range 2 {
		for _, to := range []string{"billing", "search"} {
			sink := open(t, c, func(o *nats.Options) { o.Subject = to + ".{topic}" })
			expect(t, sink.Deliver(t.Context(), []deed.Message{m}), "delivered")
		}
	}
	var got []string
	for _, stored := range c.all() {
		got = append(got, stored.Subject()+" "+stored.Headers().Get("deed-id"))
	}
	want := []string{"billing." + m.Topic + " " + m.ID.String(), "search." + m.Topic + " " + m.ID.String()}
	if !slices.Equal(got, want) {
		t.Errorf("the stream has %q, want %q", got, want)
	}
}

func TestPartialFailure(t *testing.T) {
	t.Parallel()
	c := start(t, func(_ *server.Options, s *jetstream.StreamConfig) {
		s.Subjects, s.MaxMsgSize = []string{"events.a"}, 10_000
	})
	large := func(n int) func(*deed.Message) {
		return func(m *deed.Message) { m.Payload = []byte(strings.Repeat("x", n)) }
	}
	ms := []deed.Message{
		message(1, nil),
		message(2, large(20_000)),
		message(3, func(m *deed.Message) { m.Type = "nobody-takes-this" }),
		message(4, nil),
		message(5, large(2<<20)), // more than the server takes
		message(6, func(m *deed.Message) { m.Type = strings.Repeat("long", 600) }),
		message(7, nil),
	}
	for i := range ms {
		ms[i].Key = fmt.Sprint("k", i) // those of one key would be held back
	}
	sink := open(t, c, func(o *nats.Options) { o.Subject = "events.{type}" })
	expect(t, sink.Deliver(t.Context(), ms), "delivered discard attempt delivered discard discard delivered")
	if n := len(c.all()); n != 3 {
		t.Errorf("the stream has %d messages, want 3", n)
	}

	// Where all messages go to one subject, its stream is the destination.
	for _, subject := range []string{"nobody.takes.this", "nobody.{topic}"} {
		sink := open(t, c, func(o *nats.Options) { o.Subject = subject })
		expect(t, sink.Deliver(t.Context(), ms[:2]), "unavailable unavailable")
	}
}

func TestStreamThatIsFull(t *testing.T) {
	t.Parallel()
	c := start(t, func(_ *server.Options, s *jetstream.StreamConfig) {
		s.MaxMsgs, s.Discard = 2, jetstream.DiscardNew
	})
	ms := []deed.Message{message(1, nil), message(2, nil), message(3, nil)}
	sink := open(t, c, nil)
	expect(t, sink.Deliver(t.Context(), ms), "delivered delivered unavailable")
	config := c.config
	config.MaxMsgs = 10
	ctx, cancel := patient(t)
	defer cancel()
	if _, err := c.js.UpdateStream(ctx, config); err != nil {
		t.Fatal(err)
	}
	expect(t, sink.Deliver(t.Context(), ms), "delivered delivered delivered")
	if n := len(c.all()); n != 3 {
		t.Errorf("the stream has %d messages, want 3", n)
	}
}

// Whoever publishes is refused the same when its account is full, has no limits for the stream's tier, or the
// stream is sealed.
func TestAccountThatIsFull(t *testing.T) {
	t.Parallel()
	c := start(t)
	ms := []deed.Message{message(1, nil), message(2, nil)}
	sink := open(t, c, nil)
	own := open(t, c, func(o *nats.Options) { o.Subject = "events.{topic}.{key}" })
	expect(t, sink.Deliver(t.Context(), ms[:1]), "delivered")
	limit := func(limits map[string]server.JetStreamAccountLimits) {
		t.Helper()
		if err := c.server.GlobalAccount().UpdateJetStreamLimits(limits); err != nil {
			t.Fatal(err)
		}
	}
	boundless := server.JetStreamAccountLimits{
		MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
		MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}
	full := boundless
	full.MaxStore = 1
	limit(map[string]server.JetStreamAccountLimits{"": full})
	expect(t, sink.Deliver(t.Context(), ms[1:]), "unavailable")
	expect(t, own.Deliver(t.Context(), ms[1:]), "unavailable")
	limit(map[string]server.JetStreamAccountLimits{"R3": boundless})
	expect(t, sink.Deliver(t.Context(), ms[1:]), "unavailable")
	expect(t, own.Deliver(t.Context(), ms[1:]), "attempt")
	limit(map[string]server.JetStreamAccountLimits{"": boundless})
	expect(t, sink.Deliver(t.Context(), ms), "delivered delivered")

	config := c.config
	config.Sealed = true
	ctx, cancel := patient(t)
	defer cancel()
	if _, err := c.js.UpdateStream(ctx, config); err != nil {
		t.Fatal(err)
	}
	ms = []deed.Message{message(3, nil)}
	expect(t, sink.Deliver(t.Context(), ms), "unavailable")
	expect(t, own.Deliver(t.Context(), ms), "attempt")
	if n := len(c.all()); n != 2 {
		t.Errorf("the stream has %d messages, want 2", n)
	}
}

// JetStream stores no more than 64 KiB of headers, and never will of this message.
func TestHeadersThatAreTooLarge(t *testing.T) {
	t.Parallel()
	c := start(t)
	sink := open(t, c, nil)
	m := message(1, func(m *deed.Message) { m.Headers = map[string]string{"x-note": strings.Repeat("x", 70_000)} })
	expect(t, sink.Deliver(t.Context(), []deed.Message{m}), "discard")
}

func TestPermission(t *testing.T) {
	t.Parallel()
	c := start(t, func(o *server.Options, _ *jetstream.StreamConfig) {
		o.Users = []*server.User{
			{Username: "admin", Password: "a"},
			{Username: "deed", Password: "d", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Deny: []string{"events.secret"}},
			}},
		}
	})
	ms := []deed.Message{
		message(1, nil),
		message(2, func(m *deed.Message) { m.Type = "secret" }),
		message(3, nil),
		message(4, func(m *deed.Message) { m.Type = "secret" }),
	}
	login := func(subject, password string) func(*nats.Options) {
		return func(o *nats.Options) {
			o.Subject, o.User, o.Password, o.Timeout = subject, "deed", password, patience
		}
	}
	begun := time.Now()
	sink := open(t, c, login("events.{type}", "d"))
	expect(t, sink.Deliver(t.Context(), ms), "delivered attempt delivered attempt")
	sink = open(t, c, login("events.secret", "d"))
	expect(t, sink.Deliver(t.Context(), ms[:1]), "unavailable")
	if d := time.Since(begun); d > patience/2 {
		t.Errorf("a denial took %s: the acknowledgement was waited for", d)
	}
	sink = open(t, c, login("events.{topic}", "wrong"))
	outcomes := sink.Deliver(t.Context(), ms[:1])
	expect(t, outcomes, "unavailable")
	if !strings.Contains(outcomes[0].Error(), "authorization") {
		t.Errorf("the reason is %v", outcomes[0])
	}
}

// An outage of an hour is many calls that end without an attempt; afterwards
// the same sink goes on, and the same server still knows what it had.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	own, err := gate.Reserve() // a port that nobody is given while the server is away
	if err != nil {
		t.Fatal(err)
	}
	opts := &server.Options{}
	c := start(t, func(o *server.Options, _ *jetstream.StreamConfig) {
		opts, o.Port = o, own.Addr().(*net.TCPAddr).Port
		_ = own.Close()
	})
	sink := open(t, c, nil)
	before := []deed.Message{message(1, nil), message(2, nil)}
	expect(t, sink.Deliver(t.Context(), before), "delivered delivered")
	c.server.Shutdown()
	c.server.WaitForShutdown()
	c.gate.Shut()
	for range 200 {
		expect(t, sink.Deliver(t.Context(), before[:1]), "unavailable")
	}
	late := open(t, c, nil) // made during the outage
	expect(t, late.Deliver(t.Context(), before[:1]), "unavailable")
	c.run(opts)
	c.gate.Open()
	ms := append(before, message(3, nil))
	for _, s := range []*nats.Sink{sink, late} {
		wait(t, "the sink to find the server", func() bool {
			return kinds(s.Deliver(t.Context(), ms)) == "delivered delivered delivered"
		})
	}
	if n := len(c.all()); n != 3 {
		t.Errorf("the stream has %d messages, want 3", n)
	}
}

// awaited is a context that is told when somebody waits for its end.
type awaited struct {
	context.Context
	begun func()
}

func (a awaited) Done() <-chan struct{} {
	a.begun()
	return a.Context.Done()
}

// A server that says nothing any more is an outage, known by the time-out. A call whose context ends before that
// ends with it, and says so.
func TestSilence(t *testing.T) {
	t.Parallel()
	c := start(t)
	sink := open(t, c, func(o *nats.Options) { o.Timeout = time.Second })
	patient := open(t, c, func(o *nats.Options) { o.Timeout = patience })
	for _, s := range []*nats.Sink{sink, patient} {
		wait(t, "the sink to find the server", func() bool {
			return kinds(s.Deliver(t.Context(), []deed.Message{message(1, nil)})) == "delivered"
		})
	}
	c.gate.Hush()

	// It ends when the message is sent, and its acknowledgement is waited for.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := time.Now()
	expect(t, patient.Deliver(awaited{ctx, func() { go cancel() }}, []deed.Message{message(4, nil)}), "context")
	if d := time.Since(begun); d > patience/2 {
		t.Errorf("the call went on for %s after its context had ended", d)
	}
	expect(t, sink.Deliver(t.Context(), []deed.Message{message(2, nil), message(3, nil)}), "unavailable unavailable")

	c.gate.Speak()
	wait(t, "the sink to be understood", func() bool {
		return kinds(sink.Deliver(t.Context(), []deed.Message{message(2, nil), message(3, nil), message(4, nil)})) == "delivered delivered delivered"
	})
	if n := len(c.all()); n != 4 {
		t.Errorf("the stream has %d messages, want 4: what was sent twice is stored once", n)
	}
}

func TestUnacknowledgedAreBounded(t *testing.T) {
	t.Parallel()
	const bound = 7
	c := start(t)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	c.set(func() { c.hold = hold })
	c.interpose()
	sink := open(t, c, func(o *nats.Options) { o.MaxPending, o.Timeout = bound, patience })
	var ms []deed.Message
	for n := range int64(50) {
		ms = append(ms, message(n+1, nil))
	}
	var calls sync.WaitGroup
	for part := range 2 {
		calls.Go(func() {
			expect(t, sink.Deliver(t.Context(), ms[part*25:part*25+25]), strings.TrimSpace(strings.Repeat("delivered ", 25)))
		})
	}
	wait(t, "the bound to be reached", func() bool { return c.waiting() >= bound })
	release()
	calls.Wait()
	if n := len(c.all()); n != len(ms) {
		t.Errorf("the stream has %d messages, want %d", n, len(ms))
	}
	if c.most > bound {
		t.Errorf("%d messages were unacknowledged at once, want at most %d", c.most, bound)
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	c := start(t)
	sink := open(t, c, func(o *nats.Options) { o.Subject = "events.{topic}.{type}.{key}" })
	var ms []deed.Message
	want := []string{}
	for i, tt := range []struct{ topic, kind, key, want string }{
		{"orders.eu", "order.placed", "o-1", "events.orders.eu.order%2Eplaced.o-1"},
		{"a/b:c", "", "", "events.a/b:c._._"},
		{".a..b.", "_", "*", "events.%2Ea.%2Eb%2E.%5F.%2A"},
		{"x", ">", "a b\r\nPUB evil 0\r\n", "events.x.%3E.a%20b%0D%0APUB%20evil%200%0D%0A"},
		{"x", "{key}", "é", "events.x.%7Bkey%7D.%C3%A9"},
	} {
		ms = append(ms, message(int64(i+1), func(m *deed.Message) { m.Topic, m.Type, m.Key = tt.topic, tt.kind, tt.key }))
		want = append(want, tt.want)
	}
	expect(t, sink.Deliver(t.Context(), ms), strings.TrimSpace(strings.Repeat("delivered ", len(ms))))
	for i, m := range c.all() {
		if m.Subject() != want[i] {
			t.Errorf("message %d: subject %q, want %q", i+1, m.Subject(), want[i])
		}
	}
}

// A publisher's headers cannot command the server.
func TestHeadersThatCommand(t *testing.T) {
	t.Parallel()
	c := start(t)
	sink := open(t, c, nil)
	expect(t, sink.Deliver(t.Context(), []deed.Message{message(1, func(m *deed.Message) {
		m.Headers = map[string]string{"nats-expected-stream": "other", "Nats-Rollup": "all", "x-note": "ü"}
	})}), "delivered")
	h := c.all()[0].Headers()
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "nats-") && name != "Nats-Msg-Id" {
			t.Errorf("the header %s was sent", name)
		}
	}
	if got := h.Get("x-note"); got != "%C3%BC" {
		t.Errorf("x-note is %q", got)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	c := start(t)
	sink := open(t, c, nil)
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	expect(t, sink.Deliver(t.Context(), []deed.Message{message(1, nil)}), "unavailable")
}
