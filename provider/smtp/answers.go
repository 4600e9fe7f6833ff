package smtp

import (
	"fmt"
	"net"
)

// mostAnswer bounds what a server answers to a command: an EHLO that names all there is has two KiB, and the
// certificates of a TLS handshake a few.
const mostAnswer = 64 << 10

var errEndless = fmt.Errorf("the server's answer is over %d KiB", mostAnswer>>10)

// answers is a connection over which an answer is read up to mostAnswer: one that has no end, in one line or in
// many, would be kept until its time is over. After that nothing more is read.
type answers struct {
	net.Conn
	read int // of this answer
}

func (a *answers) Read(b []byte) (int, error) {
	if a.read > mostAnswer {
		return 0, errEndless
	}
	n, err := a.Conn.Read(b)
	a.read += n
	return n, err
}

// Write implements [net.Conn]: what is read from then on answers it.
func (a *answers) Write(b []byte) (int, error) {
	a.next()
	return a.Conn.Write(b)
}

// next begins another answer.
func (a *answers) next() {
	if a.read <= mostAnswer {
		a.read = 0
	}
}
