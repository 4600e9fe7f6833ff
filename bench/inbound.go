package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
)

const (
	inboundRate    = 500 // messages a second
	inboundClients = 32
	inboundSenders = 400
	inboundSecret  = "a secret of the benchmark"
)

// receiving measures how long a platform waits until its message is stored, executed and
// answered: at a steady pace, and how many there are in a second when each client sends the
// next at once.
func receiving(ctx context.Context, e *env) error {
	url, stop, err := e.receiver(ctx)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inboundClients}}
	defer client.CloseIdleConnections()
	n := int(inboundRate * (e.opts.steady + warmUp).Seconds())
	waits := make([]time.Duration, n)
	began := time.Now()
	err = byClients(func(c int) error {
		for i := c; i < n; i += inboundClients {
			due := began.Add(time.Duration(i) * time.Second / inboundRate)
			time.Sleep(time.Until(due))
			if err := send(ctx, client, url, i); err != nil {
				return err
			}
			waits[i] = time.Since(due)
		}
		return nil
	})
	if err != nil {
		return errors.Join(err, stop())
	}
	e.record("at a pace of 500", "messages/s", float64(n)/time.Since(began).Seconds())
	waits = waits[int(inboundRate*warmUp.Seconds()):]
	slices.Sort(waits)
	e.record("p50", "ms", waits[len(waits)/2].Seconds()*1000)
	e.record("p99", "ms", waits[len(waits)*99/100].Seconds()*1000)
	var sent atomic.Int64
	began = time.Now()
	err = byClients(func(int) error {
		for time.Since(began) < e.opts.steady {
			if err := send(ctx, client, url, n+int(sent.Add(1))); err != nil {
				return err
			}
		}
		return nil
	})
	e.record("at most", "messages/s", float64(sent.Load())/time.Since(began).Seconds())
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	pool, err := e.pool(ctx, 1)
	if err != nil {
		return err
	}
	var replies int
	if err := pool.QueryRow(ctx, `select count(*) from deed.channel_outbox c join deed.channel_messages m on m.id = c.channel_message_id where m.status = 'executed'`).Scan(&replies); err != nil {
		return err
	}
	e.expect("replies", replies, n+int(sent.Load()))
	return nil
}

// receiver takes messages at an address of this machine, and answers them.
func (e *env) receiver(ctx context.Context) (url string, stop func() error, err error) {
	pool, err := e.pool(ctx, workerConns)
	if err != nil {
		return "", nil, err
	}
	l, err := delivery.New(ctx, pool, delivery.Options{Providers: map[string]delivery.ProviderOptions{"noop": {Provider: &noop{}}}})
	if err == nil {
		err = l.Register(ctx)
	}
	if err != nil {
		return "", nil, err
	}
	source, err := inbound.Webhook(inbound.WebhookOptions{Secrets: []string{inboundSecret}, Scheme: "hmac", Header: "X-Sum", ID: "$.id", Sender: "$.from", Text: "$.text"})
	if err != nil {
		return "", nil, err
	}
	r, err := inbound.New(ctx, pool, inbound.Options{Sources: map[string]inbound.SourceOptions{"bench": {
		Source: source, Concurrency: inboundClients, Reply: inbound.ReplyBy{Provider: "noop", Channel: delivery.Email, To: "bench@example.com"},
		Executor: func(_ context.Context, m inbound.Message) (inbound.Result, error) { return inbound.Say(m.Text), nil },
	}}})
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 2)
	server := &http.Server{Handler: r.Handler()}
	go func() { done <- r.Run(running) }()
	go func() { done <- server.Serve(listener) }()
	for r.Ready() != nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	return "http://" + listener.Addr().String() + "/in/bench", func() error {
		err := server.Shutdown(context.WithoutCancel(ctx))
		cancel()
		for range 2 {
			if ended := <-done; !errors.Is(ended, http.ErrServerClosed) {
				err = errors.Join(err, ended)
			}
		}
		return err
	}, ctx.Err()
}

func byClients(do func(client int) error) error {
	errs := make([]error, inboundClients)
	var all sync.WaitGroup
	for c := range inboundClients {
		all.Go(func() { errs[c] = do(c) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func send(ctx context.Context, client *http.Client, url string, i int) error {
	body := fmt.Appendf(nil, `{"id": "m%d", "from": "sender%d", "text": "hello, this is number %d"}`, i, i%inboundSenders, i)
	sum := hmac.New(sha256.New, []byte(inboundSecret))
	sum.Write(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-Sum", hex.EncodeToString(sum.Sum(nil)))
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("message %d: status %d", i, answer.StatusCode)
	}
	return err
}
