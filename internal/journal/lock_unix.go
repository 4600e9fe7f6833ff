//go:build unix

package journal

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock takes the lock that says whose the journal is. It ends with the process.
func tryLock(f *os.File) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrInUse
		case err != nil:
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		default:
			return nil
		}
	}
}

// unlock gives the lock back, which a child that has not become its program yet may have as well.
func unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
