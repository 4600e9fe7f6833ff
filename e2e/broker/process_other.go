//go:build !linux

package broker

func (p *process) run() error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() { // ends with the process
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended is in its log
	}()
	return nil
}
