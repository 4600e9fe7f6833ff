// Package pgembed finds PostgreSQL on this machine and runs a private server of
// it: a cluster in one folder, on a Unix socket in that folder or, where that
// does not work, on a loopback port with a password.
//
// The server belongs to the process that started it. On Linux it ends with its
// owner, however the owner ends; elsewhere the next owner of the folder stops
// what the last one left running.
package pgembed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxSocketPath is what every system's socket addresses have room for.
const maxSocketPath = 100

// Start runs the server of opts.Dir and returns when it takes connections. It
// makes the cluster first unless there is a whole one, and clears away what a
// crashed owner has left: a half-made cluster, a stale pid file, a running
// server. The server outlives ctx, which bounds the start alone. A folder has
// one owner at a time.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, dir: opts.Dir, temporary: opts.Dir == ""}
	if err := c.open(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) open(ctx context.Context) error {
	var err error
	if c.account, err = serverAccount(filepath.Join(c.dir, "data")); err != nil {
		return err
	}
	if err := c.takeFolder(); err != nil {
		return err
	}
	if err := c.chooseBinaries(); err != nil {
		return err
	}
	if err := c.checkAccess(ctx); err != nil {
		return err
	}
	if err := c.removeLeftovers(); err != nil {
		return err
	}
	if _, err := os.Stat(c.data()); errors.Is(err, fs.ErrNotExist) {
		if err := c.initdb(ctx); err != nil {
			return err
		}
	}
	c.tcp = c.opts.TCP || len(c.socket()) > maxSocketPath
	if password, err := os.ReadFile(filepath.Join(c.data(), passwordFile)); err == nil {
		c.password = string(password)
	} else if c.tcp {
		return fmt.Errorf("pgembed: %w", err)
	}
	return c.run(ctx)
}

// chooseBinaries keeps to the version that made the data.
func (c *Cluster) chooseBinaries() error {
	major := 0
	if version, err := os.ReadFile(filepath.Join(c.data(), "PG_VERSION")); err == nil {
		major, _ = strconv.Atoi(string(trimLine(version)))
	}
	if c.opts.Binaries == (Binaries{}) {
		found, err := hostFinder().find(major)
		c.opts.Binaries = found
		return err
	}
	if got := c.opts.Binaries.Major; major != 0 && got != 0 && got != major {
		return fmt.Errorf("pgembed: %s was made by PostgreSQL %d and cannot be run by %d", c.data(), major, got)
	}
	return nil
}

// run starts the server and waits until it takes connections.
func (c *Cluster) run(ctx context.Context) error {
	began := time.Now()
	for try := 1; ; try++ {
		port, err := c.choosePort()
		if err != nil {
			return err
		}
		p, err := c.spawn(port)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.port, c.server = port, p
		c.mu.Unlock()
		err = c.waitReady(ctx, p)
		if err == nil {
			c.opts.Logger.Info("postgres started", "dir", c.dir, "pid", p.pid, "version", c.opts.Binaries.Major)
			return nil
		}
		c.killAll(p)
		log := p.output(c.logPath())
		// A process of the server before may have lost its name, and still hold its
		// memory, before anybody saw it.
		if memoryInUse(log) && time.Since(began) < immediateTimeout && pause(ctx, 100*time.Millisecond) {
			continue
		}
		// Another program may take the free port before the server does.
		if !c.tcp || c.opts.Port != 0 || try >= 3 || ctx.Err() != nil || !portTaken(log) {
			return fmt.Errorf("pgembed: start %s: %w%s", c.dir, err, tail(log))
		}
		c.mu.Lock()
		c.port = 0
		c.mu.Unlock()
	}
}

// choosePort keeps the port of an earlier start, so that clients find the
// server again.
func (c *Cluster) choosePort() (int, error) {
	if port := cmp.Or(c.opts.Port, c.Port()); port != 0 {
		return port, nil
	}
	if !c.tcp {
		return 5432, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("pgembed: find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (c *Cluster) spawn(port int) (*process, error) {
	settings := map[string]string{"log_destination": "stderr", "logging_collector": "off"}
	if c.tcp {
		settings["listen_addresses"] = "127.0.0.1"
		settings["unix_socket_directories"] = ""
	} else {
		settings["listen_addresses"] = ""
		settings["unix_socket_directories"] = c.dir
		settings["unix_socket_permissions"] = "0700"
	}
	if c.opts.Unsafe {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	if c.temporary {
		// Inside the folder, so that a killed server leaves nothing outside.
		settings["dynamic_shared_memory_type"] = "mmap"
	}
	maps.Copy(settings, c.opts.Settings)
	args := []string{"-D", c.data(), "-p", strconv.Itoa(port)}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	log, err := os.OpenFile(c.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND|noFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("pgembed: %w", err)
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil && info.Size() > maxLog {
		_ = log.Truncate(0) // losing old lines is better than filling the disk
	}
	return startProcess(c.command(c.opts.Binaries.Postgres, args...), log)
}

// waitReady connects until that succeeds, the server ends or ctx does.
func (c *Cluster) waitReady(ctx context.Context, p *process) error {
	connecting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with this call
		select {
		case <-p.done:
			cancel()
		case <-connecting.Done():
		}
	}()
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for {
		err := ping(connecting, c.URL("postgres"))
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("postgres ended: %w", cmp.Or(p.err, errors.New("exit status 0")))
		case <-ctx.Done():
			return fmt.Errorf("%w; the last attempt to connect: %w", context.Cause(ctx), err)
		case <-retry.C:
		}
	}
}

func ping(ctx context.Context, url string) error {
	// A server in recovery may accept and then not answer.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// URL returns the superuser's connection URL for a database.
func (c *Cluster) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(Superuser), Path: "/" + database}
	query := url.Values{"sslmode": {"disable"}}
	if port := strconv.Itoa(c.Port()); c.tcp {
		u.User = url.UserPassword(Superuser, c.password)
		u.Host = net.JoinHostPort("127.0.0.1", port)
	} else {
		query.Set("host", c.dir)
		query.Set("port", port)
	}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // libpq, and pgx with it, takes a plus for a plus
	return u.String()
}

// Dir returns the cluster's folder.
func (c *Cluster) Dir() string { return c.dir }

// Port returns the loopback port, or the number in the socket's name. It stays
// the same across restarts.
func (c *Cluster) Port() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.port
}

