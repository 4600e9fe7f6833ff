package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/deedhq/deed/otel"
)

// tracing sends spans by OTLP over HTTP if OpenTelemetry's own variables name
// an endpoint; else the tracer is nil. stop sends what is left.
func tracing(ctx context.Context, log *slog.Logger) (tracer *otel.Tracer, stop func(), err error) {
	endpoint := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if endpoint == "" || os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return nil, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("tracing to OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	// The variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come last and win.
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "deed"), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(res))
	log.Info("tracing by OTLP over HTTP")
	stop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last spans were not sent", "error", err)
		}
	}
	return otel.New(otel.Options{TracerProvider: provider}), stop, nil
}
