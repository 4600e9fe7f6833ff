package deed_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

type order struct {
	N int `json:"n"`
}

func TestClient_DeliversToEachSubscriptionOnItsOwn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var a, b recorder
	blocked := make(chan struct{})
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{
		{Topic: "orders", Name: "a", Sink: &a},
		{Topic: "orders", Name: "b", Sink: &b},
		{Topic: "orders", Name: "stuck", Concurrency: 1, Sink: deed.SinkFunc(func(ctx context.Context, _ deed.Message) error {
			select {
			case <-blocked:
			case <-ctx.Done():
			}
			return ctx.Err()
		})},
	}})
	for n := range 50 {
		publish(t, db, message("orders", n), message("orders", -n))
	}
	for name, r := range map[string]*recorder{"a": &a, "b": &b} {
		eventually(t, name+" to have all messages", func() bool { n, _ := r.counts(); return n == 100 })
		if _, repeats := r.counts(); repeats != 0 {
			t.Errorf("%s was given %d repeats in a quiet run", name, repeats)
		}
	}
	close(blocked)
	drained(t, c)
}

func TestClient_TypedHandler(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	got := make(chan deed.Received[order], 1)
	run(t, db, deed.Options{Subscriptions: []deed.Subscription{
		deed.Handle("orders", func(_ context.Context, r deed.Received[order]) error {
			got <- r
			return nil
		}),
	}})
	m := message("orders", 42)
	m.Key, m.Type, m.Headers = "k", "placed", map[string]string{"a": "b"}
	p := publish(t, db, m)[0]
	r := <-got
	if r.Value.N != 42 || r.Key != "k" || r.Type != "placed" || r.Headers["a"] != "b" || r.ID != p.ID || r.Seq != p.Seq || r.Attempt != 1 || r.CreatedAt.IsZero() {
		t.Errorf("the handler was given %+v", r)
	}
}

// A handler steers by what it returns, a panic is a failure like any other,
// and what does not decode counts its attempts and ends dead, holding up
// nobody.
func TestClient_Outcomes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	handled := make(chan int, 100)
	s := deed.Handle("orders", func(_ context.Context, r deed.Received[order]) error {
		handled <- r.Value.N
		switch {
		case r.Attempt > 1:
			return nil
		case r.Value.N == 1:
			return deed.After(time.Millisecond)
		case r.Value.N == 2:
			return deed.Permanent(errors.New("never"))
		case r.Value.N == 3:
			panic("oh no")
		case r.Value.N == 4:
			return errors.New("not now")
		}
		return nil
	})
	s.MaxAttempts = 2
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{s}})
	poison := deed.Message{Topic: "orders", Payload: []byte(`{"n":"not a number"}`)}
	publish(t, db, poison, message("orders", 1), message("orders", 2), message("orders", 3), message("orders", 4), message("orders", 5))
	drained(t, c)
	close(handled)
	times := map[int]int{}
	for n := range handled {
		times[n]++
	}
	for n, want := range map[int]int{1: 2, 2: 1, 3: 2, 4: 2, 5: 1} {
		if times[n] != want {
			t.Errorf("message %d was handled %d times, want %d", n, times[n], want)
		}
	}
	operator, err := admin.New(context.Background(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := operator.Dead(context.Background(), admin.DeadFilter{})
	if err != nil || len(dead.Items) != 2 {
		t.Fatalf("dead letters: %+v, %v", dead, err)
	}
	if d := dead.Items[0]; d.LastError != "never" || d.Attempts != 1 {
		t.Errorf("the discarded message is %+v", d)
	}
	if d := dead.Items[1]; !strings.Contains(d.LastError, "decode payload") || d.Attempts != 2 {
		t.Errorf("the undecodable message is %+v", d)
	}
}

// A row that the relay itself cannot read (its headers are not strings) is a
// failed attempt of that message, and of no other.
func TestClient_UndecodableRow(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var r recorder
	subscribe(t, db, "orders", "handler")
	publish(t, db, message("orders", 1), message("orders", 2))
	db.Exec(t, pgtest.Owner, `update deed.log set headers = '{"a": 1}' where convert_from(payload, 'UTF8') = '{"n":1}'`)
	db.Exec(t, pgtest.Admin, `select deed.set_subscription('orders', 'handler', 1)`)
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: &r}}})
	drained(t, c)
	if n, _ := r.counts(); n != 1 {
		t.Errorf("%d messages were delivered, want the 1 that can be read", n)
	}
	eventually(t, "a dead message to be counted", func() bool { return c.Stats()[0].Dead == 1 })
}

