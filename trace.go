package deed

import "context"

// The headers that carry a message's place in a wider story. Publish takes
// them from the context unless the message has its own, and a sink or handler
// finds them in its context again.
const (
	headerTraceParent = "traceparent"
	headerTraceState  = "tracestate"
	headerCorrelation = "correlation-id"
)

// Trace is what travels beside a message: the W3C trace context and the
// correlation id that logs show.
type Trace struct {
	Parent        string // the header traceparent
	State         string // the header tracestate
	CorrelationID string // the header correlation-id
}

type traceKey struct{}

// WithTrace returns a context whose published messages carry t.
func WithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceFrom returns the trace that ctx carries: the publisher's, inside a sink
// or a handler.
func TraceFrom(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t
}

func traceOf(headers map[string]string) Trace {
	return Trace{
		Parent:        headers[headerTraceParent],
		State:         headers[headerTraceState],
		CorrelationID: headers[headerCorrelation],
	}
}

// headersWithTrace adds what is missing of ctx's trace to headers, which it
// does not change.
func headersWithTrace(ctx context.Context, headers map[string]string) map[string]string {
	t := TraceFrom(ctx)
	if t == (Trace{}) {
		return headers
	}
	merged := make(map[string]string, len(headers)+3)
	for name, value := range map[string]string{
		headerTraceParent: t.Parent, headerTraceState: t.State, headerCorrelation: t.CorrelationID,
	} {
		if value != "" {
			merged[name] = value
		}
	}
	if headers[headerTraceParent] != "" {
		delete(merged, headerTraceState) // it belongs to the other parent
	}
	for name, value := range headers {
		merged[name] = value
	}
	return merged
}
