package pgembed

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that exits may hold the server's memory when it can be seen no more.
func TestCluster_RestartWaitsForTheMemoryOfTheOneBefore(t *testing.T) {
	t.Parallel()
	c := start(t, Options{Dir: folder(t)})
	remember(t, c)
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(strings.Split(string(text), "\n")[6])
	id, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	memory, _, errno := syscall.Syscall(syscall.SYS_SHMAT, uintptr(id), 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	c.Kill()
	detach := time.AfterFunc(time.Second, func() { _, _, _ = syscall.Syscall(syscall.SYS_SHMDT, memory, 0, 0) })
	defer detach.Stop()
	if err := c.Restart(deadline(t)); err != nil {
		t.Fatal(err)
	}
	wantKept(t, c)
}