// A handler that is slower than the lease keeps its message by renewal.
func TestContract_O14_SlowHandlerKeepsItsClaim(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const lease = 15 * time.Second // a busy machine may stand still for a few seconds
	var deliveries atomic.Int32
	done := make(chan struct{}, 10)
	slow := deed.SinkFunc(func(ctx context.Context, _ deed.Message) error {
		deliveries.Add(1)
		select {
		case <-time.After(lease + lease/3):
			done <- struct{}{}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	subs := []deed.Subscription{{Topic: "orders", Lease: lease, Sink: slow}}
	c, _ := run(t, db, deed.Options{Subscriptions: subs})
	run(t, db, deed.Options{Subscriptions: subs, Worker: "rival"})
	publish(t, db, message("orders", 1))
	<-done
	drained(t, c)
	if n := deliveries.Load(); n != 1 {
		t.Errorf("the slow message was delivered %d times", n)
	}
}

// A stop lets work in hand finish, gives back what has not started, cancels
// what takes too long, and burns no attempt.
func TestClient_TwoPhaseStop(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	started := make(chan int, 10)
	finishQuick := make(chan struct{})
	s := deed.Handle("orders", func(ctx context.Context, r deed.Received[order]) error {
		started <- r.Value.N
		if r.Value.N == 1 {
			<-finishQuick
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	s.Concurrency = 2
	_, stop := run(t, db, deed.Options{Subscriptions: []deed.Subscription{s}, Grace: 200 * time.Millisecond})
	msgs := []deed.Message{message("orders", 1), message("orders", 2)}
	for n := 3; n < 20; n++ {
		msgs = append(msgs, message("orders", n))
	}
	publish(t, db, msgs...)
	<-started
	<-started
	go close(finishQuick)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	owner := db.Pool(pgtest.Owner)
	if got := pgtest.One[int](t, owner, `select count(*) from deed.pending where claim is null and attempts = 0 and lost_claims = 0 and last_error is null`); got != 18 {
		t.Errorf("%d messages went back untouched, want 18", got)
	}
	if got := pgtest.One[int](t, owner, `select sum(finished) from deed.receipts`); got != 1 {
		t.Errorf("%d messages are finished, want the 1 that was under way", got)
	}
	var r recorder
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: &r}}})
	drained(t, c)
	if n, repeats := r.counts(); n != 18 || repeats != 0 {
		t.Errorf("the next run delivered %d messages with %d repeats", n, repeats)
	}
}

// A sink that is down costs no attempt, loses nothing and holds back no other
// subscription.
func TestContract_O9_OutageBurnsNoAttempt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var down atomic.Bool
	var calls atomic.Int32
	down.Store(true)
	var flaky, other recorder
	flaky.fail = func(deed.Message) error {
		calls.Add(1)
		if down.Load() {
			return deed.Unavailable(errors.New("connection refused"), 50*time.Millisecond)
		}
		return nil
	}
	began := time.Now()
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{
		{Topic: "orders", Name: "flaky", Sink: &flaky, Concurrency: 16},
		{Topic: "orders", Name: "other", Sink: &other},
	}})
	for n := range 300 {
		publish(t, db, message("orders", n))
	}
	eventually(t, "the other subscription to have all messages", func() bool { n, _ := other.counts(); return n == 300 })
	eventually(t, "many probes", func() bool { return calls.Load() >= 2*16+20 })
	if !c.Stats()[0].SinkDown {
		t.Error("the subscription does not say that its sink is down")
	}
	if got := pgtest.One[int](t, db.Pool(pgtest.Owner), `select coalesce(sum(attempts), 0) from deed.pending`); got != 0 {
		t.Errorf("the outage burnt %d attempts", got)
	}
	// Those that were under way when it was found out, and then one each 50 ms.
	if n, took := calls.Load(), time.Since(began); int64(n) > 2*16+int64(took/(50*time.Millisecond)) {
		t.Errorf("%d deliveries were attempted in %s while the sink was down", n, took)
	}
	down.Store(false)
	drained(t, c)
	if n, repeats := flaky.counts(); n != 300 || repeats != 0 {
		t.Errorf("after the outage: %d messages, %d repeats", n, repeats)
	}
}

func TestClient_BatchSink(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := &batchRecorder{size: 7}
	b.fail = func(m deed.Message) error {
		if string(m.Payload) == `{"n":3}` {
			return deed.Permanent(errors.New("three"))
		}
		return nil
	}
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: b}}})
	msgs := make([]deed.Message, 100)
	for n := range msgs {
		msgs[n] = message("orders", n)
	}
	publish(t, db, msgs...)
	drained(t, c)
	if n, repeats := b.counts(); n != 99 || repeats != 0 {
		t.Errorf("delivered %d with %d repeats, want 99: one message of a batch failing is no other's business", n, repeats)
	}
	if b.largest.Load() != 7 {
		t.Errorf("the largest batch had %d messages, want 7", b.largest.Load())
	}
}

