//go:build !unix

package pgembed

import (
	"errors"
	"os"
	"syscall"
)

const noFollow = 0

var errLocked = errors.New("locked")

type account struct{ name string }

func (account) other() bool                { return false }
func (account) give(string) error          { return nil }
func (account) attr() *syscall.SysProcAttr { return nil }
func (account) closed(string) string       { return "" }

func serverAccount(string) (account, error) {
	return account{}, errors.New("pgembed: a private PostgreSQL is not supported on this system; name a running one by its URL")
}

func tryLock(*os.File) error          { return nil }
func unlock(f *os.File) error         { return f.Close() }
func serverProcesses(string) []int    { return nil }
func signalAll([]int, syscall.Signal) {}
func freeze(int)                      {}
func killGroup(int)                   {}
func alive(int) bool                  { return false }
