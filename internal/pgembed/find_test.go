package pgembed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fakeInstall writes programs that answer --version as the given version does.
func fakeInstall(t *testing.T, dir, version string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"postgres", "initdb"} {
		script := fmt.Sprintf("#!/bin/sh\necho '%s (PostgreSQL) %s'\n", name, version)
		writeProgram(t, filepath.Join(dir, name), script)
	}
}

func writeProgram(t *testing.T, path, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	// A test that starts a program meanwhile would inherit the open file, and
	// running it would fail: "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// machine is a finder that sees an empty machine in a temporary folder.
func machine(t *testing.T, env map[string]string) finder {
	t.Helper()
	return finder{root: t.TempDir(), os: "linux", getenv: func(name string) string { return env[name] }}
}

func TestFind(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		versions map[string]string // folder: version
		path     string
		want     string
		major    int
	}{
		"Debian": {map[string]string{"/usr/lib/postgresql/15/bin": "15.3"}, "", "/usr/lib/postgresql/15/bin", 15},
		"the newest of several, as numbers": {map[string]string{
			"/usr/lib/postgresql/9.6/bin": "9.6.24", "/usr/lib/postgresql/16/bin": "16.1", "/usr/lib/postgresql/15/bin": "15.3",
		}, "", "/usr/lib/postgresql/16/bin", 16},
		"the newest of all places": {map[string]string{
			"/bin": "15.1", "/usr/pgsql-18/bin": "18.0", "/usr/local/pgsql/bin": "17.2",
		}, "/bin", "/usr/pgsql-18/bin", 18},
		"PATH among equals": {map[string]string{"/bin": "17.5", "/usr/lib/postgresql/17/bin": "17.6"}, "/bin", "/bin", 17},
		"Homebrew":          {map[string]string{"/opt/homebrew/opt/postgresql@17/bin": "17.5 (Homebrew)"}, "", "/opt/homebrew/opt/postgresql@17/bin", 17},
		"a beta":            {map[string]string{"/usr/local/pgsql/bin": "19beta2"}, "", "/usr/local/pgsql/bin", 19},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{}
			f := machine(t, env)
			env["PATH"] = f.root + tt.path
			for dir, version := range tt.versions {
				fakeInstall(t, f.root+dir, version)
			}
			got, err := f.find(0)
			if err != nil {
				t.Fatal(err)
			}
			want := Binaries{f.root + tt.want + "/postgres", f.root + tt.want + "/initdb", tt.major}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestFind_AsksPgConfig(t *testing.T) {
	t.Parallel()
	env := map[string]string{}
	f := machine(t, env)
	env["PATH"] = f.root + "/bin"
	fakeInstall(t, f.root+"/strange/place", "16.2")
	writeProgram(t, f.root+"/bin/pg_config", "#!/bin/sh\necho "+f.root+"/strange/place\n")
	got, err := f.find(0)
	if err != nil || got.Major != 16 || filepath.Dir(got.Initdb) != f.root+"/strange/place" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFind_FollowsALoneLink(t *testing.T) {
	t.Parallel()
	env := map[string]string{}
	f := machine(t, env)
	env["PATH"] = f.root + "/bin"
	fakeInstall(t, f.root+"/strange/place", "16.2")
	if err := os.Mkdir(f.root+"/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(f.root+"/strange/place/postgres", f.root+"/bin/postgres"); err != nil {
		t.Fatal(err)
	}
	if got, err := f.find(0); err != nil || got.Major != 16 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFind_OfTheDataFoldersVersion(t *testing.T) {
	t.Parallel()
	f := machine(t, nil)
	fakeInstall(t, f.root+"/usr/lib/postgresql/15/bin", "15.3")
	fakeInstall(t, f.root+"/usr/lib/postgresql/17/bin", "17.1")
	if got, err := f.find(15); err != nil || got.Major != 15 {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := f.find(16); err == nil || !strings.Contains(err.Error(), "PostgreSQL 16, which made the data folder") {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFind_ErrNothing(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		os, file string
		want     string
	}{
		"Debian":        {"linux", "/etc/debian_version", "apt-get install postgresql"},
		"macOS":         {"darwin", "", "brew install postgresql@17"},
		"anything else": {"linux", "", "install PostgreSQL 15 or newer"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := machine(t, nil)
			f.os = tt.os
			if tt.file != "" {
				writeProgram(t, f.root+tt.file, "12.0\n")
			}
			_, err := f.find(0)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "DEED_PG_BIN") {
				t.Fatalf("got %v, want %q and DEED_PG_BIN in it", err, tt.want)
			}
			if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), ". ") {
				t.Errorf("more than a sentence: %q", err)
			}
		})
	}
}

func TestFind_ErrTooOld(t *testing.T) {
	t.Parallel()
	f := machine(t, nil)
	fakeInstall(t, f.root+"/usr/lib/postgresql/13/bin", "13.9")
	fakeInstall(t, f.root+"/usr/lib/postgresql/14/bin", "14.2")
	_, err := f.find(0)
	if err == nil || !strings.Contains(err.Error(), "15 or newer (only 14)") {
		t.Errorf("got %v", err)
	}
}

func TestFind_ErrBadSetting(t *testing.T) {
	t.Parallel()
	env := map[string]string{}
	f := machine(t, env)
	fakeInstall(t, f.root+"/usr/lib/postgresql/17/bin", "17.2")
	fakeInstall(t, f.root+"/old", "14.2")
	writeProgram(t, f.root+"/half/postgres", "#!/bin/sh\necho '(PostgreSQL) 17.2'\n")
	writeProgram(t, f.root+"/mute/postgres", "#!/bin/sh\n")
	writeProgram(t, f.root+"/mute/initdb", "#!/bin/sh\n")
	for dir, want := range map[string]string{
		"/absent": "no program postgres",
		"/half":   "no program initdb",
		"/mute":   "names no version",
		"/old":    "15 or newer",
	} {
		env["DEED_PG_BIN"] = f.root + dir
		got, err := f.find(0)
		if err == nil || !strings.Contains(err.Error(), "DEED_PG_BIN") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v; want %q", dir, got, err, want)
		}
	}
	env["DEED_PG_BIN"] = f.root + "/usr/lib/postgresql/17/bin"
	if got, err := f.find(0); err != nil || got.Major != 17 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := f.find(16); err == nil {
		t.Error("a version that cannot run the data was accepted")
	}
}
