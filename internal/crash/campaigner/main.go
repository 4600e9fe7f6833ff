// Command campaigner is a relay of campaigns that tests kill: it expands jobs, ends them, and
// makes what they owe through the provider of a channel.
package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/liquid"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/crash/process"
)

func main() { process.Main(work) }

func work(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	p, err := provider(os.Getenv("VICTIM_CHANNEL"), os.Getenv("VICTIM_ADDRESS"))
	if err != nil {
		return err
	}
	l, err := delivery.New(ctx, pool, delivery.Options{
		Providers: map[string]delivery.ProviderOptions{"p": {Provider: p, Concurrency: 8, PerLane: 8, Timeout: 5 * time.Second, Rate: 100_000, Lanes: map[string]float64{"*": 0, "-*": 0}}},
		Composer:  campaign.NewComposer(pool, liquid.Engine), Environment: "crash",
		Deadline:     30 * time.Second, // or what a busy machine holds up ends a worker that was to be killed
		PollInterval: 50 * time.Millisecond, ClaimBatch: 50, Lease: process.Lease(), BaseRetry: 50 * time.Millisecond, Logger: log,
	})
	if err != nil {
		return err
	}
	w, err := campaign.NewWorker(ctx, pool, campaign.WorkerOptions{PollInterval: 50 * time.Millisecond, Heartbeat: 10 * time.Second, Environment: "crash", Logger: log})
	if err != nil {
		return err
	}
	if err := l.Register(ctx); err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	defer running.Wait()
	process.Runs()
	return l.Run(ctx)
}
