// Package harness runs a program that is meant to crash, and shows that it
// crashed where it was told to.
package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A Program is a built victim.
type Program struct{ path string }

// Build builds the package with its crash points armed, once for all tests that
// use it at the same time; the file is removed at the end of the last of them.
func Build(t testing.TB, pkg string, flags ...string) Program {
	t.Helper()
	args := append(append([]string{"build", "-tags", "deedcrash"}, flags...), pkg)
	b := programs.use(strings.Join(args, "\x00"))
	t.Cleanup(func() {
		if err := programs.leave(b); err != nil {
			t.Error(err)
		}
	})
	b.once.Do(func() { b.run(args) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return Program{filepath.Join(b.dir, "victim")}
}

// programs are those that tests use now.
var programs builds

type builds struct {
	mu    sync.Mutex
	built map[string]*build // by their arguments
}

type build struct {
	name  string
	users int // guarded by the mu of builds

	once sync.Once
	dir  string
	err  error
}

func (bs *builds) use(name string) *build {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.built == nil {
		bs.built = map[string]*build{}
	}
	b := bs.built[name]
	if b == nil {
		b = &build{name: name}
		bs.built[name] = b
	}
	b.users++
	return b
}

func (bs *builds) leave(b *build) error {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if b.users--; b.users > 0 {
		return nil
	}
	delete(bs.built, b.name)
	return os.RemoveAll(b.dir)
}

func (b *build) run(args []string) {
	if b.dir, b.err = os.MkdirTemp("", "deed-victim-"); b.err != nil {
		return
	}
	args = slices.Insert(args, 1, "-o", filepath.Join(b.dir, "victim"))
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		b.err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
}

// Skewed returns the build flag for a program whose clock is off by the
// duration in its environment's DEED_CLOCK_SKEW: the standard library's
// time.Now, overlaid.
func Skewed(t testing.TB) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const from = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if !bytes.Contains(text, []byte(from)) {
		t.Fatalf("%s no longer begins time.Now with %q", source, from)
	}
	text = bytes.Replace(text, []byte(from), []byte(from+"\tsec += clockSkew()\n"), 1)
	text = append(text, []byte(`
var skewSeconds int64
var skewRead bool

func clockSkew() int64 {
	if !skewRead {
		skewRead = true
		if s, ok := skewEnv(); ok {
			if d, err := ParseDuration(s); err == nil {
				skewSeconds = int64(d / Second)
			}
		}
	}
	return skewSeconds
}
`)...)
	dir := t.TempDir()
	env := "package time\n\nimport \"syscall\"\n\nfunc skewEnv() (string, bool) { return syscall.Getenv(\"DEED_CLOCK_SKEW\") }\n"
	overlay := fmt.Sprintf(`{"Replace": {%q: %q, %q: %q}}`,
		source, filepath.Join(dir, "time.go"),
		filepath.Join(filepath.Dir(source), "zskew.go"), filepath.Join(dir, "zskew.go"))
	for name, content := range map[string]string{"time.go": string(text), "zskew.go": env, "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return "-overlay=" + filepath.Join(dir, "overlay.json")
}

// A Victim is a running program.
type Victim struct {
	cmd    *exec.Cmd
	marker string
	done   chan struct{}
	err    error // set before done is closed

	mu     sync.Mutex
	output bytes.Buffer // guarded by mu
}

// Start runs the program with env added to this process's environment. point,
// unless empty, is the crash point, as "name" or "name:n" for the n-th time.
// The victim is killed at the end of the test if it still runs.
func (p Program) Start(t testing.TB, point string, env ...string) *Victim {
	t.Helper()
	v := &Victim{
		cmd:    exec.Command(p.path),
		marker: filepath.Join(t.TempDir(), "reached"),
		done:   make(chan struct{}),
	}
	v.cmd.Env = append(append(os.Environ(), "DEED_CRASH_POINT="+point, "DEED_CRASH_FILE="+v.marker), env...)
	v.cmd.Stdout, v.cmd.Stderr = v, v
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		v.err = v.cmd.Wait()
		close(v.done)
	}()
	t.Cleanup(func() {
		v.Kill()
		if t.Failed() {
			t.Logf("the victim's output:\n%s", v.Output())
		}
	})
	return v
}

// Write collects the victim's output.
func (v *Victim) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.output.Write(b)
}

// Output returns what the victim has printed so far.
func (v *Victim) Output() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.output.String()
}

// Wait waits for the victim to end and returns what it ended with.
func (v *Victim) Wait(t testing.TB, limit time.Duration) error {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-v.done:
		return v.err
	case <-timer.C:
		t.Fatalf("the victim still runs after %s:\n%s", limit, v.Output())
		return nil
	}
}

// Crashed waits until the victim has killed itself at its crash point, and
// fails the test if it ended in any other way.
func (v *Victim) Crashed(t testing.TB, point string, limit time.Duration) {
	t.Helper()
	err := v.Wait(t, limit)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the victim ended with %v, not by its own SIGKILL:\n%s", err, v.Output())
	}
	name, _, _ := strings.Cut(point, ":")
	if got, err := os.ReadFile(v.marker); err != nil || string(got) != name {
		t.Fatalf("the victim did not reach %q: %q, %v", name, got, err)
	}
}

// Running reports whether the victim has not ended.
func (v *Victim) Running() bool {
	select {
	case <-v.done:
		return false
	default:
		return true
	}
}

// PID is the victim's process.
func (v *Victim) PID() int { return v.cmd.Process.Pid }

// Kill ends the victim with SIGKILL and waits until it is gone.
func (v *Victim) Kill() {
	_ = v.cmd.Process.Kill()
	<-v.done
}

// Stop asks the victim to stop with SIGTERM, once it has said that it runs, or half a
// minute has passed: one that is stopped while it starts ends with an error.
func (v *Victim) Stop() {
	for end := time.Now().Add(30 * time.Second); v.Running() && time.Now().Before(end) && !strings.Contains(v.Output(), "victim: runs\n"); {
		time.Sleep(time.Millisecond)
	}
	_ = v.cmd.Process.Signal(syscall.SIGTERM)
}

// Freeze stops the victim as a debugger or an overcommitted host would, and
// returns when none of its threads runs any more: the signal is one thread's to
// see, and until that one has a processor the others go on.
func (v *Victim) Freeze() {
	_ = v.cmd.Process.Signal(syscall.SIGSTOP)
	for v.Running() && !isStopped(v.PID()) {
		time.Sleep(time.Millisecond)
	}
}

// isStopped reads the states of the process's threads; where the system does not
// tell, it takes the signal at its word.
func isStopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		if strings.IndexAny(state, "TtZX") != 0 {
			return false
		}
	}
	return true
}

// Thaw lets a frozen victim go on.
func (v *Victim) Thaw() { _ = v.cmd.Process.Signal(syscall.SIGCONT) }
