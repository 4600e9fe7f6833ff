// Package webhook delivers messages to an HTTP endpoint, one POST a message,
// signed as Standard Webhooks lays down.
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
// # The answer
//
//	2xx                               delivered
//	3xx                               dead at once; redirects are not followed
//	400 405 406 410 411 413 414 415   dead at once ([deed.Discard])
//	422 431
//	429, 503 with Retry-After         an attempt; the next one when it says, 1s to 24h from now
//	401 403 404 408 409 425 429 5xx   an attempt, retried with back-off
//	any other status                  an attempt, retried with back-off
//	no connection: DNS, refused, no   no attempt ([deed.Unavailable])
//	route, TLS handshake, timeout
//	a connection but no complete      an attempt; whether the receiver acted on
//	answer: timeout, reset, EOF       it is unknown, so it must drop repeats
//	the address is not allowed        an attempt: an operator can allow the host
//	the context ended                 the context's error
//	the breaker is open               no attempt ([deed.Unavailable])
//
// # The breaker
//
// A run of failures of the endpoint (no connection, no complete answer, 5xx,
// 429) opens the breaker: for a while, deliveries end at once and count no
// attempt. Then one probe goes through; an answer closes the breaker, a failure
// doubles the pause. A probe that fails counts no attempt either, but a message
// that the endpoint has failed to take in three probes running does: were it the
// message that makes the endpoint fail, it would hold up all others for ever.
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