type batchRecorder struct {
	recorder
	size    int
	largest atomic.Int64
}

func (b *batchRecorder) BatchSize() int { return b.size }

func (b *batchRecorder) Deliver(ctx context.Context, ms []deed.Message) []error {
	for n := b.largest.Load(); int64(len(ms)) > n && !b.largest.CompareAndSwap(n, int64(len(ms))); n = b.largest.Load() {
	}
	return b.recorder.Deliver(ctx, ms)
}

func TestClient_OptionsAreChecked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, err := deed.New(context.Background(), db.Pool(pgtest.Worker), deed.Options{
		Deadline: time.Millisecond, Grace: -1,
		Subscriptions: []deed.Subscription{
			{Topic: "a b"},
			{Topic: "x", Sink: &recorder{}, Lease: time.Millisecond, MaxAttempts: -1, Concurrency: -1, BatchSize: -1, From: "then"},
			{Topic: "y", Sink: &recorder{}},
			{Topic: "y", Sink: &recorder{}},
		},
	})
	if deed.CodeOf(err) != deed.Invalid {
		t.Fatalf("New: %v", err)
	}
	for _, want := range []string{"Deadline", "Grace", "no Sink", "a topic's name has", "Lease", "MaxAttempts", "Concurrency", "BatchSize", "From", "given twice"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %s:\n%v", want, err)
		}
	}
}

func TestClient_StoredSettingsDiffer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	_, stop := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: &recorder{}, MaxAttempts: 5}}})
	eventually(t, "the registration", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.subscriptions`) == 2
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	c, err := deed.New(ctx, db.Pool(pgtest.Worker), deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: &recorder{}, MaxAttempts: 7, Lease: time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Run(ctx)
	if deed.CodeOf(err) != deed.Conflict || !strings.Contains(err.Error(), "deed topic set orders --subscription handler --max-attempts 7") || !strings.Contains(err.Error(), "--lease 1m0s") {
		t.Errorf("Run with other settings: %v", err)
	}
}

// Nothing that goes to the log or into a row shows a payload.
func TestClient_LogsNoPayloads(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var text syncBuilder
	logger := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := deed.Handle("orders", func(_ context.Context, r deed.Received[map[string]string]) error {
		if r.Attempt == 1 {
			return deed.AfterError(0, errors.New("first time"))
		}
		return nil
	})
	c, _ := run(t, db, deed.Options{Logger: logger, Subscriptions: []deed.Subscription{s}})
	m := deed.Message{Topic: "orders", Payload: []byte(`{"secret":"canary-payload"}`), Headers: map[string]string{"correlation-id": "corr-7"}}
	p := publish(t, db, m)[0]
	drained(t, c)
	eventually(t, "the delivery to be logged, once it is recorded", func() bool { return strings.Contains(text.String(), "delivered") })
	got := text.String()
	for _, want := range []string{"message_id=" + p.ID.String(), "topic=orders", "tenant=00000000-0000-0000-0000-000000000000", "correlation_id=corr-7", "attempt failed", "claimed"} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	if strings.Contains(got, "canary") {
		t.Error("the log shows a payload")
	}
}

type syncBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuilder) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuilder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var _ io.Writer = (*syncBuilder)(nil)

// A message that commits long after it took its number is delivered soon after
// its commit, although claims have long passed it by.
func TestClient_LateCommit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	var r recorder
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Sink: &r}}})
	late, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deed.Publish(ctx, late, message("orders", -1)); err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		publish(t, db, message("orders", n))
	}
	eventually(t, "the others", func() bool { n, _ := r.counts(); return n == 100 })
	if err := late.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the late one", func() bool { n, _ := r.counts(); return n == 101 })
	drained(t, c)
}

func TestClient_ScheduledMessage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	at := make(chan time.Time, 1)
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{
		deed.Handle("orders", func(context.Context, deed.Received[order]) error {
			at <- time.Now()
			return nil
		}),
	}})
	eventually(t, "the client to be ready", func() bool { return c.Ready(context.Background()) == nil })
	m := message("orders", 1)
	due := pgtest.One[time.Time](t, db.Pool(pgtest.Owner), `select clock_timestamp() + interval '700 ms'`)
	m.ProcessAfter = due
	publish(t, db, m)
	if got := (<-at).Sub(due); got < 0 || got > 20*time.Second {
		t.Errorf("delivered %s after it was due", got)
	}
}
