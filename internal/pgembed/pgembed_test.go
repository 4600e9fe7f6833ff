//go:build unix

package pgembed

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// ownerOf makes the test binary start the cluster of a folder and hold it.
const ownerOf = "DEED_PGEMBED_TEST_OWNER_OF"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerOf); dir != "" {
		c, err := Start(context.Background(), Options{Dir: dir, Unsafe: true})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(c.PID())
		select {}
	}
	code := m.Run()
	if code == 0 {
		// The driver gives a connection that was cut off 15 seconds.
		ended := time.Now().Add(20 * time.Second)
		err := goleak.Find()
		for err != nil && time.Now().Before(ended) {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// folder returns a folder for a cluster, reachable for the server's account.
func folder(t *testing.T) string {
	t.Helper()
	a, err := serverAccount("")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := temporaryFolder(a, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "a b") // the address must stand a space
}

// deadline is of one step, which on a busy machine, with others' initdb beside it, takes
// long.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, opts Options) *Cluster {
	t.Helper()
	opts.Unsafe = true
	c, err := Start(deadline(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if left := serverProcesses(c.data()); len(left) > 0 {
			t.Errorf("processes %v of the server are left", left)
		}
	})
	return c
}

func stop(t *testing.T, c *Cluster) {
	t.Helper()
	if err := c.Stop(deadline(t)); err != nil {
		t.Fatal(err)
	}
}

func query(t *testing.T, c *Cluster, sql string) string {
	t.Helper()
	ctx := deadline(t)
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var answer string
	if err := conn.QueryRow(ctx, sql).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

// remember stores a value that must survive.
func remember(t *testing.T, c *Cluster) {
	t.Helper()
	ctx := deadline(t)
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `create table kept as select 'kept' as word`); err != nil {
		t.Fatal(err)
	}
}

func wantKept(t *testing.T, c *Cluster) {
	t.Helper()
	if got := query(t, c, `select word from kept`); got != "kept" {
		t.Errorf("got %q, want the row of before", got)
	}
}

func TestCluster_KeepsItsDataAcrossOwners(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	c := start(t, Options{Dir: dir, Settings: map[string]string{"max_connections": "17"}})
	for sql, want := range map[string]string{
		`select current_user::text`:             "postgres",
		`show listen_addresses`:                 "",
		`show max_connections`:                  "17",
		`show fsync`:                            "off",
		`show server_encoding`:                  "UTF8",
		`select current_setting('lc_messages')`: locale(),
	} {
		if got := query(t, c, sql); got != want {
			t.Errorf("%s: got %q, want %q", sql, got, want)
		}
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder's mode is %v, %v; want 0700", info.Mode(), err)
	}
	remember(t, c)
	pid, done := c.PID(), c.Done()
	stop(t, c)
	<-done
	if c.PID() != 0 {
		t.Errorf("a stopped server has the pid %d", c.PID())
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "postmaster.pid")); err == nil {
		t.Error("the server left its pid file: it was not a clean stop")
	}

	c = start(t, Options{Dir: dir})
	wantKept(t, c)
	if c.PID() == pid {
		t.Errorf("pid %d twice", pid)
	}
}

func TestCluster_KillThenRestartRecovers(t *testing.T) {
	t.Parallel()
	c := start(t, Options{Dir: folder(t)})
	remember(t, c)
	url, done := c.URL("postgres"), c.Done()
	c.Kill()
	select {
	case <-done:
	default:
		t.Error("Done is open after Kill")
	}
	if left := serverProcesses(c.data()); len(left) > 0 {
		t.Errorf("processes %v survived Kill", left)
	}
	if err := ping(deadline(t), url); err == nil {
		t.Error("a killed server answers")
	}
	if err := c.Restart(deadline(t)); err != nil {
		t.Fatal(err)
	}
	wantKept(t, c)
	if got := c.URL("postgres"); got != url {
		t.Errorf("the address changed from %s to %s", url, got)
	}
	if err := c.Restart(deadline(t)); err != nil {
		t.Fatal(err)
	}
	wantKept(t, c)
}

func TestCluster_KillThenANewOwnerRecovers(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	c := start(t, Options{Dir: dir})
	remember(t, c)
	c.Kill()
	stop(t, c)
	wantKept(t, start(t, Options{Dir: dir}))
}

