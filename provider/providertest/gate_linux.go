package providertest

import (
	"errors"
	"net"
	"strconv"
	"syscall"
)

// listen opens a port of 127.0.0.1 that stays taken while nobody listens on it,
// until it is released: calls are refused then, and no other server gets it.
func listen() (l net.Listener, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	release = func() { _ = syscall.Close(fd) }
	// Listeners have the option, too, and may be beside what does not listen.
	err = errors.Join(
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
	)
	if err == nil {
		l, err = beside(fd)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return l, release, nil
}

// beside listens on the port to which fd is bound.
func beside(fd int) (net.Listener, error) {
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return nil, err
	}
	a, ok := bound.(*syscall.SockaddrInet4)
	if !ok {
		return nil, errors.New("its address is not of IPv4")
	}
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port)))
}
