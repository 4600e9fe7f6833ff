// Package kafka delivers messages to a topic of Kafka or what speaks its
// protocol, such as Redpanda.
//
// # Delivered
//
// A message is delivered when the partition's leader and all its in-sync
// replicas have it (acks=all). The producer is idempotent: within one process
// and connection to the cluster the client's own repeats are dropped by the
// broker.
//
// Delivery is at least once. Kafka knows no message by its id, so one that is
// tried again, after a crash or an answer that never came, is there twice;
// consumers drop repeats by the header deed-id. The sink uses no transactions.
//
// The record's key is the message's, hashed as Kafka's own clients do
// (murmur2), so the messages of one key share a partition; those without a key
// are spread. Within one call the messages of a partition are written in their
// order. deed promises no order between calls, nor between a message and one
// that had to be tried again.
//
// # The topic
//
// [Options.Topic], or else the message's own topic with each ':' and '/', which
// Kafka does not allow, written as '.'. "a/b" and "a.b" so share a topic; the
// header deed-topic tells them apart. The sink does not create topics; the
// cluster may (auto.create.topics.enable is not asked for).
//
// # The record
//
// The value is the payload, byte for byte; an empty payload is an empty value,
// never a tombstone. The timestamp is the attempt's. The headers are
//
//	deed-id, deed-topic  the message's
//	deed-type            omitted when empty
//	content-type         the payload's media type
//
// and the message's own under their own names, traceparent and tracestate among
// them, all as they are.
//
// # The outcomes
//
//	written by all in-sync replicas       delivered
//	larger than the topic or [Options].   dead at once ([deed.Permanent])
//	MaxBytes allows, or no name for a
//	Kafka topic can be made of its own
//	no connection, no answer in time, no  no attempt ([deed.Unavailable])
//	leader, too few in-sync replicas
//	there is no such topic, the user may  no attempt ([deed.Unavailable])
//	not write to it, or may not log in
//	any other refusal                     an attempt, retried with back-off
//	the context ended                     the context's error
//
// An outage, however long, so costs no attempt. Since a subscription drains one
// topic, a topic that is missing concerns all it sends, and it waits until the
// topic is there. A partition that has no leader counts as an outage too; the
// subscription probes until it has one.
//
// Kafka refuses records by the batch. When the refusal may be about one record
// of it, the sink writes each record again in a batch of its own, so that every
// message has its own outcome and none dies for another.
//
// What has no answer within [Options.Timeout] is given up: the client sends
// nothing of it any more once the outcome was told, and if it cannot be brought
// to give up it is closed, and the next call makes a new one. A call that has
// waited for room ([Options.MaxPending]) half as long again hands no more over,
// and waits for what became of the others. A call whose context ends does not
// wait for that, and what it had may still be written.
package kafka
