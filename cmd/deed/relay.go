package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/schema"
	"github.com/deedhq/deed/server"
	"github.com/deedhq/deed/sink/webhook"
)

const defaultListen = "127.0.0.1:8420"

func newRelay(a *app) *cobra.Command {
	var listen string
	var untilEmpty bool
	cmd := &cobra.Command{
		Use:   "relay --config FILE",
		Short: "Drain the topics of deed.yaml into their sinks",
		Long: `Drain the topics that deed.yaml names into their sinks, until SIGTERM or Ctrl-C: then claim no more, let running
deliveries finish, and give the rest back. A second signal ends it at once. Any number of relays may run.

With --until-empty it ends when nothing is unfinished but dead messages and those scheduled more than a minute
ahead; retries are waited for.`,
		Example: `  deed relay --config deed.yaml
  deed relay --config deed.yaml --until-empty --listen ''`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := a.config()
			if err != nil {
				return err
			}
			if len(file.Topics) == 0 {
				return usagef("there is nothing to relay: no topics in the configuration (--config, DEED_CONFIG or ./deed.yaml)")
			}
			r := &relay{app: a, file: file, out: cmd.OutOrStdout(), listen: defaultListen, untilEmpty: untilEmpty}
			if r.log, err = a.logger(cmd.ErrOrStderr()); err != nil {
				return err
			}
			r.listen = config.Pick(listen, cmd.Flags().Changed("listen"), os.Getenv("DEED_LISTEN"), file.Listen, defaultListen)
			if r.url, err = a.database(); err != nil {
				return err
			}
			return r.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&listen, "listen", defaultListen, "the address of /healthz and /readyz; '' for none")
	cmd.Flags().BoolVar(&untilEmpty, "until-empty", false, "end when everything due is finished")
	return cmd
}

// relay is a process's subscriptions, its client and its health port.
type relay struct {
	app        *app
	file       *config.Config
	log        *slog.Logger
	out        io.Writer // for sinks that print
	url        string
	listen     string
	untilEmpty bool
	catchAll   deed.Sink // of undeclared topics; nil: they are left alone
}

func (r *relay) run(ctx context.Context) error {
	subs, closeSinks, err := r.subscriptions()
	if err != nil {
		return err
	}
	defer closeSinks()
	pool, err := openPool(ctx, r.url, len(subs))
	if err != nil {
		return err
	}
	defer pool.Close()

	var mu sync.Mutex
	var client *deed.Client
	ready := func(ctx context.Context) error {
		mu.Lock()
		c := client
		mu.Unlock()
		if c == nil {
			return errors.New("the database has not been reached yet")
		}
		return c.Ready(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	if r.listen == "" {
		served <- nil
	} else {
		go func() {
			err := server.Serve(ctx, r.listen, server.Handler(ready), func(a net.Addr) { r.log.Info("listening", "address", a.String()) })
			if err != nil {
				cancel() // a relay that cannot be watched does not run
			}
			served <- err
		}()
	}
	c, err := r.connect(ctx, pool, deed.Options{Subscriptions: subs, Worker: setting(r.app.worker, "DEED_WORKER", r.file.Worker, ""), Logger: r.log})
	if err == nil {
		mu.Lock()
		client = c
		mu.Unlock()
		r.log.Info("relay starts", "subscriptions", len(subs))
		err = r.drain(ctx, c)
		r.log.Info("relay has stopped")
	}
	cancel()
	return errors.Join(<-served, err)
}

// connect waits for a database that is away; what waiting cannot cure ends it.
func (r *relay) connect(ctx context.Context, pool *pgxpool.Pool, opts deed.Options) (*deed.Client, error) {
	for {
		c, err := deed.New(ctx, pool, opts)
		if err == nil {
			return c, nil
		}
		pg, fromServer := errors.AsType[*pgconn.PgError](err)
		final := deed.CodeOf(err) != deed.Internal || errors.Is(err, schema.ErrNotInstalled) || errors.Is(err, schema.ErrBehind) ||
			errors.Is(err, schema.ErrAhead) || (fromServer && pg.Code[:2] != "57" && pg.Code[:2] != "53")
		if final || ctx.Err() != nil {
			return nil, err
		}
		r.log.Warn("the database does not answer; will try again", "error", err)
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}

// drain runs the client until ctx ends or, if so asked, until it is empty.
func (r *relay) drain(ctx context.Context, c *deed.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	if !r.untilEmpty {
		return <-done
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
		}
		empty, err := c.Drained(ctx)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("asking whether all is finished failed; will try again", "error", err)
		}
		if empty {
			cancel()
			return <-done
		}
	}
}

// subscriptions makes one of each topic and sink, and the sinks.
func (r *relay) subscriptions() (subs []deed.Subscription, closeAll func(), err error) {
	sinks := map[string]deed.Sink{}
	closeAll = func() {
		for _, s := range sinks {
			if c, ok := s.(io.Closer); ok {
				_ = c.Close() // only idle connections are closed
			}
		}
	}
	var errs []error
	for name, s := range r.file.Sinks {
		sink, err := r.sink(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("sink %s: %w", name, err))
			continue
		}
		sinks[name] = sink
	}
	if errs != nil {
		closeAll()
		return nil, nil, &exitError{exitUsage, errors.Join(errs...)}
	}
	for _, t := range r.file.Topics {
		for _, name := range t.Sinks {
			subs = append(subs, deed.Subscription{
				Topic: t.Name, Name: name, Sink: sinks[name], From: deed.From(t.From), MaxAttempts: t.MaxAttempts,
				Lease: t.Lease, Concurrency: t.Concurrency, BatchSize: t.Batch,
			})
		}
	}
	if r.catchAll != nil {
		subs = append(subs, deed.Subscription{Name: "default", Sink: r.catchAll})
	}
	return subs, closeAll, nil
}

func (r *relay) sink(s config.Sink) (deed.Sink, error) {
	switch s.Type {
	case "print":
		return &printer{out: r.out}, nil
	case "webhook":
		w := s.Webhook
		headers := make(map[string]string, len(w.Headers))
		for name, value := range w.Headers {
			headers[name] = value.Reveal()
		}
		return webhook.New(webhook.Options{
			URL: w.URL, Secret: w.Secret.Reveal(), PreviousSecret: w.PreviousSecret.Reveal(), AllowHosts: w.AllowHosts,
			Body: webhook.Body(w.Body), Timeout: w.Timeout, Headers: headers,
			Breaker: webhook.Breaker{Failures: w.Breaker.Failures, Pause: w.Breaker.Pause, MaxPause: w.Breaker.MaxPause},
		})
	}
	return nil, fmt.Errorf("type %q is not known", s.Type)
}

// printer is a sink that prints a line a message.
type printer struct {
	mu      sync.Mutex
	out     io.Writer
	payload bool
}

// Deliver prints the messages; a terminal that is gone is an outage.
func (p *printer) Deliver(_ context.Context, ms []deed.Message) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	outcomes := make([]error, len(ms))
	for i, m := range ms {
		line := fmt.Sprintf("%s  %s  key=%s type=%s %d bytes  %s", when(m.CreatedAt), m.Topic, clip(m.Key, 40), clip(m.Type, 40), len(m.Payload), m.ID)
		if p.payload {
			if text, err := content(m.ContentType, m.Payload); err == nil {
				line += "  " + string(text)
			}
		}
		if _, err := fmt.Fprintln(p.out, line); err != nil {
			outcomes[i] = deed.Unavailable(fmt.Errorf("print: %w", err), 0)
		}
	}
	return outcomes
}
