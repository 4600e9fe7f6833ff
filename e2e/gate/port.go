package gate

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Reserve listens on this machine, at a port below those that are given to who asks for any, and to connections. Once it is
// closed, nobody gets that port by chance: it is for a server that is told its port, or is started anew at it.
func Reserve() (net.Listener, error) {
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(22_000))); err == nil {
			return l, nil
		}
	}
	return nil, err
}
