package metrics_test

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/server/metrics"
)

// A worker's figures and its installation's, for Prometheus.
func ExampleNew() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	client, err := deed.New(ctx, pool, deed.Options{}) // and its subscriptions
	if err != nil {
		log.Fatal(err)
	}
	operator, err := admin.New(ctx, pool, admin.Options{})
	if err != nil {
		log.Fatal(err)
	}

	collector := metrics.New(client, operator, metrics.Options{Doctor: pool})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	http.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	go collector.Run(ctx) // asks the database now and then; a scrape never does
	if err := client.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
