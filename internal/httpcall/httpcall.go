// Package httpcall makes one HTTP request, once: nothing in it, net/http
// included, repeats a request of which a byte may have left, or follows a
// redirect; but a GET, HEAD, OPTIONS or TRACE, which are to change nothing,
// net/http repeats over a transport that keeps connections. It says how far the
// request got, which is what decides between "not done" and "nobody knows".
package httpcall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
)

// Answer is what came of a request.
type Answer struct {
	// Err is why there is no complete answer; nil if there is one.
	Err error
	// Connected says whether the request may have reached anybody: over a
	// transport whose connections are counted by [Count], whether anything was
	// written. It is only looked at beside Err.
	Connected bool
	Status    int
	Header    http.Header
	Body      []byte // the first bytes: MaxBody, or as many as were asked for
}

// Code returns the status as text; "" if there is no complete answer.
func (a Answer) Code() string {
	if a.Err != nil {
		return ""
	}
	return strconv.Itoa(a.Status)
}

// MaxBody is how much of an answer is read, but by [GetUpTo].
const MaxBody = 64 << 10

// Post sends body to target. Over a connection that exists already the request
// may have gone out however it fails, unless nothing was written.
func Post(ctx context.Context, t http.RoundTripper, target *url.URL, h http.Header, body []byte) Answer {
	return do(ctx, t, http.MethodPost, target, h, body, MaxBody)
}

// Get asks for target.
func Get(ctx context.Context, t http.RoundTripper, target *url.URL, h http.Header) Answer {
	return do(ctx, t, http.MethodGet, target, h, nil, MaxBody)
}

// GetUpTo asks for target, and reads most bytes of the answer.
func GetUpTo(ctx context.Context, t http.RoundTripper, target *url.URL, h http.Header, most int64) Answer {
	return do(ctx, t, http.MethodGet, target, h, nil, most)
}

// Do makes a request of any method, as [Post] does.
func Do(ctx context.Context, t http.RoundTripper, method string, target *url.URL, h http.Header, body []byte) Answer {
	return do(ctx, t, method, target, h, body, MaxBody)
}

// stale is how many connections that were closed while they were idle a request
// puts up with.
const stale = 3

// do makes the request. One that finds its connection closed before anything is
// written is still not made, and goes over another.
func do(ctx context.Context, t http.RoundTripper, method string, target *url.URL, h http.Header, body []byte, most int64) Answer {
	for n := 1; ; n++ {
		a, reused := once(ctx, t, method, target, h, body, most)
		if a.Err == nil || a.Connected || !reused || n > stale || ctx.Err() != nil {
			return a
		}
	}
}

func once(ctx context.Context, t http.RoundTripper, method string, target *url.URL, h http.Header, body []byte, most int64) (a Answer, reused bool) {
	var got atomic.Pointer[connection]
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			before, written := got.Load(), writtenTo(i.Conn)
			got.Store(&connection{reused: i.Reused, written: func() bool { return written() || before != nil && before.written() }})
		},
	})
	if len(body) == 0 {
		h = unrepeated(h)
	}
	r := &http.Request{
		Method: method, URL: target, Host: target.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(body)), Body: http.NoBody,
		// Without GetBody net/http cannot send a body a second time, which it
		// would do by itself under an Idempotency-Key (see unrepeated).
		GetBody: nil,
	}
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	// RoundTrip follows no redirect and keeps no cookie.
	response, err := t.RoundTrip(r.WithContext(ctx))
	if err != nil {
		c := got.Load()
		if text := err.Error(); strings.Contains(text, "malformed HTTP") || strings.Contains(text, "malformed MIME") {
			err = errNoHTTP
		}
		return Answer{Err: err, Connected: c != nil && c.written()}, c != nil && c.reused
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return Answer{Err: fmt.Errorf("status %d, and an answer that was cut: %w", response.StatusCode, err), Connected: true}, false
	}
	return Answer{Status: response.StatusCode, Header: response.Header, Body: text}, false
}

// errNoHTTP stands for net/http's own error, which quotes what came: that may be
// what was sent, with a token in its URL.
var errNoHTTP = errors.New("what came is no answer of HTTP")

// unrepeated is h for a request without a body. Of such a one net/http takes a
// key, where it is spelled as it spells it, for leave to make the request again
// by itself; to HTTP the spelling is the same.
func unrepeated(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if key, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = key
		}
	}
	return h
}

// Line makes one short printable line of an answer's text, for errors.
func Line(text []byte) string {
	const most = 200
	line := strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, string(text[:min(len(text), 4*most)]))), " ")
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}
