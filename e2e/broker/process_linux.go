package broker

import (
	"runtime"
	"syscall"
)

// run starts the process on a thread of its own, which waits for it: the process
// dies with that thread, and so with the tests, however they end.
func (p *process) run() error {
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() { // ends with the process
		runtime.LockOSThread()
		defer close(p.ended)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is in its log
		}
	}()
	return <-started
}
