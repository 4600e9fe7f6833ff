package inbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/deedhq/deed/internal/httpcall"
	sink "github.com/deedhq/deed/sink/webhook"
)

// CallOptions say which URL [Call] posts to.
type CallOptions struct {
	// URL is http or https, without a user. Required.
	URL string
	// Secret signs the requests as Standard Webhooks has it; PreviousSecret, too, while it
	// is replaced. Required.
	Secret, PreviousSecret string
	// AllowHosts are the host names, addresses and ranges that may be called though they
	// are not on the public Internet.
	AllowHosts []string
	// RootCAs verify https endpoints. Default: the system's.
	RootCAs *x509.CertPool
}

// callAnswer is what a webhook executor answers: any 2xx; an empty body asks for
// nothing.
type callAnswer struct {
	Deny    string  `json:"deny"`
	Replies []Reply `json:"replies"`
}

const dialTimeout = 10 * time.Second

// Call returns an executor that posts each message as JSON, a [Message], and takes
// the answer for the result: {"replies": [{"text": "…"}]}, {"deny": "reason"}, or
// nothing. The request's webhook-id is the message's id in every attempt, so that the
// receiver can drop repeats. An answer that is none of these, or not 2xx, is a failure.
func Call(opts CallOptions) (Executor, error) {
	const op = "webhook executor"
	target, err := url.Parse(opts.URL)
	if err != nil || (target.Scheme != "https" && target.Scheme != "http") || target.Hostname() == "" || target.User != nil {
		return nil, invalidf(op, "want a URL that begins with https:// or http://, names a host and no user")
	}
	signer, err := sink.NewSigner(opts.Secret, opts.PreviousSecret)
	if err != nil {
		return nil, invalidf(op, "%w", err)
	}
	dial, err := sink.Dialer(opts.AllowHosts, dialTimeout)
	if err != nil {
		return nil, invalidf(op, "%w", err)
	}
	transport := &http.Transport{
		Proxy:       nil, // it would hide the endpoint's address from the guard
		DialContext: httpcall.Count(dial), ForceAttemptHTTP2: true, HTTP2: httpcall.Pings(), MaxIdleConnsPerHost: 32, IdleConnTimeout: 30 * time.Second,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: opts.RootCAs}, TLSHandshakeTimeout: dialTimeout,
		DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
	}
	return func(ctx context.Context, m Message) (Result, error) {
		body, err := json.Marshal(m)
		if err != nil {
			return Result{}, err
		}
		h := http.Header{}
		h.Set("Content-Type", "application/json")
		h.Set("User-Agent", "deed")
		h.Set("Correlation-Id", m.CorrelationID)
		signer.Sign(h, m.ID, time.Now(), body)
		return readAnswer(target.Host, httpcall.Post(ctx, transport, target, h, body))
	}, nil
}

func readAnswer(host string, a httpcall.Answer) (Result, error) {
	switch {
	case a.Err != nil:
		if refusal := sink.RefusedAddress(a.Err); refusal != nil {
			return Result{}, fmt.Errorf("webhook executor: %w", refusal)
		}
		return Result{}, fmt.Errorf("webhook executor %s: %w", host, a.Err)
	case a.Status < 200 || a.Status > 299:
		return Result{}, fmt.Errorf("webhook executor %s: status %d", host, a.Status)
	case len(a.Body) == 0:
		return Result{}, nil
	case len(a.Body) == httpcall.MaxBody:
		return Result{}, fmt.Errorf("webhook executor %s: its answer is over %d KiB", host, httpcall.MaxBody>>10)
	}
	var answer callAnswer
	dec := json.NewDecoder(bytes.NewReader(a.Body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&answer); err != nil || dec.More() || !bytes.HasPrefix(bytes.TrimSpace(a.Body), []byte("{")) {
		return Result{}, errors.New("webhook executor " + host + ": its answer is neither empty nor {\"replies\": […]} nor {\"deny\": …}")
	}
	return Result{Denied: answer.Deny, Replies: answer.Replies}, nil
}
