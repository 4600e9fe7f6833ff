// Package nats delivers messages to a NATS JetStream stream.
//
// # Delivered
//
// A message is delivered when JetStream has acknowledged that a stream stored
// it. Messages are published without waiting for each other, at most
// [Options.MaxPending] of them at a time, and every acknowledgement is waited
// for, at most [Options.Timeout]. Core NATS, which acknowledges nothing, is
// not enough: a stream must take in the subject, and the sink does not create
// one.
//
// Delivery is at least once. The header Nats-Msg-Id is [Options.Installation],
// the message id and a hash of the subject, with dots between, the same at
// every attempt, so the stream itself drops a repeat within its duplicate
// window (duplicate_window, two minutes unless it says otherwise) and its
// acknowledgement counts as delivered. A stream drops repeats whatever their
// subjects are: by the hash a message is stored once under each subject that
// it is sent to, and once if two subscriptions have the same. A repeat after
// the window is stored again; consumers drop it by the header deed-id. So is
// what was sent before the upgrade to the version whose id has the hash.
//
// The messages of one call are published in their order on one connection. deed
// promises no order between calls, nor between a message and one that had to
// be tried again.
//
// # The subject
//
// [Options.Subject] is used as it stands, but for these words in it:
//
//	{topic}  the message's topic; its dots part tokens. A dot that would make an
//	         empty token is written %2E
//	{key}    the message's key, as one token
//	{type}   the message's type, as one token
//
// In a key and a type every byte but A-Z a-z 0-9 - _ is percent-encoded, dots,
// wildcards and spaces among them; an empty one is written "_", and a lone "_"
// as %5F. So no publisher's text reaches another subject than its own.
//
// # The headers
//
//	Nats-Msg-Id                   what the stream drops repeats by
//	deed-id, deed-topic           the message's
//	deed-key, deed-type           omitted when empty
//	content-type                  the payload's media type
//
// The message's own headers, traceparent and tracestate among them, follow
// under their own names, except nats-…, which would command the server. In
// deed-… values all that is not visible ASCII or an inner space is
// percent-encoded, and the percent sign too; a message's own header that has
// such bytes is percent-encoded as a whole. url.PathUnescape gives the value
// back. The payload is the message's, byte for byte.
//
// # The outcomes
//
//	stored, or known by its id            delivered
//	larger than the server or the stream  dead at once ([deed.Permanent])
//	takes, headers over 64 KiB, or a
//	subject over 2,048 bytes
//	no connection, connection lost, no    no attempt ([deed.Unavailable])
//	acknowledgement in time, JetStream
//	is off or has no leader, the account
//	has no room left
//	no stream takes the subject, the      no attempt ([deed.Unavailable]); but an
//	stream is full, sealed or beyond its  attempt if the subject has a {key} or
//	account's tiers, publishing to the    {type}, since others may fare better
//	subject is not permitted
//	any other refusal                     an attempt, retried with back-off
//	the context ended                     the context's error
//
// An outage, however long, so costs no attempt; and since a subscription drains
// one topic, a subject without {key} and {type} is the same for all it sends.
// Without an acknowledgement it is unknown whether the message was stored: it
// is sent again under the same Nats-Msg-Id.
//
// The connection is made at the first delivery and made again for as long as
// the Sink is open, whatever ended it, refused credentials included.
package nats
