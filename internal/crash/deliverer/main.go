// Command deliverer is a worker that tests kill. It reserves deliveries and
// makes them through one provider.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/crash/process"
)

func main() { process.Main(work) }

func work(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	p, channel, recipient, err := provider(os.Getenv("VICTIM_PROVIDER"), os.Getenv("VICTIM_ADDRESS"))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(os.Getenv("VICTIM_DELIVERIES"))
	if err != nil {
		return err
	}
	l, err := delivery.New(ctx, pool, delivery.Options{
		Providers: map[string]delivery.ProviderOptions{"p": {
			Provider: p, Concurrency: 2, PerLane: 2, Hanging: -1, Timeout: 5 * time.Second,
			Rate: 10_000, Lanes: map[string]float64{"*": 0, "-*": 0}, // the services' own would take hours
		}},
		Environment:  "crash",
		Deadline:     30 * time.Second, // or what a busy machine holds up ends a worker that was to be killed
		PollInterval: 50 * time.Millisecond, ClaimBatch: 4, Lease: process.Lease(), BaseRetry: 50 * time.Millisecond,
		Logger: log,
	})
	if err != nil {
		return err
	}
	if err := l.Register(ctx); err != nil {
		return err
	}
	// Every worker reserves all of them: a key is one delivery, whoever comes
	// first.
	for i := 0; i < n; i += 5 {
		var list []delivery.Delivery
		for k := i; k < min(i+5, n); k++ {
			to := recipient
			if strings.Contains(to, "%") { // what is found by its looks is another's to the same one
				to = fmt.Sprintf(recipient, k)
			}
			list = append(list, delivery.Delivery{
				Channel: channel, Provider: "p", Recipient: to, Guarantee: delivery.Guarantee(os.Getenv("VICTIM_GUARANTEE")),
				Payload: payload(channel, k), Key: delivery.NewKey("crash", fmt.Sprint(k)),
			})
		}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := delivery.Reserve(ctx, tx, list...)
			return err
		})
		if err != nil {
			return err
		}
	}
	process.Runs()
	return l.Run(ctx)
}
