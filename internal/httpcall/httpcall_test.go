package httpcall

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"testing"
)

// dying is a connection that breaks when so many writes are left.
type dying struct {
	net.Conn
	left *atomic.Int32
}

var errDead = errors.New("dead")

func (d dying) Write(b []byte) (int, error) {
	if d.left.Add(-1) < 0 {
		return 0, errDead
	}
	return d.Conn.Write(b)
}

func target(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A write that fails may have sent what it was given; only what nothing was
// written of has certainly not left.
func TestPost_AFailedWriteMayHaveLeft(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	left := &atomic.Int32{}
	transport := &http.Transport{DialContext: Count(func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return dying{c, left}, err
	})}
	defer transport.CloseIdleConnections()
	if a := Post(t.Context(), transport, target(t, server.URL), http.Header{}, []byte("body")); a.Err == nil || !a.Connected {
		t.Errorf("after a write that failed: %+v", a)
	}
	nobody := target(t, "http://127.0.0.1:1") // a port that nobody is given who asks for any
	if a := Post(t.Context(), transport, nobody, http.Header{}, []byte("body")); a.Err == nil || a.Connected {
		t.Errorf("without a connection: %+v", a)
	}
}

// idle is a transport whose first connections were closed while they were idle.
type idle struct {
	dead    int
	writes  bool // something of the request before that is seen
	calls   int
	arrived int
}

func (f *idle) RoundTrip(r *http.Request) (*http.Response, error) {
	f.calls++
	conn := &counted{Conn: discard{}}
	reused := f.calls <= f.dead
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Conn: conn, Reused: reused})
	if f.writes || !reused {
		_, _ = conn.Write([]byte("POST"))
	}
	if reused {
		return nil, errDead
	}
	f.arrived++
	return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
}

type discard struct{ net.Conn }

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// A connection that was closed while it was idle costs nothing if nothing was
// written to it: the request goes over another. Whatever was written is never
// written twice.
func TestPost_AnIdleConnectionThatWasClosed(t *testing.T) {
	t.Parallel()
	to := target(t, "http://example.com")
	for _, c := range []struct {
		f         idle
		ok, left  bool
		calls, at int
	}{
		{idle{dead: 2}, true, false, 3, 1},
		{idle{dead: 2, writes: true}, false, true, 1, 0},
		{idle{dead: 100}, false, false, stale + 1, 0},
	} {
		a := Post(t.Context(), &c.f, to, http.Header{}, []byte("body"))
		if (a.Err == nil) != c.ok || (a.Err != nil && a.Connected != c.left) || c.f.calls != c.calls || c.f.arrived != c.at {
			t.Errorf("%+v: %+v", c.f, a)
		}
	}
}
