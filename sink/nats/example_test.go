package nats_test

import (
	"log"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/sink/nats"
)

// A stream goes to JetStream, under a subject for each key. A JetStream stream
// must take in shop.>.
func ExampleNew() {
	events, err := nats.New(nats.Options{URL: "nats://nats.example:4222", Subject: "shop.{topic}.{key}"})
	if err != nil {
		log.Fatal(err)
	}
	defer events.Close()
	_ = deed.Options{
		Topics:        []deed.Topic{{Name: "orders", Mode: deed.ModeStream}},
		Subscriptions: []deed.Subscription{{Topic: "orders", Name: "to-nats", Sink: events}},
	}
}
