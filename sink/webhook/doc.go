// Package webhook delivers messages to an HTTP endpoint, one POST a message or,
// if so asked, a batch, signed as Standard Webhooks lays down.
//
// # The request
//
// The body is the payload byte for byte under the message's content type, or a
// CloudEvents 1.0 JSON envelope of it ([CloudEvents]). These headers come with it:
//
//	webhook-id         the message id, the same at every attempt: drop repeats by it
//	webhook-timestamp  the attempt's time in unix seconds
//	webhook-signature  "v1," and a base64 HMAC-SHA256 of id.timestamp.body; two of
//	                   them, with a space between, while PreviousSecret is set
//	deed-topic, deed-key, deed-type, deed-attempt
//	                   omitted when empty
//
// In deed-… values every byte that is not visible ASCII or a space between two
// such bytes, and the percent sign, is percent-encoded: url.PathUnescape gives
// the value back. The message's own headers follow under their own names;
// they travel as they are, but one that has such bytes is percent-encoded as a
// whole. Not sent are those that HTTP, the client, or deed itself
// answers for: connection headers, Host, Content-Length, Content-Type,
// User-Agent, Authorization, Cookie, Idempotency-Key and the like.
//
// There is never an Idempotency-Key header: net/http takes it as leave to
// repeat a POST by itself, which would make repeats that no attempt accounts
// for. [Verify] is the receiver's side.
//
// # A batch
//
// [NewBatch] makes a sink that posts several messages in one request, signed as a
// whole. webhook-id then names the batch, the same for the same messages, so a
// consumer drops repeats by the ids inside. The body is a JSON array, in the order
// of the call. With [CloudEvents] its elements are those envelopes, and the type
// is application/cloudevents-batch+json; a message's headers, but for its trace,
// are not in it. Else the type is application/vnd.deed.batch+json, and an element
//
//	{"id": "01a1fc88-…", "topic": "orders", "key": "42", "type": "order.placed",
//	 "attempt": 1, "time": "2026-01-02T03:04:05.678Z",
//	 "content_type": "application/json", "headers": {"correlation-id": "7"},
//	 "data": {"total": 5}}
//
// has the payload byte for byte under data if it is JSON without white space
// around it, else under data_base64; what is empty is left out. The headers are
// deed-topic and deed-batch, the number of messages.
//
// Any 2xx takes all of them. To refuse some, answer 2xx with the content type
// application/vnd.deed.outcomes+json and name these; retry_after (seconds) and
// final (never try again) may be left out:
//
//	{"failed": [{"id": "01a1fc88-…", "error": "no such order", "retry_after": 30}]}
//
// A receiver that wants each key in order refuses, after a message that it does not
// take, the others of its key in the same batch. Such an answer is waited for up to
// Timeout; of any other the status is enough. One that does not end, cannot be
// read, is longer than MaxResponse, or names a message that was not sent leaves all
// of them an attempt whose outcome is unknown. Any other status is the outcome of
// all; but if it would end them for good, each is posted again alone. A message
// that has failed before is always posted alone, so none takes others with it for
// long.
//
// # The answer
//
//	2xx                               delivered
//	3xx                               dead at once; redirects are not followed
//	400 405 406 410 411 413 414 415   dead at once ([deed.Permanent])
//	422 431
//	429, 503 with Retry-After         an attempt; the next one when it says, 1s to 24h from now
//	401 403 404 408 409 425 429 5xx   an attempt, retried with back-off
//	any other status                  an attempt, retried with back-off
//	no connection: DNS, refused, no   no attempt ([deed.Unavailable])
//	route, TLS handshake, timeout
//	a connection but no complete      an attempt; whether the receiver acted on
//	answer: timeout, reset, EOF       it is unknown, so it must drop repeats
//	the address is not allowed        an attempt: an operator can allow the host
//	the context ended                 the context's error; no attempt of what a
//	                                  time-out has left unbegun
//	the breaker is open               no attempt ([deed.Unavailable])
//
// An error says how an answer begins, in 200 bytes, without what that repeats of the
// payload, of [Options.Headers] and of the URL's path and query.
//
// # The breaker
//
// A run of failures of the endpoint (no connection, no complete answer, 5xx,
// 429) opens the breaker: for a while, deliveries end at once and count no
// attempt. Then one probe goes through; an answer closes the breaker, a failure
// doubles the pause. A probe that fails counts no attempt either, but a message
// that the endpoint has failed to take in three probes does: were it the
// message that makes the endpoint fail, it would hold up all others for ever.
//
// An endpoint that answers a probe with an error of its own (5xx but 502, 503 and
// 504) is there, and the message may be to blame: that counts an attempt, and the
// next probe follows after a fiftieth of Pause, with another message and, if there
// is one, of another tenant. The more of them fail the longer it takes: after a
// thousand it is Pause, and in the end MaxPause.
//
// # The address guard
//
// Whoever chooses an endpoint's URL chooses what the relay connects to, from
// inside its network. So the dialer refuses every resolved address that is not
// on the public Internet, unless AllowHosts names the host or the address. The
// decision is made on the address that is connected to, hence a name that
// resolves differently the second time gains nothing. No proxy is taken from
// the environment, since then the proxy would resolve the name and the guard
// would only ever see the proxy's address.
package webhook
