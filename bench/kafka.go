package main

import (
	"context"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/sink/kafka"
)

// kafkaPartitions are as many as a stream has lanes.
const kafkaPartitions = 4

// kafkaBroker keeps its records in memory.
type kafkaBroker struct{ *kfake.Cluster }

func startKafka(context.Context) (broker, error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(kafkaPartitions, "bench"))
	return kafkaBroker{cluster}, err
}

func (b kafkaBroker) stop() { b.Close() }

func (b kafkaBroker) sink() (closingSink, error) {
	return kafka.New(kafka.Options{Brokers: b.ListenAddrs(), BatchSize: deedBatch})
}

// produce leaves the client its defaults, but for the compression, of which
// the sink has none by default.
func (b kafkaBroker) produce(ctx context.Context, payloads [][]byte) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.ListenAddrs()...), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer client.Close()
	refused := make(chan error, 1)
	now := time.Now()
	for i, payload := range payloads {
		r := &kgo.Record{Topic: "bench", Key: []byte(strconv.Itoa(i)), Value: payload, Headers: []kgo.RecordHeader{
			{Key: "deed-id", Value: []byte(deed.NewID(now, int64(i)).String())},
			{Key: "deed-topic", Value: []byte("bench")},
			{Key: "content-type", Value: []byte("application/json")},
		}}
		client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				keepFirst(refused, err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return first(refused)
}

func (b kafkaBroker) records(context.Context) (int, error) {
	n := 0
	for _, p := range b.PartitionInfos("bench") {
		n += int(p.HighWatermark)
	}
	return n, nil
}
