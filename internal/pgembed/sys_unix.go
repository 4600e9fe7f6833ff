//go:build unix

package pgembed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// noFollow keeps root from being led elsewhere by a link in a folder that
// belongs to the server's user.
const noFollow = syscall.O_NOFOLLOW

// An account is the user that the server runs as. The zero value is the user
// that this process runs as.
type account struct {
	name     string
	uid, gid uint32
}

func (a account) other() bool { return a.name != "" }

// serverAccount returns the user to run as: ourselves unless we are root,
// which PostgreSQL refuses. As root it is the user that an existing data
// folder belongs to, else postgres, else nobody.
func serverAccount(data string) (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	if info, err := os.Lstat(data); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			name := strconv.Itoa(int(st.Uid))
			if u, err := user.LookupId(name); err == nil {
				name = u.Username
			}
			return account{name, st.Uid, st.Gid}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return account{name, uint32(uid), uint32(gid)}, nil
		}
	}
	return account{}, errors.New("pgembed: PostgreSQL does not run as root, and this machine has neither a user postgres nor a user nobody")
}

// give makes path the account's own.
func (a account) give(path string) error {
	if !a.other() {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// attr is how the account's processes are started: in a group of their own, so
// that a Ctrl-C at the terminal reaches the owner alone, which then stops the
// server when it is done with it.
func (a account) attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a.other() {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	dieWithOwner(attr)
	return attr
}

// closed returns the first folder on the way to path that the account may not
// pass, or "".
func (a account) closed(path string) string {
	if !a.other() {
		return ""
	}
	if parent := filepath.Dir(path); parent != path {
		if dir := a.closed(parent); dir != "" {
			return dir
		}
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return ""
	}
	bit := fs.FileMode(0o001)
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		switch {
		case st.Uid == a.uid:
			bit = 0o100
		case st.Gid == a.gid:
			bit = 0o010
		}
	}
	if info.Mode()&bit == 0 {
		return path
	}
	return ""
}

var errLocked = errors.New("locked")

// tryLock takes the lock that says who owns a folder. It ends with the process.
func tryLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		case err != nil:
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		default:
			return nil
		}
	}
}

// unlock gives the lock back and closes its file. Closing alone would not do while a
// child that another goroutine has forked, and that has not become its program yet,
// has the file as well.
func unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// signalAll sends sig to each of pids; those that are gone do not matter.
func signalAll(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}

// freeze stops a process from forking.
func freeze(pid int) { _ = syscall.Kill(pid, syscall.SIGSTOP) }

// killGroup ends a process that [account.attr] started, with its children.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// ofPostgres reports whether a program is one that works on a data folder. An
// upgrade may have replaced its file, which Linux notes behind the name.
func ofPostgres(program string) bool {
	name := filepath.Base(program)
	return strings.HasPrefix(name, "postgres") || strings.HasPrefix(name, "initdb")
}
