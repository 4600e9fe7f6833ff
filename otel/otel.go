// Package otel traces messages with OpenTelemetry, from the publisher's
// transaction through the log to every sink.
//
//	t := otel.New(otel.Options{})
//	t.Publish(ctx, tx, msgs...)                    // in place of deed.Publish
//	deed.Options{Subscriptions: []deed.Subscription{
//		t.Subscription(deed.Handle("orders", ship)), // a span around every delivery
//	}}
//
// A message carries the span that published it in the headers traceparent and
// tracestate, which are in the log and travel to every sink. Each delivery is a
// span below it, however much later, and what the handler publishes or calls
// continues the trace; a webhook or broker is handed the delivery's span. Names
// and attributes follow the semantic conventions for messaging 1.43, with
// messaging.system "deed". Payloads, keys and headers are never recorded.
//
// The package needs OpenTelemetry's API only; what becomes of spans is the
// business of the TracerProvider that the program sets up.
package otel

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/deedhq/deed"
)

const scope = "github.com/deedhq/deed/otel"

// Options tune a Tracer. The zero value works.
type Options struct {
	// TracerProvider makes the spans. Default: the global one.
	TracerProvider trace.TracerProvider
}

// A Tracer makes spans of what deed does. Its methods may be called at the
// same time.
type Tracer struct {
	tracer trace.Tracer
}

// New returns a Tracer.
func New(opts Options) *Tracer {
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	return &Tracer{opts.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))}
}

// Publish is [deed.Publish] in a span that the messages carry. The span ends
// before the transaction does: it tells that they were written, not that they
// were committed.
func (t *Tracer) Publish(ctx context.Context, tx deed.DB, msgs ...deed.Message) ([]deed.Published, error) {
	ctx, end := t.Publishing(ctx, msgs...)
	published, err := deed.Publish(ctx, tx, msgs...)
	end(published, err)
	return published, err
}

// Publishing begins the span of a publication that goes another way, such as
// through package deedsql: publish msgs with the context it returns, then call
// end with the result.
func (t *Tracer) Publishing(ctx context.Context, msgs ...deed.Message) (_ context.Context, end func([]deed.Published, error)) {
	var topics []string
	for _, m := range msgs {
		topics = append(topics, m.Topic)
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	attrs := []attribute.KeyValue{
		system, semconv.MessagingOperationName("publish"), semconv.MessagingOperationTypeSend,
	}
	name := "publish"
	if len(topics) == 1 {
		name += " " + topics[0]
		attrs = append(attrs, semconv.MessagingDestinationName(topics[0]))
	}
	if len(msgs) > 1 {
		attrs = append(attrs, semconv.MessagingBatchMessageCount(len(msgs)))
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attrs...))
	ctx = carry(ctx)
	return ctx, func(published []deed.Published, err error) {
		if len(published) == 1 {
			span.SetAttributes(semconv.MessagingMessageID(published[0].ID.String()), attribute.Bool("deed.message.repeated", published[0].Repeated))
		}
		endWith(span, err)
	}
}

// Subscription returns sub with a span around every delivery.
func (t *Tracer) Subscription(sub deed.Subscription) deed.Subscription {
	sub.Sink = t.Sink(sub.Name, sub.Sink)
	return sub
}

// Sink wraps a sink: each message that it is given has a span of its own. A
// [deed.BatchSink] stays one, and so does a [deed.SinkFunc], which has a time-out by default.
func (t *Tracer) Sink(subscription string, next deed.Sink) deed.Sink {
	s := &sink{t, subscription, next}
	if batch, ok := next.(deed.BatchSink); ok {
		return &batchSink{s, batch}
	}
	if _, ok := next.(deed.SinkFunc); ok {
		return deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
			if outcomes := s.Deliver(ctx, []deed.Message{m}); outcomes != nil {
				return outcomes[0] // a function gives none, or one for each message
			}
			return nil
		})
	}
	return s
}

