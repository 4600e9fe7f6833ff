package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// A Signer signs requests as [Sink] does.
type Signer struct{ keys [][]byte }

// NewSigner checks a secret and, while it is being replaced, the previous one;
// previous may be empty.
func NewSigner(secret, previous string) (Signer, error) {
	keys, err := signingKeys(secret, previous)
	return Signer{keys}, err
}

// Sign sets the three headers of Standard Webhooks. id is the same at every
// attempt, at is the attempt's time.
func (s Signer) Sign(h http.Header, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	h.Set(headerID, id)
	h.Set(headerTimestamp, timestamp)
	h.Set(headerSignature, signatureHeader(s.keys, id, timestamp, body))
}

// Dialer returns the dial function of [Sink]'s address guard, for any host:
// what is resolved to an address that is not on the public Internet is refused
// unless allow names the host, the address or its range.
func Dialer(allow []string, timeout time.Duration) (func(ctx context.Context, network, addr string) (net.Conn, error), error) {
	g, err := newGuard(allow)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("dial: %w", err)
		}
		return g.dialer(host, timeout)(ctx, network, addr)
	}, nil
}

// RefusedAddress returns [Dialer]'s refusal of an address that err wraps, or nil.
func RefusedAddress(err error) error {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	return nil
}
