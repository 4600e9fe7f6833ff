//go:build !linux

package providertest

import "net"

// listen opens a port of 127.0.0.1. While nobody listens on it, another server
// may get it.
func listen() (l net.Listener, release func(), err error) {
	l, err = net.Listen("tcp", "127.0.0.1:0")
	return l, func() {}, err
}
