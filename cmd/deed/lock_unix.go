//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// lockFile waits until nobody else has the file locked; !locked without an error: its file
// system has no locks. A process that ends gives it back.
func lockFile(ctx context.Context, f *os.File) (locked bool, err error) {
	for n := 1; ; n++ {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return true, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return false, nil
		}
		if !work.Sleep(ctx, work.Backoff(n, 5*time.Millisecond, 200*time.Millisecond)) {
			return false, ctx.Err()
		}
	}
}

// unlockFile gives the lock back, which a child that has not become its program yet may have as well.
func unlockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
