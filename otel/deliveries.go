package otel

import (
	"context"
	"fmt"
	"io"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
)

// Executor wraps an executor of inbound messages: each run of it is a span "receive
// SOURCE", with the ids of the message, and never what was written or by whom.
func (t *Tracer) Executor(source string, next inbound.Executor) inbound.Executor {
	return func(ctx context.Context, m inbound.Message) (result inbound.Result, err error) {
		ctx, span := t.tracer.Start(ctx, "receive "+source, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			system, semconv.MessagingOperationName("receive"), semconv.MessagingOperationTypeProcess, semconv.MessagingDestinationName(source),
			semconv.MessagingMessageID(m.ID), semconv.MessagingMessageConversationID(m.CorrelationID),
			attribute.Int("deed.message.attempt", m.Attempt), attribute.String("deed.tenant.id", m.Tenant.String()),
		))
		finished := false
		defer func() {
			outcome := "executed"
			switch {
			case !finished:
				outcome = "panic"
			case err != nil:
				outcome = "dispatch_failed"
			case result.Denied != "":
				outcome = "denied"
			}
			endAs(span, outcome, outcome == "executed" || outcome == "denied")
		}()
		result, err = next(carry(ctx), m)
		finished = true
		return result, err
	}
}

// Provider wraps a provider of deliveries: each call is a span "send NAME", with the ids of
// the delivery and of the inbound message that it answers, and never the recipient or
// the contents. A [delivery.Finder] stays one, and so does a [delivery.Batcher]: a call for
// several is one span, with how many they are.
func (t *Tracer) Provider(name string, next delivery.Provider) delivery.Provider {
	p := &provider{next, t, name}
	f, finds := next.(delivery.Finder)
	b, batches := next.(delivery.Batcher)
	switch {
	case finds && batches:
		return &struct {
			*finder
			batcher
		}{&finder{p, f}, batcher{p, b}}
	case finds:
		return &finder{p, f}
	case batches:
		return &struct {
			*provider
			batcher
		}{p, batcher{p, b}}
	}
	return p
}

type provider struct {
	delivery.Provider
	tracer *Tracer
	name   string
}

type finder struct {
	*provider
	next delivery.Finder
}

// batcher has the methods of a [delivery.Batcher] that others have not.
type batcher struct {
	of   *provider
	next delivery.Batcher
}

// Close closes the wrapped provider, if it can be closed.
func (p *provider) Close() error {
	if c, ok := p.Provider.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Send implements [delivery.Provider].
func (p *provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	ctx, span := p.start(ctx, "send ", r)
	outcome, finished := delivery.Outcome{}, false
	defer func() {
		if !finished {
			endAs(span, "panic", false)
			return
		}
		endAs(span, outcome.String(), outcome.String() == "accepted")
	}()
	outcome = p.Provider.Send(ctx, r)
	finished = true
	return outcome
}

// Find implements [delivery.Finder].
func (f *finder) Find(ctx context.Context, r delivery.Reservation) (delivery.Finding, error) {
	ctx, span := f.start(ctx, "find ", r)
	found, err := f.next.Find(ctx, r)
	endAs(span, fmt.Sprintf("found: %t", found.Found), err == nil)
	return found, err
}

// Batchable implements [delivery.Batcher].
func (b batcher) Batchable(request []byte) bool { return b.next.Batchable(request) }

// SendBatch implements [delivery.Batcher].
func (b batcher) SendBatch(ctx context.Context, batch delivery.Batch) (outs []delivery.Outcome) {
	ctx, span := b.of.tracer.tracer.Start(ctx, "send "+b.of.name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		semconv.MessagingSystemKey.String("deed"), semconv.MessagingDestinationName(b.of.name), semconv.MessagingBatchMessageCount(len(batch.Members())),
		attribute.String("deed.batch.key", batch.Key()),
	))
	finished := false
	defer func() {
		outcome := "panic"
		if finished {
			outcome = together(outs)
		}
		endAs(span, outcome, outcome == "accepted")
	}()
	outs = b.next.SendBatch(ctx, batch)
	finished = true
	return outs
}

// together is what came of a call for several: the same for all, or mixed.
func together(outs []delivery.Outcome) string {
	all := ""
	for _, o := range outs {
		if all != "" && all != o.String() {
			return "mixed"
		}
		all = o.String()
	}
	return all
}

func (p *provider) start(ctx context.Context, what string, r delivery.Reservation) (context.Context, trace.Span) {
	attrs := []attribute.KeyValue{
		semconv.MessagingSystemKey.String("deed"), semconv.MessagingDestinationName(p.name), semconv.MessagingMessageID(r.ID()),
		attribute.Int("deed.message.attempt", r.Attempt()),
	}
	if id := r.CorrelationID(); id != "" {
		attrs = append(attrs, semconv.MessagingMessageConversationID(id))
	}
	if id := r.ChannelMessageID(); id != "" {
		attrs = append(attrs, attribute.String("deed.channel_message.id", id))
	}
	return p.tracer.tracer.Start(ctx, what+p.name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
}

// endAs ends a span with what came of it, in words of ours: errors quote addresses.
func endAs(span trace.Span, outcome string, well bool) {
	span.SetAttributes(attribute.String("deed.outcome", outcome))
	if !well {
		span.SetStatus(codes.Error, outcome)
	}
	span.End()
}
