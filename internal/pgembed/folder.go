package pgembed

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	lockFile     = "lock"
	newData      = "data.new-" // a cluster in the making
	scratch      = "out-"      // a file of one call
	passwordFile = "deed_password"
	temporary    = "deed-pg-" // a folder that nobody named

	// sweepAge is how long ago an owner must have started for its folder to be
	// swept if it is gone.
	sweepAge = time.Minute
)

// takeFolder makes the folder unless it exists, takes its lock and closes it to
// everyone but the server's account.
func (c *Cluster) takeFolder() error {
	if c.temporary {
		dir, err := temporaryFolder(c.account, c.opts.TempDir)
		if err != nil {
			return err
		}
		c.dir = dir
	} else if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return fmt.Errorf("pgembed: %w", err)
	}
	// What the server sees as its folder must be what we compare it with.
	dir, err := filepath.EvalSymlinks(c.dir)
	if err != nil {
		return fmt.Errorf("pgembed: %w", err)
	}
	c.dir = dir
	if dir := c.account.closed(filepath.Dir(c.dir)); dir != "" {
		return c.closedError(dir)
	}
	if err := c.refuseForeign(); err != nil {
		return err
	}

	lock, err := os.OpenFile(filepath.Join(c.dir, lockFile), os.O_CREATE|os.O_RDWR|noFollow, 0o600)
	if err != nil {
		return fmt.Errorf("pgembed: %w", err)
	}
	if err := tryLock(lock); err != nil {
		defer lock.Close()
		if !errors.Is(err, errLocked) {
			return fmt.Errorf("pgembed: %w", err)
		}
		holder := make([]byte, 20)
		n, _ := lock.Read(holder)
		return fmt.Errorf("pgembed: %s is in use by process %s; a folder has one owner at a time", c.dir, holder[:n])
	}
	c.lock = lock
	_ = lock.Truncate(0) // its text is for people only
	_, _ = lock.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)

	if err := c.account.give(c.dir); err != nil {
		return fmt.Errorf("pgembed: %w", err)
	}
	if err := os.Chmod(c.dir, 0o700); err != nil {
		return fmt.Errorf("pgembed: %w", err)
	}
	return nil
}

// refuseForeign keeps us from closing, and giving away, a folder that holds
// something else.
func (c *Cluster) refuseForeign() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("pgembed: %w", err)
	}
	locked := false
	for _, e := range entries {
		locked = locked || e.Name() == lockFile
		if !ours(e.Name()) {
			return fmt.Errorf("pgembed: %s holds something else (%s); name an empty folder, or one that does not exist", c.dir, e.Name())
		}
	}
	if len(entries) > 0 && !locked {
		return fmt.Errorf("pgembed: %s has no file %q, so it is not ours; name an empty folder, or one that does not exist", c.dir, lockFile)
	}
	return nil
}

// ours reports whether a name is one that we, the server, or a desktop put into
// a cluster's folder.
func ours(name string) bool {
	switch name {
	case lockFile, "data", logFile:
		return true
	}
	return strings.HasPrefix(name, newData) || strings.HasPrefix(name, scratch) || strings.HasPrefix(name, ".")
}

// temporaryFolder makes a folder that the account can reach, in the given one
// if possible.
func temporaryFolder(a account, preferred string) (string, error) {
	for _, parent := range []string{cmp.Or(preferred, os.TempDir()), os.TempDir(), "/tmp", "/var/tmp"} {
		parent, err := filepath.EvalSymlinks(parent)
		if err != nil || a.closed(parent) != "" {
			continue
		}
		sweep(parent)
		if dir, err := os.MkdirTemp(parent, temporary); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("pgembed: the user %s can reach no temporary folder; set TMPDIR to one that is open to it", a.name)
}

// sweep removes the temporary folders of owners that crashed. What cannot be
// removed, such as another user's, stays.
func sweep(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, temporary+"*")) // the pattern is valid
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|noFollow, 0)
		if err != nil {
			continue
		}
		// A young one may be between the making of its lock and the taking.
		info, err := lock.Stat()
		if err == nil && time.Since(info.ModTime()) > sweepAge && tryLock(lock) == nil {
			data := filepath.Join(dir, "data")
			if waitGone(data, syscall.SIGQUIT, immediateTimeout) || waitGone(data, syscall.SIGKILL, immediateTimeout) {
				removeSharedMemory(data)
				_ = os.RemoveAll(dir)
			}
		}
		_ = unlock(lock)
	}
}

func (c *Cluster) closedError(dir string) error {
	return fmt.Errorf("pgembed: PostgreSQL runs as the user %s when we are root, and the folder %s is closed to that user; "+
		"choose a folder elsewhere, or run: chmod o+x %s", c.account.name, dir, dir)
}