// A child that another goroutine has forked has the lock's file, too, until it
// becomes its program; the folder is free all the same.
func TestCluster_StopGivesTheFolderBackBesideAFork(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	c := start(t, Options{Dir: dir})
	inherited, err := syscall.Dup(int(c.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	stop(t, c)
	start(t, Options{Dir: dir})
}

func TestCluster_OnLoopback(t *testing.T) {
	t.Parallel()
	c := start(t, Options{Dir: folder(t), TCP: true})
	remember(t, c)
	if got := query(t, c, `show unix_socket_directories`); got != "" {
		t.Errorf("it also listens in %q", got)
	}
	if got := query(t, c, `show listen_addresses`); got != "127.0.0.1" {
		t.Errorf("it listens on %q", got)
	}
	strangers := strings.Replace(c.URL("postgres"), c.password, "guess", 1)
	if err := ping(deadline(t), strangers); err == nil {
		t.Error("it took a wrong password")
	}
	port := c.Port()
	c.Kill()
	if err := c.Restart(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if c.Port() != port {
		t.Errorf("the port changed from %d to %d", port, c.Port())
	}
	wantKept(t, c)
}

func TestCluster_LongPathMeansLoopback(t *testing.T) {
	t.Parallel()
	c := start(t, Options{Dir: filepath.Join(folder(t), strings.Repeat("long", 30))})
	if !strings.Contains(c.URL("postgres"), "127.0.0.1") {
		t.Errorf("got %s, want a loopback port", c.URL("postgres"))
	}
}

func TestCluster_ZeroOptionsLeaveNothing(t *testing.T) {
	t.Parallel()
	c := start(t, Options{})
	query(t, c, `select version()`)
	c.Kill()
	stop(t, c)
	if _, err := os.Stat(c.Dir()); err == nil {
		t.Errorf("%s is still there", c.Dir())
	}
	if err := c.Restart(deadline(t)); err == nil {
		t.Error("a stopped cluster restarted")
	}
	stop(t, c)
}

func TestStart_SweepsTheTemporaryFoldersOfTheDead(t *testing.T) {
	t.Parallel()
	parent := filepath.Dir(folder(t))
	long := time.Now().Add(-time.Hour)
	for name, age := range map[string]time.Time{"dead": long, "young": time.Now(), "held": long} {
		dir := filepath.Join(parent, temporary+name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := os.Create(filepath.Join(dir, lockFile))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if name == "held" {
			if err := tryLock(lock); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(lock.Name(), age, age); err != nil {
			t.Fatal(err)
		}
	}
	sweep(parent)
	for name, want := range map[string]bool{"dead": false, "young": true, "held": true} {
		if _, err := os.Stat(filepath.Join(parent, temporary+name)); (err == nil) != want {
			t.Errorf("%s: there: %t, want %t", name, err == nil, want)
		}
	}
}

// A pid file may name a process that has nothing to do with PostgreSQL: the
// number was given to another one since the crash.
func TestStart_SurvivesAStalePidFile(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	c := start(t, Options{Dir: dir})
	remember(t, c)
	c.Kill()
	stop(t, c)

	foreign := exec.Command("sleep", "600")
	foreign.SysProcAttr = c.account.attr() // the server may signal only its own user's
	foreign.Dir = "/"
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = foreign.Process.Kill()
		_ = foreign.Wait()
	})
	text := fmt.Sprintf("%d\n%s\n1700000000\n5432\n%s\n\n  1234567 65535\nready   \n", foreign.Process.Pid, c.data(), dir)
	for _, path := range []string{filepath.Join(c.data(), "postmaster.pid"), c.socket() + ".lock"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.account.give(path); err != nil {
			t.Fatal(err)
		}
	}
	wantKept(t, start(t, Options{Dir: dir}))
	if err := foreign.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the foreign process was harmed: %v", err)
	}
}

func TestStart_RemakesAHalfMadeCluster(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	half := filepath.Join(dir, newData+"123")
	if err := os.MkdirAll(filepath.Join(half, "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(half, "PG_VERSION"), filepath.Join(dir, lockFile)} {
		if err := os.WriteFile(path, []byte("15\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	query(t, start(t, Options{Dir: dir}), `select version()`)
	if _, err := os.Stat(half); err == nil {
		t.Error("the half-made cluster is still there")
	}
}

// ownerProcess runs an owner of dir and returns it and its server's pid.
func ownerProcess(t *testing.T, dir string) (*exec.Cmd, int) {
	t.Helper()
	cmd, out := ownerCommand(t, dir)
	line, _ := bufio.NewReader(out).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the owner says %q", line)
	}
	return cmd, pid
}

func ownerCommand(t *testing.T, dir string) (*exec.Cmd, *os.File) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), ownerOf+"="+dir)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		r.Close()
	})
	return cmd, r
}

