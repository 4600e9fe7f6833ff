package pgembed

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dieWithOwner has the kernel send a fast shutdown when the thread that starts
// the process ends, so that no server outlives its owner.
func dieWithOwner(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// serverProcesses returns the living processes of PostgreSQL whose data folder
// is data, the postmaster or initdb first. They all have it as their working folder;
// zombies have none and do not count.
func serverProcesses(data string) []int {
	want, err := os.Stat(data)
	if err != nil {
		return nil
	}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	parent := map[int]int{}
	for _, dir := range entries {
		program, err := os.Readlink(dir + "/exe")
		if err != nil || !ofPostgres(program) {
			continue
		}
		if got, err := os.Stat(dir + "/cwd"); err != nil || !os.SameFile(got, want) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		pids = append(pids, pid)
		_, parent[pid] = stat(dir)
	}
	for i, pid := range pids {
		if _, child := parent[parent[pid]]; !child {
			pids[0], pids[i] = pids[i], pids[0]
			break
		}
	}
	return pids
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	state, _ := stat("/proc/" + strconv.Itoa(pid))
	return state != "" && state != "Z" && state != "X"
}

// stat reads the state and the parent from /proc/PID/stat, whose second field
// may itself hold spaces and parentheses.
func stat(dir string) (state string, parent int) {
	text, _ := os.ReadFile(dir + "/stat")
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}
