package main

import (
	"context"
	"net"
	"testing"

	"github.com/deedhq/deed/internal/catcher"
)

// mailCatcher is an SMTP server that keeps what it is sent, until the test ends.
func mailCatcher(t testing.TB) (far *catcher.SMTP, address string) {
	t.Helper()
	far = &catcher.SMTP{Mailbox: &catcher.Mailbox{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- far.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return far, l.Addr().String()
}
