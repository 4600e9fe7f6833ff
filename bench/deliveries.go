package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/smtp"
)

// smtpShare is how many of the deliveries are made by SMTP: a tenth.
func smtpShare(messages int) int { return max(messages/10, 10) }

// noop accepts everything at once.
type noop struct{ calls atomic.Int64 }

func (*noop) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{Kind: "noop", Channels: []delivery.Channel{delivery.Email}, Key: delivery.NoKey}
}

func (*noop) Render(d delivery.Draft) ([]byte, error) { return d.Payload, nil }

func (p *noop) Send(_ context.Context, r delivery.Reservation) delivery.Outcome {
	if _, err := r.Request(); err != nil {
		return delivery.Refused(err)
	}
	p.calls.Add(1)
	return delivery.Accepted("")
}

// deliveries measures a reservation of all in one call, and how fast a ledger
// makes them with the pre-call write: through a provider that does nothing, and
// through SMTP to a server on this machine, without and with a limit that is
// never reached, and to fakes of services.
func deliveries(ctx context.Context, e *env) error {
	pool, err := e.pool(ctx, workerConns)
	if err != nil {
		return err
	}
	n := e.opts.messages
	p := &noop{}
	took, err := reserveMany(ctx, pool, "noop", delivery.ProviderOptions{Provider: p, Concurrency: 256}, n)
	if err != nil {
		return err
	}
	e.record("reserved", "deliveries/s", float64(n)/took.Seconds())
	if err := e.settle(ctx); err != nil {
		return err
	}
	if took, err = e.make(ctx, pool, "noop", delivery.ProviderOptions{Provider: p, Concurrency: 256}, n); err != nil {
		return err
	}
	e.record("made, no-op provider", "deliveries/s", float64(n)/took.Seconds())
	e.expect("calls of the no-op provider", int(p.calls.Load()), n)
	if err := e.bySMTP(ctx, pool, smtpShare(n)); err != nil {
		return err
	}
	return e.byServices(ctx, pool, smtpShare(n))
}

func (e *env) bySMTP(ctx context.Context, pool *pgxpool.Pool, n int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var caught atomic.Int64
	serving, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	server := &catcher.SMTP{Mailbox: &catcher.Mailbox{Accepted: func(catcher.Mail) { caught.Add(1) }}}
	go func() { done <- server.Serve(serving, l) }()
	defer func() {
		stop()
		<-done
	}()
	var rates []float64
	for i, limit := range []float64{0, 1e6} {
		name := []string{"smtp", "smtp-limited"}[i]
		p, err := smtp.New(smtp.Options{Address: l.Addr().String(), Security: smtp.Plain})
		if err != nil {
			return err
		}
		opts := delivery.ProviderOptions{Provider: p, Concurrency: 32, Rate: limit}
		if _, err := reserveMany(ctx, pool, name, opts, n); err != nil {
			return err
		}
		took, err := e.make(ctx, pool, name, opts, n)
		if err = errors.Join(err, p.Close()); err != nil {
			return err
		}
		rates = append(rates, float64(n)/took.Seconds())
	}
	e.record("made, SMTP", "deliveries/s", rates[0])
	e.record("made, SMTP, with a limit", "deliveries/s", rates[1])
	e.record("made, SMTP, cost of a limit", "%", max(0, 100*(1-rates[1]/rates[0])))
	e.expect("mails that arrived", int(caught.Load()), 2*n)
	return nil
}

func reserveMany(ctx context.Context, pool *pgxpool.Pool, provider string, opts delivery.ProviderOptions, n int) (time.Duration, error) {
	l, err := delivery.New(ctx, pool, delivery.Options{Providers: map[string]delivery.ProviderOptions{provider: opts}})
	if err == nil {
		err = l.Register(ctx)
	}
	if err != nil {
		return 0, err
	}
	payload := delivery.EmailPayload{From: "bench@example.com", Subject: "bench", Text: pad}.JSON()
	list := make([]delivery.Delivery, n)
	for i := range list {
		to := fmt.Sprintf("%d@example.com", i)
		list[i] = delivery.Delivery{Channel: delivery.Email, Provider: provider, Recipient: to, Payload: payload, Key: delivery.NewKey(provider, to)}
	}
	started := time.Now()
	_, err = delivery.Reserve(ctx, pool, list...)
	return time.Since(started), err
}

// make runs a ledger until n deliveries of a provider are sent.
func (e *env) make(ctx context.Context, pool *pgxpool.Pool, name string, p delivery.ProviderOptions, n int) (time.Duration, error) {
	l, err := delivery.New(ctx, pool, delivery.Options{Providers: map[string]delivery.ProviderOptions{name: p}, ClaimBatch: 500, PollInterval: 100 * time.Millisecond})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	running, stop := context.WithCancel(ctx)
	result := make(chan error, 1)
	started := time.Now()
	go func() { result <- l.Run(running) }()
	for {
		drained, err := l.Drained(ctx)
		if err != nil || drained {
			took := time.Since(started)
			stop()
			if err = errors.Join(err, <-result); err != nil {
				return 0, err
			}
			var sent int
			err = e.owner.QueryRow(ctx, `select count(*) from deed.channel_outbox where provider = $1 and status = 'sent'`, name).Scan(&sent)
			e.expect("deliveries of "+name+" that were sent", sent, n)
			return took, err
		}
		select {
		case <-ctx.Done():
			stop()
			return 0, errors.Join(ctx.Err(), <-result)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
