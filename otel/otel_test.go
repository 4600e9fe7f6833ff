package otel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/deedsql"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/otel"
	"github.com/deedhq/deed/sink/webhook"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func setup(t *testing.T) (*otel.Tracer, *tracetest.SpanRecorder, trace.Tracer) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	return otel.New(otel.Options{TracerProvider: provider}), spans, provider.Tracer("test")
}

func attributes(s sdk.ReadOnlySpan) map[string]string {
	m := map[string]string{}
	for _, kv := range s.Attributes() {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

// One trace leads from the request that published, through the log, to the
// handler and what the handler does and publishes in turn.
func TestTrace_FromPublishToHandler(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tracer, spans, app := setup(t)
	handled := make(chan trace.SpanContext, 2)
	first := deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
		if _, err := deed.Publish(ctx, db.Pool(pgtest.App), deed.Message{Topic: "shipped", Payload: []byte(`{}`)}); err != nil {
			return err
		}
		handled <- trace.SpanContextFromContext(ctx)
		return nil
	})
	second := deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
		handled <- trace.SpanContextFromContext(ctx)
		if got := deed.TraceFrom(ctx).CorrelationID; got != "c-1" {
			t.Errorf("correlation id %q", got)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	c, err := deed.New(ctx, db.Pool(pgtest.Worker), deed.Options{Subscriptions: []deed.Subscription{
		tracer.Subscription(deed.Subscription{Topic: "orders", Name: "ship", Sink: first}),
		tracer.Subscription(deed.Subscription{Topic: "shipped", Name: "tell", Sink: second}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()

	rctx, request := app.Start(deed.WithTrace(t.Context(), deed.Trace{CorrelationID: "c-1"}), "request")
	published, err := tracer.Publish(rctx, db.Pool(pgtest.App), deed.Message{Topic: "orders", Payload: []byte(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	request.End()
	for range 2 {
		if got := <-handled; got.TraceID() != request.SpanContext().TraceID() {
			t.Errorf("the handler is in trace %s, the request was in %s", got.TraceID(), request.SpanContext().TraceID())
		}
	}
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}

	byName := map[string]sdk.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		byName[s.Name()] = s
	}
	for child, parent := range map[string]string{
		"publish orders": "request", "deliver orders": "publish orders", "deliver shipped": "deliver orders",
	} {
		if byName[child] == nil || byName[parent] == nil {
			t.Fatalf("no span %q or %q among %v", child, parent, byName)
		}
		if byName[child].Parent().SpanID() != byName[parent].SpanContext().SpanID() {
			t.Errorf("the parent of %q is not %q", child, parent)
		}
	}
	want := map[string]string{
		"messaging.system": "deed", "messaging.operation.name": "deliver", "messaging.operation.type": "process",
		"messaging.destination.name": "orders", "messaging.destination.subscription.name": "ship",
		"messaging.message.id": published[0].ID.String(), "messaging.message.body.size": "7", "deed.message.attempt": "1",
		"messaging.message.conversation_id": "c-1",
	}
	got := attributes(byName["deliver orders"])
	for k, v := range want {
		if got[k] != v {
			t.Errorf("attribute %s is %q, want %q", k, got[k], v)
		}
	}
	if byName["deliver orders"].SpanKind() != trace.SpanKindConsumer || byName["publish orders"].SpanKind() != trace.SpanKindProducer {
		t.Error("the spans' kinds are wrong")
	}
	if id := attributes(byName["publish orders"])["messaging.message.id"]; id != published[0].ID.String() {
		t.Errorf("published id %q", id)
	}
}

func TestSink_OutcomesAndBatches(t *testing.T) {
	t.Parallel()
	tracer, spans, _ := setup(t)
	refused, away := errors.New("refused\nsecond line"), deed.Unavailable(errors.New("away"), 0)
	var given []deed.Message
	wrapped := tracer.Sink("s", batch{func(ms []deed.Message) []error {
		given = ms
		return []error{nil, refused, deed.Permanent(errors.New("never")), away}
	}})
	if b, ok := wrapped.(deed.BatchSink); !ok || b.BatchSize() != 7 {
		t.Errorf("%T is no batch sink of 7", wrapped)
	}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	original := map[string]string{"traceparent": parent, "tracestate": "a=b", "x": "y"}
	ms := []deed.Message{{Topic: "t", Headers: original}, {Topic: "t"}, {Topic: "t"}, {Topic: "t"}}
	if outcomes := wrapped.Deliver(t.Context(), ms); len(outcomes) != 4 || outcomes[1] != refused || outcomes[3] != away {
		t.Errorf("outcomes %v", outcomes)
	}
	if original["traceparent"] != parent {
		t.Error("the caller's headers were changed")
	}
	h := given[0].Headers
	if h["x"] != "y" || h["traceparent"] == parent || !strings.Contains(h["traceparent"], "0af7651916cd43dd8448eb211c80319c") || h["tracestate"] != "a=b" {
		t.Errorf("the sink was given %v", h)
	}
	var types []string
	for i, s := range spans.Ended() {
		types = append(types, attributes(s)["error.type"])
		if (s.Status().Code == codes.Error) != (i > 0) || strings.Contains(s.Status().Description, "second") {
			t.Errorf("span %d: status %v", i, s.Status())
		}
	}
	if got := strings.Join(types, ","); got != ",_OTHER,discard,unavailable" {
		t.Errorf("error types %q", got)
	}
}

// A relay holds in a copy for the sinks that are wrapped, as for others.
func TestSink_HoldsAsTheWrapped(t *testing.T) {
	t.Parallel()
	tracer, _, _ := setup(t)
	for name, tt := range map[string]struct {
		sink deed.Sink
		want bool
	}{
		"of webhooks":            {&webhook.Sink{}, true},
		"of webhooks in batches": {&webhook.BatchSink{}, true},
		"a function":             {deed.SinkFunc(func(context.Context, deed.Message) error { return nil }), false},
	} {
		h, ok := tracer.Sink("s", tt.sink).(deed.Holder)
		if holds := ok && h.HoldOnNewCluster(); holds != tt.want {
			t.Errorf("the sink %s: %t, want %t", name, holds, tt.want)
		}
	}
}

// A function that is traced is bounded as one that is not: by the time-out that functions have by default.
func TestSubscription_AFunctionKeepsItsTimeout(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tracer, _, _ := setup(t)
	type bound struct {
		in    time.Duration
		known bool
	}
	bounds := make(chan bound, 1)
	sub := tracer.Subscription(deed.Handle("orders", func(ctx context.Context, _ deed.Received[int]) error {
		until, ok := ctx.Deadline()
		bounds <- bound{time.Until(until), ok}
		return nil
	}))
	if _, ok := sub.Sink.(deed.SinkFunc); !ok {
		t.Errorf("a function is a %T when it is traced", sub.Sink)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := deed.New(ctx, db.Pool(pgtest.Worker), deed.Options{Subscriptions: []deed.Subscription{sub}})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	if _, err := deed.Publish(t.Context(), db.Pool(pgtest.App), deed.Message{Topic: "orders", Value: 1}); err != nil {
		t.Fatal(err)
	}
	if got := <-bounds; !got.known || got.in > 15*time.Minute {
		t.Errorf("its context ends in %s (it has an end: %t), want within 15 minutes", got.in, got.known)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
}

func TestSink_PanicEndsTheSpan(t *testing.T) {
	t.Parallel()
	tracer, spans, _ := setup(t)
	defer func() {
		if recover() == nil {
			t.Error("the panic did not come through")
		}
		if ended := spans.Ended(); len(ended) != 1 || ended[0].Status().Code != codes.Error {
			t.Errorf("spans %v", ended)
		}
	}()
	tracer.Sink("", deed.SinkFunc(func(context.Context, deed.Message) error { panic("x") })).Deliver(t.Context(), make([]deed.Message, 1))
}

func TestPublishing_DatabaseSQLAndFailure(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tracer, spans, _ := setup(t)
	msgs := []deed.Message{{Topic: "a", Payload: []byte(`1`)}, {Topic: "b", Payload: []byte(`2`)}}
	ctx, end := tracer.Publishing(t.Context(), msgs...)
	std := stdlib.OpenDBFromPool(db.Pool(pgtest.App))
	defer std.Close()
	published, err := deedsql.Publish(ctx, std, msgs...)
	end(published, err)
	if err != nil {
		t.Fatal(err)
	}
	headers := pgtest.One[string](t, db.Pool(pgtest.Worker), `select string_agg(distinct headers->>'traceparent', ',') from deed.log`)
	sc := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": headers}))
	if s := spans.Ended()[0]; s.Name() != "publish" || sc.SpanID() != s.SpanContext().SpanID() || attributes(s)["messaging.batch.message_count"] != "2" {
		t.Errorf("span %s %v, messages carry %s", s.Name(), s.Attributes(), headers)
	}

	if _, err := tracer.Publish(t.Context(), db.Pool(pgtest.App), deed.Message{Topic: "a b"}); err == nil {
		t.Fatal("a bad topic was published")
	}
	if s := spans.Ended()[1]; s.Status().Code != codes.Error || attributes(s)["error.type"] != "invalid" {
		t.Errorf("status %v, attributes %v", s.Status(), s.Attributes())
	}
}

// Without a provider nothing is traced, and what messages carry passes through.
func TestNoProvider(t *testing.T) {
	t.Parallel()
	tracer := otel.New(otel.Options{TracerProvider: noop.NewTracerProvider()})
	var given []deed.Message
	ms := []deed.Message{{Topic: "t", Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}}
	tracer.Sink("", batch{func(ms []deed.Message) []error { given = ms; return nil }}).Deliver(t.Context(), ms)
	if given[0].Headers["traceparent"] != ms[0].Headers["traceparent"] {
		t.Errorf("the sink was given %v", given[0].Headers)
	}
}

type batch struct {
	fn func([]deed.Message) []error
}

func (b batch) Deliver(_ context.Context, ms []deed.Message) []error { return b.fn(ms) }
func (batch) BatchSize() int                                         { return 7 }

// What somebody wrote leads to its executor's span, and on to that of the call that sends
// the reply: by the same ids, and without a word of what was written or to whom.
func TestTrace_FromMessageToReply(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tracer, spans, _ := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	worker := db.NewPool(pgtest.Worker, 8)
	l, err := delivery.New(ctx, worker, delivery.Options{Environment: "t", PollInterval: 20 * time.Millisecond, Providers: map[string]delivery.ProviderOptions{"hook": {Provider: tracer.Provider("hook", accepting{})}}})
	if err != nil {
		t.Fatal(err)
	}
	failed := false
	executor := tracer.Executor("shop", func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
		if !trace.SpanContextFromContext(ctx).IsValid() || deed.TraceFrom(ctx).Parent == "" {
			t.Error("the executor has no span")
		}
		if !failed {
			failed = true
			return inbound.Result{}, errors.New("canary")
		}
		return inbound.Say(m.Text), nil
	})
	r, err := inbound.New(ctx, worker, inbound.Options{Environment: "t", PollInterval: 20 * time.Millisecond, Sources: map[string]inbound.SourceOptions{"shop": {
		Source: said{}, Executor: executor, Reply: inbound.ReplyBy{Provider: "hook", Channel: delivery.Webhook, To: "https://canary.example.com/"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() { done <- l.Run(ctx) }()
	go func() { done <- r.Run(ctx) }()
	for r.Ready() != nil {
		time.Sleep(time.Millisecond)
	}
	if !pgtest.Wait(pgtest.Patience, func() bool { // who sent it brings it until it is done
		request := httptest.NewRequestWithContext(ctx, "POST", "/in/shop", nil)
		request.Header.Set("X-Correlation-Id", "c-9")
		answer := httptest.NewRecorder()
		r.Handler().ServeHTTP(answer, request)
		return answer.Code == http.StatusOK
	}) {
		t.Fatal("it is never done")
	}
	if !pgtest.Wait(pgtest.Patience, func() bool { return len(spans.Ended()) == 3 }) {
		t.Fatalf("%d spans, want 3", len(spans.Ended()))
	}
	cancel()
	if err := errors.Join(<-done, <-done); err != nil {
		t.Error(err)
	}
	names, outcomes := "", ""
	message := attributes(spans.Ended()[0])["messaging.message.id"]
	for _, s := range spans.Ended() {
		a := attributes(s)
		names, outcomes = names+s.Name()+", ", outcomes+a["deed.outcome"]+", "
		if a["messaging.message.conversation_id"] != "c-9" || a["messaging.message.id"] != message && a["deed.channel_message.id"] != message {
			t.Errorf("%s: %v", s.Name(), a)
		}
		if text := fmt.Sprint(a, s.Status(), s.Events()); strings.Contains(text, "canary") {
			t.Errorf("%s tells what was written, or to whom: %s", s.Name(), text)
		}
	}
	if names != "receive shop, receive shop, send hook, " || outcomes != "dispatch_failed, executed, accepted, " {
		t.Errorf("%s%s", names, outcomes)
	}
}

// said is a platform that sends one message.
type said struct{}

func (said) Read(*http.Request, []byte, time.Time) (inbound.Received, error) {
	return inbound.Received{Events: []inbound.Event{{ID: "1", Sender: "canary", Kind: "telegram", Text: "canary", Body: []byte(`{}`)}}}, nil
}

// accepting is a provider that accepts everything.
type accepting struct{}

func (accepting) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{Kind: "accepting", Channels: []delivery.Channel{delivery.Webhook}, Key: delivery.NoKey}
}

func (accepting) Render(d delivery.Draft) ([]byte, error) { return d.Payload, nil }

func (accepting) Send(context.Context, delivery.Reservation) delivery.Outcome {
	return delivery.Accepted("canary")
}
