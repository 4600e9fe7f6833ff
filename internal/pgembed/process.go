package pgembed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// immediateTimeout is how long an immediate shutdown may take. The server
	// itself kills its children after five seconds.
	immediateTimeout = 10 * time.Second

	maxLog = 16 << 20
)

// A process is a program that ends with us.
type process struct {
	cmd   *exec.Cmd
	pid   int
	done  chan struct{} // closed when it has ended
	err   error         // how it ended, once done is closed
	start int64         // the log's size before it started
}

// startProcess starts cmd, whose output goes to log. It is started and awaited
// by one thread, as Linux takes the end of the starting thread for the end of
// the owner.
func startProcess(cmd *exec.Cmd, log *os.File) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	if info, err := log.Stat(); err == nil {
		p.start = info.Size()
	}
	cmd.Stdout, cmd.Stderr = log, log
	started := make(chan error)
	go func() { // ends with the process
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(sig syscall.Signal) {
	// It may have ended just now, which is what the signals here ask for.
	_ = p.cmd.Process.Signal(sig)
}

// waitGone sends sig to the postmaster of the data folder, or to whatever is
// left of it when it is gone, and waits. It reports whether none is left.
func waitGone(data string, sig syscall.Signal, patience time.Duration) bool {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	told := 0
	var seen []int
	for {
		left := serverProcesses(data)
		for _, pid := range left {
			if !slices.Contains(seen, pid) {
				seen = append(seen, pid)
			}
		}
		// A process that exits loses its name before its shared memory, which
		// the next server would find in use.
		if len(left) == 0 && !slices.ContainsFunc(seen, alive) {
			return true
		}
		switch {
		case sig == syscall.SIGKILL:
			signalAll(left, sig)
		case len(left) > 0 && told != left[0]:
			told = left[0]
			signalAll(left[:1], sig)
		}
		select {
		case <-timeout.C:
			return false
		case <-look.C:
		}
	}
}

// output returns what the process has written to the log.
func (p *process) output(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() < p.start {
		return nil
	}
	text, _ := io.ReadAll(io.NewSectionReader(f, p.start, maxLog))
	return text
}

// portTaken reports whether the server ended because another program took its
// port before it could.
func portTaken(log []byte) bool { return bytes.Contains(log, []byte("Address already in use")) }

// memoryInUse reports whether the server ended because one before it has not
// ended altogether.
func memoryInUse(log []byte) bool {
	return bytes.Contains(log, []byte("pre-existing shared memory block"))
}

// pause waits, and reports whether ctx is still going on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func tail(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-10):]
	if len(lines) == 1 && lines[0] == "" {
		return "; it wrote nothing"
	}
	return "; it wrote:\n\t" + strings.Join(lines, "\n\t")
}

func trimLine(text []byte) []byte {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return bytes.TrimSpace(line)
}

// removeSharedMemory removes the segment that a killed server has left, whose
// id is in its pid file. A later start of the same cluster would do it.
func removeSharedMemory(data string) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return
	}
	if fields := strings.Fields(lines[6]); len(fields) == 2 {
		_ = exec.Command("ipcrm", "-m", fields[1]).Run() // it may be gone, or the program not there
	}
}

var errNoExit = errors.New("it does not end")