type sink struct {
	tracer       *Tracer
	subscription string
	next         deed.Sink
}

type batchSink struct {
	*sink
	batch deed.BatchSink
}

// HoldOnNewCluster implements [deed.Holder], as the wrapped sink does.
func (s *sink) HoldOnNewCluster() bool {
	h, ok := s.next.(deed.Holder)
	return ok && h.HoldOnNewCluster()
}

// BatchSize is the wrapped sink's.
func (s *batchSink) BatchSize() int { return s.batch.BatchSize() }

// Deliver implements [deed.Sink].
func (s *sink) Deliver(ctx context.Context, ms []deed.Message) (outcomes []error) {
	spans := make([]trace.Span, len(ms))
	traced := make([]deed.Message, len(ms))
	for i, m := range ms {
		var mctx context.Context
		mctx, spans[i] = s.start(ctx, m)
		traced[i] = m
		traced[i].Headers = withTrace(mctx, m.Headers)
		if len(ms) == 1 {
			ctx = mctx
		}
	}
	finished := false
	defer func() {
		for i, span := range spans {
			switch {
			case !finished:
				endWith(span, fmt.Errorf("panic in the sink"))
			case i < len(outcomes):
				endWith(span, outcomes[i])
			default:
				endWith(span, nil)
			}
		}
	}()
	outcomes = s.next.Deliver(ctx, traced)
	finished = true
	return outcomes
}

// start begins a delivery's span below the one that published the message.
func (s *sink) start(ctx context.Context, m deed.Message) (context.Context, trace.Span) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(m.Headers))
	attrs := []attribute.KeyValue{
		system, semconv.MessagingOperationName("deliver"), semconv.MessagingOperationTypeProcess,
		semconv.MessagingDestinationName(m.Topic), semconv.MessagingMessageID(m.ID.String()),
		semconv.MessagingMessageBodySize(len(m.Payload)),
		attribute.Int("deed.message.attempt", m.Attempt), attribute.String("deed.tenant.id", m.Tenant.String()),
	}
	if s.subscription != "" {
		attrs = append(attrs, semconv.MessagingDestinationSubscriptionName(s.subscription))
	}
	if id := deed.TraceFrom(ctx).CorrelationID; id != "" {
		attrs = append(attrs, semconv.MessagingMessageConversationID(id))
	}
	ctx, span := s.tracer.tracer.Start(ctx, "deliver "+m.Topic, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attrs...))
	return carry(ctx), span
}

var system = semconv.MessagingSystemKey.String("deed")

// carry puts ctx's span where deed looks for what messages are to carry.
func carry(ctx context.Context) context.Context {
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	t := deed.TraceFrom(ctx)
	if headers.Get("traceparent") != "" {
		t.Parent, t.State = headers.Get("traceparent"), headers.Get("tracestate")
	}
	return deed.WithTrace(ctx, t)
}

// withTrace returns headers that carry ctx's span; the argument stays as it is.
func withTrace(ctx context.Context, headers map[string]string) map[string]string {
	own := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, own)
	if own.Get("traceparent") == "" {
		return headers
	}
	merged := maps.Clone(headers)
	if merged == nil {
		merged = map[string]string{}
	}
	delete(merged, "tracestate")
	maps.Copy(merged, own)
	return merged
}

// endWith ends a span with an outcome. The error's text is kept without what
// may follow in further lines.
func endWith(span trace.Span, err error) {
	defer span.End()
	if err == nil {
		return
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	span.SetStatus(codes.Error, text)
	span.SetAttributes(semconv.ErrorTypeKey.String(errorType(err)))
}

func errorType(err error) string {
	switch {
	case deed.IsUnavailable(err):
		return "unavailable"
	case deed.IsPermanent(err):
		return "discard"
	case deed.CodeOf(err) != deed.Internal:
		return string(deed.CodeOf(err))
	}
	return "_OTHER"
}
