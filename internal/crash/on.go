//go:build deedcrash

// Package crash names the points at which a test may kill the process.
//
// In a normal build a point is nothing. Built with the tag deedcrash, the
// process kills itself with SIGKILL at the point that its environment names.
package crash

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var reached atomic.Int64

// Point marks a place between two steps that must survive a crash. The process
// dies at the n-th time it reaches the point that DEED_CRASH_POINT names as
// "name" or "name:n", and leaves the name in the file DEED_CRASH_FILE first.
func Point(name string) {
	want, nth, _ := strings.Cut(os.Getenv("DEED_CRASH_POINT"), ":")
	if want != name {
		return
	}
	n, err := strconv.ParseInt(nth, 10, 64)
	if err != nil {
		n = 1
	}
	switch now := reached.Add(1); {
	case now < n:
		return
	case now > n:
		select {} // who comes later gets no further either: the process is dying
	}
	if file := os.Getenv("DEED_CRASH_FILE"); file != "" {
		if err := os.WriteFile(file, []byte(name), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "crash:", err)
		}
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way; nothing more may happen here
}
