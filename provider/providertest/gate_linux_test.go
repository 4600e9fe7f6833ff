package providertest_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/deedhq/deed/provider/providertest"
)

// A port that is shut refuses calls and is nobody else's, and it opens again.
func TestGate_ThePortIsKept(t *testing.T) {
	t.Parallel()
	g := providertest.NewGate(t)
	accepted := make(chan net.Conn, 3)
	go func() {
		for c, err := g.Accept(); err == nil; c, err = g.Accept() {
			accepted <- c
		}
	}()
	addr, ok := g.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(g.Addr())
	}
	// Who asks for any port and can have this one only.
	stranger := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		const ipLocalPortRange = 51 // since Linux 6.3
		of := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_IP, ipLocalPortRange, addr.Port<<16|addr.Port)
		})
		return errors.Join(of, err)
	}}
	for range 3 { // at first without a connection, whose remains keep a port as well
		g.Down()
		if l, err := stranger.Listen(t.Context(), "tcp", "127.0.0.1:0"); err == nil {
			_ = l.Close()
			t.Error("another server got the port")
		} else if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.ENOPROTOOPT) {
			t.Error(err)
		}
		if _, err := net.Dial("tcp", addr.String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("called while it is shut: %v", err)
		}
		g.Up()
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		<-accepted
	}
}
