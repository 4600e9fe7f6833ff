//go:build unix && !linux

package pgembed

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithOwner does nothing: these systems cannot tie one process's life to
// another's. The next start finds the orphan and stops it.
func dieWithOwner(*syscall.SysProcAttr) {}

// serverProcesses returns the living processes of PostgreSQL whose data folder
// is data, the postmaster first: it names the folder on its command line, and
// the others are its children.
func serverProcesses(data string) []int {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,command=").Output()
	if err != nil {
		return nil
	}
	var pids []int
	children := map[int][]int{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		pid, _ := strconv.Atoi(fields[0])
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
		if ofPostgres(fields[2]) && strings.Contains(line, data) {
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		pids = append(pids, children[pid]...)
	}
	return pids
}

// alive reports whether a process exists.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
