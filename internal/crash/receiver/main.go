// Command receiver is a process that tests kill, or freeze. It takes messages at /in/plain, lines
// "ID SENDER TEXT", and answers each with its text; what begins with publish or write goes
// to the topic said, or into the table public.said, instead.
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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
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
			Executor: execute,
		}},
		Environment: "crash", Lease: process.Lease(), PollInterval: 50 * time.Millisecond, Wait: 3 * time.Second,
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

func execute(ctx context.Context, m inbound.Message) (inbound.Result, error) {
	write := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `insert into public.said (text) values ($1)`, m.Text)
		return errors.Join(err, gate(ctx, m))
	}
	word, _, _ := strings.Cut(m.Text, " ")
	if word == "write" {
		return inbound.Result{InTx: write}, nil
	}
	if err := gate(ctx, m); err != nil {
		return inbound.Result{}, err
	}
	if word == "publish" {
		return inbound.Result{Publish: []deed.Message{{Topic: "said", Payload: m.Body}}}, nil
	}
	return inbound.Say(m.Text), nil
}

// gate returns when the test has answered, so that a message can be held in this
// process's hand.
func gate(ctx context.Context, m inbound.Message) error {
	url := os.Getenv("VICTIM_GATE")
	if url == "" {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/"+m.PlatformID, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return answer.Body.Close()
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
