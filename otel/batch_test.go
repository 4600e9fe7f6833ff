package otel_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// carrier takes several deliveries in a call, and may be one that can look them up.
type carrier struct{ accepting }

func (carrier) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{Kind: "carrier", Channels: []delivery.Channel{delivery.Webhook}, Key: delivery.HasKey, KeyWindow: time.Hour, Batch: 5}
}
func (carrier) Batchable([]byte) bool { return true }
func (carrier) SendBatch(_ context.Context, b delivery.Batch) []delivery.Outcome {
	return b.All(delivery.Accepted("m"))
}

type findingCarrier struct{ carrier }

func (findingCarrier) Find(context.Context, delivery.Reservation) (delivery.Finding, error) {
	return delivery.Finding{}, nil
}

// A provider that takes several in a call does so under a tracer, too: one span says
// how many they were, and none of whom.
func TestProvider_StaysABatcher(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tracer, spans, _ := setup(t)
	p := tracer.Provider("hook", findingCarrier{})
	if _, finds := p.(delivery.Finder); !finds {
		t.Error("it is no Finder any more")
	}
	if _, finds := tracer.Provider("hook", carrier{}).(delivery.Finder); finds {
		t.Error("it has become a Finder")
	}
	l, err := delivery.New(t.Context(), db.Pool(pgtest.Worker), delivery.Options{Environment: "t", PollInterval: 20 * time.Millisecond, Providers: map[string]delivery.ProviderOptions{"hook": {Provider: p}}})
	if err == nil {
		err = l.Register(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	var list []delivery.Delivery
	for i := range 3 {
		list = append(list, delivery.Delivery{Channel: delivery.Webhook, Provider: "hook", Recipient: fmt.Sprintf("https://canary%d.example.com/", i), Payload: []byte(`{}`), Key: delivery.NewKey(fmt.Sprint(i))})
	}
	if _, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), list...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	if !pgtest.Wait(pgtest.Patience, func() bool { return len(spans.Ended()) > 0 }) {
		t.Fatal("no span")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s := spans.Ended()[0]
	if a := attributes(s); s.Name() != "send hook" || a["messaging.batch.message_count"] != "3" || a["deed.outcome"] != "accepted" || a["deed.batch.key"] == "" || len(spans.Ended()) != 1 {
		t.Errorf("%s: %v, of %d spans", s.Name(), a, len(spans.Ended()))
	}
}
