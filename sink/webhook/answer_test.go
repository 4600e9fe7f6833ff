package webhook

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
)

// rawServer answers each connection with fn, until the test's end.
func rawServer(t *testing.T, fn func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	t.Cleanup(func() { l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				fn(c)
			})
		}
	})
	return "http://" + l.Addr().String()
}

// readRequest reads one request to its end.
func readRequest(r *bufio.Reader) error {
	req, err := http.ReadRequest(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err
}

// deliverInVain delivers to servers that say nothing, until one was reached, as far as far says, before the time was over: on a
// busy machine a short one is over before.
func deliverInVain(t *testing.T, scheme string, far func(net.Conn) bool) error {
	t.Helper()
	for timeout := 50 * time.Millisecond; ; timeout *= 2 {
		var reached atomic.Bool
		url := rawServer(t, func(c net.Conn) {
			reached.Store(far(c))
			io.Copy(io.Discard, c)
		})
		s := newSink(t, strings.Replace(url, "http", scheme, 1), func(o *Options) { o.Timeout = timeout })
		if err := deliverOne(t, s, testMessage()); reached.Load() || timeout > time.Minute {
			return err
		}
	}
}

// nobody is where nobody listens: a port that nobody is given who asks for any.
const nobody = "http://127.0.0.1:1"

func TestNoCompleteAnswer(t *testing.T) {
	t.Parallel()

	t.Run("Refused", func(t *testing.T) {
		t.Parallel()
		err := deliverOne(t, newSink(t, nobody), testMessage())
		if kindOf(err) != "unavailable" || !strings.Contains(err.Error(), "refused") {
			t.Errorf("outcome = %s (%v)", kindOf(err), err)
		}
	})

	t.Run("NoSuchName", func(t *testing.T) {
		t.Parallel()
		s := newSink(t, "http://nowhere.invalid/hook?token=tell-nobody")
		err := deliverOne(t, s, testMessage())
		if kindOf(err) != "unavailable" || strings.Contains(err.Error(), "tell-nobody") {
			t.Errorf("outcome = %s (%v)", kindOf(err), err)
		}
	})

	t.Run("StoodStillBefore", func(t *testing.T) {
		t.Parallel()
		s := newSink(t, nobody, func(o *Options) { o.Timeout = time.Millisecond })
		a := s.attempt(t.Context(), 0, func(ctx context.Context) (*http.Request, [][]byte) {
			request, sent := s.request(ctx, testMessage())
			<-ctx.Done() // as in a process that is stopped here
			return request, sent
		})
		if kindOf(a.outcome) != "unavailable" || a.verdict != neutral || !strings.Contains(a.err.Error(), "before a connection was asked for") {
			t.Errorf("outcome = %s (%v), verdict %d", kindOf(a.outcome), a.outcome, a.verdict)
		}
	})

	t.Run("HandshakeNeverEnds", func(t *testing.T) {
		t.Parallel()
		err := deliverInVain(t, "https", func(net.Conn) bool { return true })
		if kindOf(err) != "unavailable" {
			t.Errorf("outcome = %s (%v)", kindOf(err), err)
		}
	})

	const head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
	for name, answer := range map[string]func(net.Conn){
		"EOF":            func(net.Conn) {},
		"Reset":          func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) },
		"ResetInHeaders": func(c net.Conn) { io.WriteString(c, head[:20]); c.(*net.TCPConn).SetLinger(0) },
		"NotHTTP":        func(c net.Conn) { io.WriteString(c, "220 mail.example ESMTP\r\n") },
		"HugeHeaders": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20)+"\r\n\r\n")
			io.Copy(io.Discard, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := rawServer(t, func(c net.Conn) {
				if err := readRequest(bufio.NewReader(c)); err != nil {
					t.Error(err)
				}
				answer(c)
			})
			err := deliverOne(t, newSink(t, url), testMessage())
			if kindOf(err) != "attempt" || !strings.Contains(err.Error(), "outcome unknown") {
				t.Errorf("outcome = %s (%v)", kindOf(err), err)
			}
		})
	}

	t.Run("Silence", func(t *testing.T) {
		t.Parallel()
		err := deliverInVain(t, "http", func(c net.Conn) bool { return readRequest(bufio.NewReader(c)) == nil })
		if kindOf(err) != "attempt" || !strings.Contains(err.Error(), "outcome unknown") {
			t.Errorf("outcome = %s (%v)", kindOf(err), err)
		}
	})

	// The status is the answer: a body that is cut off or never ends changes
	// nothing.
	for name, answer := range map[string]func(net.Conn){
		"EOFInBody":     func(c net.Conn) { io.WriteString(c, head+"part") },
		"SilenceInBody": func(c net.Conn) { io.WriteString(c, head+"part"); io.Copy(io.Discard, c) },
		"NoLength":      func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); io.Copy(io.Discard, c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := rawServer(t, func(c net.Conn) {
				if err := readRequest(bufio.NewReader(c)); err != nil {
					t.Error(err)
				}
				answer(c)
			})
			if err := deliverOne(t, newSink(t, url), testMessage()); err != nil {
				t.Errorf("outcome = %v, want delivered", err)
			}
		})
	}

	t.Run("ContextEnds", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		url := rawServer(t, func(c net.Conn) {
			if err := readRequest(bufio.NewReader(c)); err != nil {
				t.Error(err)
			}
			cancel()
			io.Copy(io.Discard, c)
		})
		s := newSink(t, url)
		outcomes := s.Deliver(ctx, []deed.Message{testMessage(), testMessage()})
		for _, err := range outcomes {
			if !errors.Is(err, context.Canceled) || kindOf(err) != "attempt" {
				t.Errorf("outcome = %v, want the context's error", err)
			}
		}
		if len(outcomes) != 2 {
			t.Errorf("%d outcomes, want 2", len(outcomes))
		}
	})
}

// A POST that was read by the server must never be sent again by the client's
// own doing, not even on a connection that was used before.
func TestPostIsNeverRepeatedByTheClient(t *testing.T) {
	t.Parallel()
	for again := 10; !postIsNeverRepeated(t, again == 0); again-- {
	}
}

// postIsNeverRepeated returns false if the client has not used its connection again, which it does not where it hears for 50 ms
// that its request was written: but for the last time, when that fails.
func postIsNeverRepeated(t *testing.T, last bool) bool {
	t.Helper()
	var requests, connections atomic.Int32
	url := rawServer(t, func(c net.Conn) {
		connections.Add(1)
		r := bufio.NewReader(c)
		if readRequest(r) != nil {
			return
		}
		if requests.Add(1) > 1 {
			return // drop the connection without an answer
		}
		io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		if readRequest(r) == nil {
			requests.Add(1)
		}
	})
	s := newSink(t, url)
	m := testMessage()
	m.Headers = map[string]string{"idempotency-key": "k", "x-idempotency-key": "k"}
	if err := deliverOne(t, s, m); err != nil {
		t.Fatal(err)
	}
	err := deliverOne(t, s, m)
	if kindOf(err) != "attempt" {
		t.Errorf("outcome = %s (%v), want a plain error", kindOf(err), err)
	}
	r, c := requests.Load(), connections.Load()
	if r == 2 && c == 2 && !last {
		return false
	}
	if r != 2 || c != 1 {
		t.Errorf("%d requests on %d connections, want 2 on 1", r, c)
	}
	return true
}

func TestHugeAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	stopped := make(chan struct{})
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(stopped)
		chunk := make([]byte, 64<<10)
		for {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	if err := deliverOne(t, newSink(t, srv.URL), testMessage()); err != nil {
		t.Fatal(err)
	}
	<-stopped
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}
