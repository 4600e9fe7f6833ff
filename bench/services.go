package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/resend"
	"github.com/deedhq/deed/provider/ses"
)

// service is a provider whose fake is on this machine, and answers at once.
type service struct {
	name string
	opts delivery.ProviderOptions
	fake http.Handler
	open func(endpoint string) (delivery.Provider, error)
}

// byServices measures deliveries through HTTP services: Resend, a hundred by one
// call and one by one, and Amazon SES, which takes one.
func (e *env) byServices(ctx context.Context, pool *pgxpool.Pool, n int) error {
	var caught atomic.Int64
	box := &catcher.Mailbox{Accepted: func(catcher.Mail) { caught.Add(1) }}
	throughResend := func(batch int) func(string) (delivery.Provider, error) {
		return func(endpoint string) (delivery.Provider, error) {
			return resend.New(resend.Options{APIKey: "re_bench", Endpoint: endpoint, Batch: batch})
		}
	}
	list := []service{
		{"resend, by 100", delivery.ProviderOptions{Concurrency: 16}, &catcher.Resend{Mailbox: box}, throughResend(resend.MostBatch)},
		{"resend, one by one", delivery.ProviderOptions{Concurrency: 64}, &catcher.Resend{Mailbox: box}, throughResend(1)},
		{"ses", delivery.ProviderOptions{Concurrency: 64}, &catcher.SES{Mailbox: box, AccessKeyID: "AKIABENCH", SecretAccessKey: "bench"}, func(endpoint string) (delivery.Provider, error) {
			return ses.New(ses.Options{Region: "eu-central-1", AccessKeyID: "AKIABENCH", SecretAccessKey: "bench", Endpoint: endpoint})
		}},
	}
	for i, s := range list {
		took, err := e.byService(ctx, pool, s, n)
		if err != nil {
			return err
		}
		e.record("made, "+s.name, "deliveries/s", float64(n)/took.Seconds())
		e.expect("e-mails that arrived, with "+s.name, int(caught.Load()), (i+1)*n)
	}
	return nil
}

func (e *env) byService(ctx context.Context, pool *pgxpool.Pool, s service, n int) (time.Duration, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	server := &http.Server{Handler: s.fake, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	defer func() {
		_ = server.Close()
		<-done
	}()
	if s.opts.Provider, err = s.open("http://" + l.Addr().String()); err != nil {
		return 0, err
	}
	name := nameOf(s.name)
	if _, err := reserveMany(ctx, pool, name, s.opts, n); err != nil {
		return 0, err
	}
	if err := e.settle(ctx); err != nil {
		return 0, err
	}
	took, err := e.make(ctx, pool, name, s.opts, n)
	return took, errors.Join(err, s.opts.Provider.(io.Closer).Close())
}

// nameOf makes a provider's name of a measure's.
func nameOf(text string) string {
	name := []byte(text)
	for i, c := range name {
		if c == ' ' || c == ',' {
			name[i] = '-'
		}
	}
	return string(name)
}
