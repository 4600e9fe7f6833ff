package main

import (
	"crypto/tls"
	"fmt"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/sink/kafka"
	"github.com/deedhq/deed/sink/nats"
	"github.com/deedhq/deed/sink/webhook"
)

// sink makes the sink that a deed.yaml describes. It connects to nothing.
func (r *relay) sink(s config.Sink) (deed.Sink, error) {
	switch s.Type {
	case "print":
		return &printer{out: r.out}, nil
	case "webhook":
		return webhookSink(s.Webhook)
	case "nats":
		return r.natsSink(s.NATS)
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

func (r *relay) natsSink(n *config.NATS) (deed.Sink, error) {
	secured, err := tlsOf(n.TLS)
	if err != nil {
		return nil, err
	}
	return nats.New(nats.Options{
		URL: n.URL.Reveal(), Subject: n.Subject, Installation: func() string { return r.installation },
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
