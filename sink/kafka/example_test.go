package kafka_test

import (
	"crypto/tls"
	"log"
	"os"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/sink/kafka"
)

// A stream goes to the Kafka topic of its name, each key in order.
func ExampleNew() {
	events, err := kafka.New(kafka.Options{
		Brokers: []string{"kafka-1.example:9093", "kafka-2.example:9093"},
		TLS:     &tls.Config{},
		SASL:    kafka.SASL{Mechanism: "scram-sha-512", User: "deed", Password: os.Getenv("KAFKA_PASSWORD")},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer events.Close()
	_ = deed.Options{
		Topics:        []deed.Topic{{Name: "orders", Mode: deed.ModeStream}},
		Subscriptions: []deed.Subscription{{Topic: "orders", Name: "to-kafka", Sink: events}},
	}
}
