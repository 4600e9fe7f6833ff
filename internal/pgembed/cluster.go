package pgembed

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Superuser is the login that a cluster is made with.
const Superuser = "postgres"

const logFile = "postgres.log"

// Cluster is a running server and its folder. Its methods may be called by
// several goroutines at once.
type Cluster struct {
	opts      Options
	dir       string
	temporary bool // Stop removes dir
	account   account
	tcp       bool
	password  string
	lock      *os.File // held from Start to Stop

	life sync.Mutex // held while starting or stopping

	mu     sync.Mutex // guards what follows
	port   int
	server *process // the latest one; never nil after Start
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *Cluster) socket() string {
	return filepath.Join(c.dir, ".s.PGSQL."+strconv.Itoa(cmp.Or(c.opts.Port, 5432)))
}

func (c *Cluster) logPath() string { return filepath.Join(c.dir, logFile) }

// command prepares a program of PostgreSQL to run as the server's account.
func (c *Cluster) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = c.dir // the owner's own folder may be closed to the account
	cmd.SysProcAttr = c.account.attr()
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "LC_") || strings.HasPrefix(v, "LANG")
	})
	return cmd
}

// killAll kills the postmaster and its children, and waits until all are gone.
func (c *Cluster) killAll(p *process) {
	if p.running() {
		freeze(p.pid) // no child is forked behind our back
	}
	waitGone(c.data(), syscall.SIGKILL, time.Minute)
	if p.running() { // it never got to its folder, or the system hides it
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}
