package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"sync"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/sink/kafka"
	"github.com/deedhq/deed/sink/nats"
	"github.com/deedhq/deed/sink/webhook"
)

// newSink makes the sink that a deed.yaml describes: one that prints writes to out.
// It connects to nothing.
func newSink(s config.Sink, out io.Writer, installation func() string) (deed.Sink, error) {
	switch s.Type {
	case "print":
		return &printer{out: out}, nil
	case "webhook":
		return webhookSink(s.Webhook)
	case "nats":
		return natsSink(s.NATS, installation)
	case "kafka":
		return kafkaSink(s.Kafka)
	}
	return nil, fmt.Errorf("type %q is not known", s.Type)
}

func webhookSink(w *config.Webhook) (deed.Sink, error) {
	headers := make(map[string]string, len(w.Headers))
	for name, value := range w.Headers {
		headers[name] = value.Reveal()
	}
	opts := webhook.Options{
		URL: w.URL, Secret: w.Secret.Reveal(), PreviousSecret: w.PreviousSecret.Reveal(), AllowHosts: w.AllowHosts,
		Body: webhook.Body(w.Body), Timeout: w.Timeout, Headers: headers,
		Breaker: webhook.Breaker{Failures: w.Breaker.Failures, Pause: w.Breaker.Pause, MaxPause: w.Breaker.MaxPause},
	}
	if w.Batch > 0 {
		return webhook.NewBatch(opts, w.Batch)
	}
	return webhook.New(opts)
}

func natsSink(n *config.NATS, installation func() string) (deed.Sink, error) {
	secured, err := tlsOf(n.TLS)
	if err != nil {
		return nil, err
	}
	return nats.New(nats.Options{
		URL: n.URL.Reveal(), Subject: n.Subject, Installation: installation,
		User: n.User, Password: n.Password.Reveal(), Token: n.Token.Reveal(), Credentials: []byte(n.Creds.Reveal()),
		TLS: secured, Timeout: n.Timeout, MaxPending: n.Pending, BatchSize: n.Batch,
	})
}

func kafkaSink(k *config.Kafka) (deed.Sink, error) {
	secured, err := tlsOf(k.TLS)
	if err != nil {
		return nil, err
	}
	return kafka.New(kafka.Options{
		Brokers: k.Brokers, Topic: k.Topic, TLS: secured, Compression: k.Compression,
		SASL:    kafka.SASL{Mechanism: k.SASL.Mechanism, User: k.SASL.User, Password: k.SASL.Password.Reveal()},
		Timeout: k.Timeout, MaxBytes: k.MaxBytes, MaxPending: k.Pending, BatchSize: k.Batch,
	})
}

func tlsOf(t *config.TLS) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	return t.Client()
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
			line += "  " + contentLine(m.ContentType, m.Payload)
		}
		if _, err := fmt.Fprintln(p.out, line); err != nil {
			outcomes[i] = deed.Unavailable(fmt.Errorf("print: %w", err), 0)
		}
	}
	return outcomes
}