func TestStart_AfterItsOwnerWasKilled(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	owner, pid := ownerProcess(t, dir)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	c := start(t, Options{Dir: dir})
	if c.PID() == pid {
		t.Error("the old server was taken over")
	}
	if got := serverProcesses(c.data()); len(got) == 0 || got[0] != c.PID() {
		t.Errorf("processes %v serve the folder, want ours, %d, first", got, c.PID())
	}
	if syscall.Kill(pid, 0) == nil {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil {
			t.Errorf("the old server, %d, still runs", pid)
		}
	}
}

// A server that nothing told of its owner's death: where the system cannot, or
// when it was frozen at that moment.
func TestStart_StopsAnOrphan(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	c := start(t, Options{Dir: dir})
	remember(t, c)
	// Give the folder up as the death of the owner does, the server running on.
	_ = unlock(c.lock)
	c.lock = nil
	successor := start(t, Options{Dir: dir})
	wantKept(t, successor)
	if c.PID() != 0 {
		t.Errorf("the orphan %d runs on", c.PID())
	}
}

func TestStart_AfterItsOwnerWasKilledInInitdb(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	owner, _ := ownerCommand(t, dir)
	// The half-made folder appears a moment before initdb starts.
	look, vain := time.NewTicker(time.Millisecond), deadline(t)
	defer look.Stop()
	for {
		if half, _ := filepath.Glob(filepath.Join(dir, newData+"*", "PG_VERSION")); len(half) > 0 {
			break
		}
		select {
		case <-look.C:
		case <-vain.Done():
			t.Fatal("the owner makes no cluster")
		}
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	query(t, start(t, Options{Dir: dir}), `select version()`)
	if half, _ := filepath.Glob(filepath.Join(dir, newData+"*")); len(half) > 0 {
		t.Errorf("%v is left", half)
	}
}

func TestStart_ErrSecondOwner(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	c := start(t, Options{Dir: dir})
	_, err := Start(deadline(t), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "in use by process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v, want a refusal that names the owner", err)
	}
	query(t, c, `select version()`)
}

func TestStart_ErrSaysWhatTheServerSaid(t *testing.T) {
	t.Parallel()
	_, err := Start(deadline(t), Options{Unsafe: true, Settings: map[string]string{"shared_buffers": "plenty"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers": "plenty"`) {
		t.Errorf("got %v, want the server's own words", err)
	}
}

func TestStart_ErrOptions(t *testing.T) {
	t.Parallel()
	_, err := Start(deadline(t), Options{Port: 70000, StopTimeout: -1, Settings: map[string]string{"port": "1", "listen_addresses": "*"}})
	for _, want := range []string{"port 70000", "stop timeout -1ns", "setting port", "setting listen_addresses"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestStart_ErrForeignFolder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"letters.txt", "data"} {
		dir := folder(t)
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := Start(deadline(t), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: the folder was touched: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestStart_ErrClosedParent(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(folder(t))
	a, err := serverAccount("")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := a.closed(filepath.Join(dir, "a b")); a.other() && got != dir {
		t.Errorf("closed: got %q, want %q", got, dir)
	}
	if !a.other() {
		return // we pass our own folders
	}
	if _, err := Start(deadline(t), Options{Dir: filepath.Join(dir, "a b")}); err == nil || !strings.Contains(err.Error(), "the folder "+dir+" is closed") {
		t.Errorf("got %v, want the folder's name", err)
	}
}

func TestStart_ErrPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Start(deadline(t), Options{Unsafe: true, TCP: true, Port: l.Addr().(*net.TCPAddr).Port})
	if err == nil || !strings.Contains(err.Error(), "Address already in use") {
		t.Errorf("got %v", err)
	}
}

func TestStart_ErrContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir := folder(t)
	if _, err := Start(ctx, Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("got %v", err)
	}
	query(t, start(t, Options{Dir: dir}), `select version()`)
}

// A backend that cannot be ended nicely holds a fast shutdown up.
func TestStop_EscalatesAtItsTimeout(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	c, err := Start(deadline(t), Options{Dir: dir, Unsafe: true, StopTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(deadline(t), c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	freeze(int(conn.PgConn().PID()))
	if err := c.Stop(deadline(t)); err == nil || !strings.Contains(err.Error(), "without a checkpoint") {
		t.Errorf("got %v, want to be told", err)
	}
	if left := serverProcesses(c.data()); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	_ = conn.Close(deadline(t))
	query(t, start(t, Options{Dir: dir}), `select version()`)
}
