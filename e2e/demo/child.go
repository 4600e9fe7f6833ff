package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// child is a process that the demo has started. It ends with the demo, however
// that ends: its standard input is a pipe that the demo holds.
type child struct {
	name    string
	cmd     *exec.Cmd
	stdin   io.Closer
	log     string
	first   *firstLine
	done    chan struct{} // closed when it has ended
	err     error         // how it ended, once done is closed
	meantTo atomic.Bool   // end
}

// patience is how long a part may take to start or to stop: on a machine that is busy with other things as well.
const patience = time.Minute

// startChild starts this program again as the given part. gone is called if
// it ends by itself.
func startChild(name, part, log string, env []string, gone func(error)) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	c := &child{name: name, log: log, cmd: exec.Command(self), first: newFirstLine(), done: make(chan struct{})}
	c.cmd.Env = append(append(os.Environ(), "DEMO_PART="+part), env...)
	c.cmd.Stdout, c.cmd.Stderr = c.first, out
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
		if !c.meantTo.Load() {
			gone(fmt.Errorf("%s ended by itself: %w%s", name, orSuccess(c.err), tail(log)))
		}
	}()
	return c, nil
}

func orSuccess(err error) error {
	if err == nil {
		return fmt.Errorf("exit status 0")
	}
	return err
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// greeting waits for the first line that the child prints.
func (c *child) greeting() (string, error) {
	select {
	case <-c.first.whole:
		return c.first.text(), nil
	case <-c.done:
		return "", fmt.Errorf("%s ended at its start: %w%s", c.name, orSuccess(c.err), tail(c.log))
	case <-time.After(patience):
		return "", fmt.Errorf("%s is not ready after %s%s", c.name, patience, tail(c.log))
	}
}

// kill ends the child with SIGKILL and returns when it is gone.
func (c *child) kill() {
	c.meantTo.Store(true)
	_ = c.cmd.Process.Kill()
	<-c.done
}

// stop asks the child to end, and says how that went.
func (c *child) stop() error {
	c.meantTo.Store(true)
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(patience):
		c.kill()
		return fmt.Errorf("%s did not stop when told to%s", c.name, tail(c.log))
	}
	if c.err != nil {
		return fmt.Errorf("%s stopped with %w%s", c.name, c.err, tail(c.log))
	}
	return nil
}

// tail is the end of a log, for an error.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "; its last words:\n  " + strings.Join(lines[max(0, len(lines)-5):], "\n  ")
}

// firstLine keeps what a child prints up to the first end of line.
type firstLine struct {
	whole chan struct{} // closed when there is one
	mu    sync.Mutex
	line  []byte // guarded by mu
	ended bool   // guarded by mu
}

func newFirstLine() *firstLine { return &firstLine{whole: make(chan struct{})} }

func (f *firstLine) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return len(b), nil
	}
	line, _, ended := bytes.Cut(b, []byte("\n"))
	f.line = append(f.line, line...)
	if ended {
		f.ended = true
		close(f.whole)
	}
	return len(b), nil
}

func (f *firstLine) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.line)
}