func (c *Cluster) current() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

// PID returns the postmaster's process id, or 0 while no server runs.
func (c *Cluster) PID() int {
	if p := c.current(); p.running() {
		return p.pid
	}
	return 0
}

// Done returns a channel that is closed when the server that runs at the time
// of the call ends, for whatever reason.
func (c *Cluster) Done() <-chan struct{} { return c.current().done }

// Stop shuts the server down and gives the folder up. Sessions are ended; if
// that takes longer than StopTimeout, or ctx ends first, the server is stopped
// without a checkpoint, the next start recovers, and Stop says so. Stopping a
// stopped cluster does nothing.
func (c *Cluster) Stop(ctx context.Context) error {
	c.life.Lock()
	defer c.life.Unlock()
	return errors.Join(c.shutdown(ctx), c.close())
}

// Restart stops the server, if it runs, and starts it anew with the same
// address and options. After an error no server runs.
func (c *Cluster) Restart(ctx context.Context) error {
	c.life.Lock()
	defer c.life.Unlock()
	if c.lock == nil {
		return fmt.Errorf("pgembed: restart %s: the cluster was stopped", c.dir)
	}
	if err := c.shutdown(ctx); err != nil {
		return err
	}
	if err := c.removeLeftovers(); err != nil {
		return err
	}
	return c.run(ctx)
}

// Kill ends the postmaster and all its children at once, as a crash of the
// server would, and returns when they are gone. [Cluster.Restart] recovers.
func (c *Cluster) Kill() {
	c.life.Lock()
	defer c.life.Unlock()
	c.killAll(c.current())
}

// Companion starts a program that works beside the server: as the same user, in
// the cluster's folder, with its output in a log there. It ends by stop, or with
// a crashed owner as the server does. Stop returns when it is gone, and an error
// if it was before.
func (c *Cluster) Companion(program string, args ...string) (stop func() error, err error) {
	path := filepath.Join(c.dir, "."+filepath.Base(program)+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|noFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("pgembed: %w", err)
	}
	defer log.Close()
	p, err := startProcess(c.command(program, args...), log)
	if err != nil {
		return nil, fmt.Errorf("pgembed: start %s: %w", program, err)
	}
	return func() error {
		if !p.running() {
			return fmt.Errorf("pgembed: %s ended too early: %w%s", program, cmp.Or(p.err, errors.New("exit status 0")), tail(p.output(path)))
		}
		p.signal(syscall.SIGTERM)
		hopeless := time.NewTimer(immediateTimeout)
		defer hopeless.Stop()
		select {
		case <-p.done:
		case <-hopeless.C:
			killGroup(p.pid)
			<-p.done
		}
		return nil
	}, nil
}

// shutdown ends the server in the order fast, immediate, killed.
func (c *Cluster) shutdown(ctx context.Context) error {
	p := c.current()
	if !p.running() {
		return nil
	}
	patience, cancel := context.WithTimeout(ctx, c.opts.StopTimeout)
	defer cancel()
	p.signal(syscall.SIGINT)
	select {
	case <-p.done:
		c.opts.Logger.Info("postgres stopped", "dir", c.dir, "pid", p.pid)
		return nil
	case <-patience.Done():
	}
	p.signal(syscall.SIGQUIT)
	hopeless := time.NewTimer(immediateTimeout)
	defer hopeless.Stop()
	select {
	case <-p.done:
	case <-hopeless.C:
		c.killAll(p)
	}
	c.opts.Logger.Warn("postgres stopped without a checkpoint", "dir", c.dir, "pid", p.pid)
	return fmt.Errorf("pgembed: stop %s: %w; stopped without a checkpoint", c.dir, patience.Err())
}

// close gives the folder up, and removes it if it is a temporary one.
func (c *Cluster) close() error {
	if c.lock == nil {
		return nil
	}
	var err error
	if c.temporary {
		removeSharedMemory(c.data())
		err = os.RemoveAll(c.dir)
	}
	_ = unlock(c.lock)
	c.lock = nil
	return err
}
