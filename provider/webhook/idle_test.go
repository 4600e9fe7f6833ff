package webhook_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/webhook"
)

// oncePerConnection is a receiver that takes the first request of a connection,
// says that it may be used again, and resets it when it is.
func oncePerConnection(t *testing.T) (url string, took, cut *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	took, cut = &atomic.Int32{}, &atomic.Int32{}
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				took.Add(1)
				if _, err := io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
					return
				}
				if _, err := in.ReadByte(); err == nil {
					cut.Add(1)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/", took, cut
}

// A receiver that closes connections that were idle puts nothing into doubt:
// without a key no connection is used a second time.
func TestSend_NoIdleConnectionWithoutAKey(t *testing.T) {
	t.Parallel()
	url, took, cut := oncePerConnection(t)
	h := harness(t, 0)
	p, err := webhook.New(webhook.Options{Secret: secret, AllowHosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	h.Provider, h.Recipient, h.Accepted = p, url, nil
	providertest.DeliverMany(t, h, 40)
	if took.Load() != 40 || cut.Load() != 0 {
		t.Errorf("%d were taken; %d were sent over a connection that had been used", took.Load(), cut.Load())
	}
}
