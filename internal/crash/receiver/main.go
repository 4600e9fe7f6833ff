// Command receiver is a process that tests kill. It takes messages at /in/plain, lines
// "ID SENDER TEXT", and answers each with its text.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/crash/process"
	"github.com/deedhq/deed/server"
)

func main() { process.Main(work) }

func work(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	r, err := inbound.New(ctx, pool, inbound.Options{
		Sources: map[string]inbound.SourceOptions{"plain": {
			Source: plain{}, At: inbound.AnswerAt(os.Getenv("VICTIM_ANSWER")), Reply: inbound.ReplyBy{Provider: "hook", Channel: delivery.Webhook}, Concurrency: 4,
			Executor: func(_ context.Context, m inbound.Message) (inbound.Result, error) { return inbound.Say(m.Text), nil },
		}},
		Environment: "crash", Lease: time.Second, PollInterval: 50 * time.Millisecond, Wait: 3 * time.Second,
		Logger: log,
	})
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", os.Getenv("VICTIM_ADDRESS"))
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener, r.Handler()) }()
	process.Runs()
	return errors.Join(r.Run(ctx), <-served)
}

type plain struct{}

func (plain) Read(_ *http.Request, body []byte, _ time.Time) (got inbound.Received, err error) {
	words := strings.SplitN(strings.TrimSpace(string(body)), " ", 3)
	if len(words) < 3 {
		return got, inbound.ErrInvalid
	}
	raw, err := json.Marshal(words)
	got.Events = []inbound.Event{{ID: words[0], Sender: words[1], Kind: "telegram", ReplyTo: "https://example.com/", Text: words[2], Body: raw}}
	return got, err
}
