package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/deedhq/deed"
	sink "github.com/deedhq/deed/sink/webhook"
)

// ErrURI is what [Fetch] returns for a URI that plans may not come from.
var ErrURI = errors.New("PLAN_URI_NOT_ALLOWED")

// FetchOptions say where plans may come from. The zero value allows nothing.
type FetchOptions struct {
	// Hosts are those that plans may come from, as they stand in the URI, with a port that is not the scheme's own.
	Hosts []string
	// Schemes are http and https. Default: https alone.
	Schemes []string
}

// fetchTimeout bounds a fetch.
const fetchTimeout = 30 * time.Second

// Fetch gets the text of a plan from a URI whose scheme and host are allowed; no redirect is
// followed, and no address is connected to that is not on the public Internet. Errors:
// [deed.Invalid] and [ErrURI] for a URI that is not allowed.
func Fetch(ctx context.Context, uri string, opts FetchOptions) ([]byte, error) {
	return fetch(ctx, uri, opts, nil)
}

// fetch lets tests name local addresses.
func fetch(ctx context.Context, uri string, opts FetchOptions, local []string) ([]byte, error) {
	const op = "fetch plan"
	u, err := url.Parse(uri)
	schemes := opts.Schemes
	if len(schemes) == 0 {
		schemes = []string{"https"}
	}
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return nil, invalidf(op, "%w: want a URI with a scheme and a host, without a user and a password", ErrURI)
	case !slices.Contains(schemes, u.Scheme) || u.Scheme != "http" && u.Scheme != "https":
		return nil, invalidf(op, "%w: scheme %q is none of %s", ErrURI, u.Scheme, strings.Join(schemes, ", "))
	case !slices.ContainsFunc(opts.Hosts, func(h string) bool { return strings.EqualFold(h, u.Host) }):
		return nil, invalidf(op, "%w: host %q is not one that plans may come from (runs.plans.hosts in deed.yaml)", ErrURI, u.Host)
	}
	dial, err := sink.Dialer(local, fetchTimeout)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	t := &http.Transport{DialContext: dial, DisableKeepAlives: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, invalidf(op, "%w: %w", ErrURI, err)
	}
	res, err := t.RoundTrip(req) // which follows no redirect
	if err != nil {
		if refused := sink.RefusedAddress(err); refused != nil {
			return nil, invalidf(op, "%w: %w", ErrURI, refused)
		}
		return nil, fmt.Errorf("%s: %s: %w", op, u.Host, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("%s answers %s", u.Host, res.Status)}
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", op, u.Host, err)
	}
	return body, nil
}