// checkAccess proves that the account can run the programs in the folder.
func (c *Cluster) checkAccess(ctx context.Context) error {
	if !c.account.other() {
		return nil
	}
	out, err := c.runToEnd(ctx, c.command(c.opts.Binaries.Postgres, "--version"))
	if err == nil {
		return nil
	}
	for _, path := range []string{c.dir, c.opts.Binaries.Postgres} {
		if dir := c.account.closed(path); dir != "" {
			return c.closedError(dir)
		}
	}
	return fmt.Errorf("pgembed: run %s as the user %s: %w%s", c.opts.Binaries.Postgres, c.account.name, err, tail(out))
}

// runToEnd runs a program of PostgreSQL and returns what it wrote.
func (c *Cluster) runToEnd(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	out, err := os.CreateTemp(c.dir, scratch+"*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	p, err := startProcess(cmd, out)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		killGroup(p.pid)
		<-p.done
		return nil, context.Cause(ctx)
	}
	return p.output(out.Name()), p.err
}

// removeLeftovers clears away what a crashed owner has left. We hold the lock,
// so whatever runs in the folder is an orphan, and whatever a pid file says is
// of the past: its number may meanwhile be another program's.
func (c *Cluster) removeLeftovers() error {
	halves, _ := filepath.Glob(filepath.Join(c.dir, newData+"*")) // the pattern is valid
	for _, half := range halves {
		c.opts.Logger.Warn("removing a half-made cluster", "dir", half)
		if err := removeHalf(half); err != nil {
			return fmt.Errorf("pgembed: remove a half-made cluster: %w", err)
		}
	}
	if orphans := serverProcesses(c.data()); len(orphans) > 0 {
		c.opts.Logger.Warn("stopping the server of a crashed owner", "dir", c.dir, "pid", orphans[0])
		if !waitGone(c.data(), syscall.SIGINT, c.opts.StopTimeout) &&
			!waitGone(c.data(), syscall.SIGQUIT, immediateTimeout) &&
			!waitGone(c.data(), syscall.SIGKILL, immediateTimeout) {
			return fmt.Errorf("pgembed: process %d, the server of a crashed owner of %s: %w", orphans[0], c.dir, errNoExit)
		}
	}
	stale, _ := filepath.Glob(filepath.Join(c.dir, ".s.PGSQL.*"))
	lost, _ := filepath.Glob(filepath.Join(c.dir, scratch+"*"))
	for _, path := range slices.Concat(stale, lost, []string{filepath.Join(c.data(), "postmaster.pid")}) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("pgembed: remove a stale file: %w", err)
		}
	}
	return nil
}

// removeHalf removes a half-made cluster and the processes that still make it.
// A shell between the two that wait for each other is seen only when it has
// become a server, hence the further tries.
func removeHalf(half string) error {
	var err error
	for range 5 {
		waitGone(half, syscall.SIGKILL, immediateTimeout)
		if err = os.RemoveAll(half); err == nil {
			return nil
		}
	}
	return err
}

// initdb makes the cluster beside its place and moves it there when it is
// whole.
func (c *Cluster) initdb(ctx context.Context) error {
	half, err := os.MkdirTemp(c.dir, newData)
	if err != nil {
		return fmt.Errorf("pgembed: %w", err)
	}
	defer removeHalf(half) // a failed one; a whole one has moved
	password := rand.Text()
	secret, err := os.CreateTemp(c.dir, scratch+"*")
	if err != nil {
		return fmt.Errorf("pgembed: %w", err)
	}
	defer os.Remove(secret.Name())
	_, err = secret.WriteString(password)
	if err := errors.Join(err, secret.Close(), c.account.give(secret.Name()), c.account.give(half)); err != nil {
		return fmt.Errorf("pgembed: %w", err)
	}

	args := []string{
		"-D", half, "-U", Superuser, "-E", "UTF8", "--locale", locale(),
		"--auth-local", "trust", "--auth-host", "scram-sha-256", "--pwfile", secret.Name(),
	}
	if c.opts.Unsafe {
		args = append(args, "--no-sync")
	}
	cmd := c.command(c.opts.Binaries.Initdb, args...)
	cmd.Dir = half // by which the next owner finds it if we crash
	if out, err := c.runToEnd(ctx, cmd); err != nil {
		return fmt.Errorf("pgembed: initdb: %w%s", err, tail(bytes.TrimSpace(out)))
	}
	if err := os.WriteFile(filepath.Join(half, passwordFile), []byte(password), 0o600); err != nil {
		return fmt.Errorf("pgembed: %w", err)
	}
	if err := os.Rename(half, c.data()); err != nil {
		return fmt.Errorf("pgembed: %w", err)
	}
	c.opts.Logger.Info("postgres cluster made", "dir", c.dir, "version", c.opts.Binaries.Major)
	return nil
}

// locale is the one that sorts by code point and is there on every system.
func locale() string {
	if slices.Contains([]string{"darwin", "freebsd", "openbsd"}, runtime.GOOS) {
		return "C"
	}
	return "C.UTF-8"
}
