package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"strings"
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

// Behind a proxy of https a connection is TLS within TLS, and is counted all the same.
func TestWrittenTo_TLSWithinTLS(t *testing.T) {
	t.Parallel()
	conn := &counted{Conn: discard{}}
	config := &tls.Config{InsecureSkipVerify: true}
	written := writtenTo(tls.Client(tls.Client(conn, config), config))
	if written() {
		t.Error("nothing was written, and it may have been")
	}
	_, _ = conn.Write([]byte("POST"))
	if !written() {
		t.Error("something was written, and was not counted")
	}
}

// net/http would make a request without a body again, over another connection, for
// the key that it has.
func TestDo_AKeyIsNoLeaveToRepeat(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		var made, keyed atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				return
			}
			made.Add(1)
			if r.Header.Get("Idempotency-Key") == "k" && r.Header.Get("X-Idempotency-Key") == "x" {
				keyed.Add(1)
			}
			panic(http.ErrAbortHandler) // it was done, and its answer is lost
		}))
		transport := &http.Transport{DialContext: Count((&net.Dialer{}).DialContext)}
		to := target(t, server.URL)
		if a := Get(t.Context(), transport, to, http.Header{}); a.Err != nil { // leaves a connection, which is used again
			t.Fatal(a.Err)
		}
		h := http.Header{"Idempotency-Key": {"k"}, "X-Idempotency-Key": {"x"}}
		a := Do(t.Context(), transport, method, to, h, nil)
		if a.Err == nil || !a.Connected || made.Load() != 1 || keyed.Load() != 1 {
			t.Errorf("%s: made %d times, %d with its keys: %+v", method, made.Load(), keyed.Load(), a)
		}
		if h.Get("Idempotency-Key") != "k" || len(h) != 2 {
			t.Errorf("%s: the caller's header is %v", method, h)
		}
		transport.CloseIdleConnections()
		server.Close()
	}
}

// again is a transport that goes over a second connection by itself, of which nothing comes.
type again struct{}

func (again) RoundTrip(r *http.Request) (*http.Response, error) {
	first, second := &counted{Conn: discard{}}, &counted{Conn: discard{}}
	trace := httptrace.ContextClientTrace(r.Context())
	trace.GotConn(httptrace.GotConnInfo{Conn: first, Reused: true})
	_, _ = first.Write([]byte("GET"))
	trace.GotConn(httptrace.GotConnInfo{Conn: second, Reused: true})
	return nil, errDead
}

// What the first of a request's connections was given may have left, whatever came of the last.
func TestDo_AnyConnectionMayHaveTakenIt(t *testing.T) {
	t.Parallel()
	if a := Get(t.Context(), again{}, target(t, "http://example.com"), http.Header{}); a.Err == nil || !a.Connected {
		t.Errorf("%+v", a)
	}
}

// An other end that sends back what it is sent has nothing of it in an error: a URL may have a token.
func TestPost_AnEcho(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "HTTP/1.1 200 OK\r\n"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(conn, "%sPOST %s HTTP/1.1\r\n\r\n", before, r.URL.Path)
			_ = conn.Close()
		}))
		transport := &http.Transport{DialContext: Count((&net.Dialer{}).DialContext)}
		a := Post(t.Context(), transport, target(t, server.URL+"/botcanary"), http.Header{}, []byte("body"))
		if a.Err == nil || !a.Connected || strings.Contains(a.Err.Error(), "canary") {
			t.Errorf("after %q: %+v", before, a)
		}
		transport.CloseIdleConnections()
		server.Close()
	}
}

// Whatever keeps connections of HTTP/2 finds out of one that leads nowhere.
func TestPings_EverywhereConnectionsAreKept(t *testing.T) {
	t.Parallel()
	if p := NewTransport().HTTP2; p == nil || p.SendPingTimeout == 0 || p.PingTimeout == 0 {
		t.Errorf("of a service's API: %+v", p)
	}
	const root = "../.."
	n := 0
	for _, folder := range []string{"delivery", "engine", "inbound", "internal", "provider", "run", "sink"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), "ForceAttemptHTTP2:") {
				return err
			}
			n++
			for _, way := range []string{"Pings()", "&http.HTTP2Config{", "DisableKeepAlives: true"} {
				if strings.Contains(string(text), way) {
					return nil
				}
			}
			t.Errorf("%s keeps connections of HTTP/2 and sends no pings", path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 5 {
		t.Errorf("%d files make connections", n)
	}
}
