package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// steps are the commands of a page: of each fenced block the lines that begin with
// "$ ", without it and what is said of them.
func steps(text string) (all [][]string) {
	fenced, open := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			open = fenced && line == "```"
			if open {
				all = append(all, nil)
			}
			continue
		}
		if command, ok := strings.CutPrefix(line, "$ "); ok && open {
			command, _, _ = strings.Cut(command, "  #")
			all[len(all)-1] = append(all[len(all)-1], strings.TrimSpace(command))
		}
	}
	return all
}

// The tutorial's commands do what it says, from deed dev on, as they are printed but
// for the receiver's port and the folder of the data.
func TestTutorial(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	found, files := steps(string(raw)), blocks(string(raw), "yaml")
	if len(found) != 6 || len(files) != 1 {
		t.Fatalf("the tutorial has %d blocks of commands and %d files, want 6 and 1: go through it here, too", len(found), len(files))
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // as root the server is another user
		t.Fatal(err)
	}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	receiver := freeAddress(t)
	config := filepath.Join(dir, "deed.yaml")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(files[0], "127.0.0.1:9000", receiver)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}

	// 1. A server and the schema.
	if len(found[0]) != 2 || found[0][0] != "deed dev" || !strings.HasPrefix(found[0][1], "export DEED_DATABASE_URL=") {
		t.Fatalf("it begins with %q", found[0])
	}
	dev := startWith(t, []string{"DEED_DATA=" + filepath.Join(dir, "data")}, "", "dev")
	url := dev.prints(&dev.out, `export DEED_DATABASE_URL='([^']+)'\n`)
	run := func(line string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-euc", line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+command(t)+":"+os.Getenv("PATH"), "DEED_DATABASE_URL="+url)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	// background starts what a block ends with, after what it exports.
	background := func(block []string, more ...string) *process {
		t.Helper()
		env, last := block[:len(block)-1], block[len(block)-1]
		var variables []string
		for _, line := range env {
			variables = append(variables, strings.TrimPrefix(line, "export "))
		}
		last = strings.ReplaceAll(last, "deed.yaml", config)
		args := strings.Fields(last)[1:]
		for i, a := range args {
			if a == "''" {
				args[i] = ""
			}
		}
		return startWith(t, variables, url, append(args, more...)...)
	}

	// 2. Publish.
	if out := run(found[1][0]); !strings.Contains(out, "seq 2") {
		t.Errorf("publishing an order printed %s", out)
	}
	if out := run(found[1][1]); !strings.Contains(out, "published 20000, ") {
		t.Errorf("publishing a file printed %s", out)
	}
	if out := run(found[1][1]); !strings.Contains(out, "published 0, repeated 20000") {
		t.Errorf("publishing it again printed %s", out)
	}
	dev.prints(&dev.out, `  orders  key=42 `)

	// 3. A receiver and a relay.
	at := []string{receiver}
	listening := background(found[2], at...)
	listening.prints(&listening.out, `(?m)http://`)
	relay := background(found[3])
	listening.prints(&listening.out, `  orders  .*{"order":42}`)

	// 4. When it fails.
	listening.signal(os.Interrupt)
	_ = listening.wait()
	run(strings.ReplaceAll(found[1][0], "42", "43"))
	relay.prints(&relay.errOut, `the sink is unavailable`)
	listening = background(found[2], at...)
	listening.prints(&listening.out, `  orders  .*{"order":43}`)
	listening.signal(os.Interrupt)
	_ = listening.wait()
	failing := regexp.MustCompile("`(deed listen [^`]*--fail 500)`").FindStringSubmatch(string(raw))
	if failing == nil {
		t.Fatal("it does not say how to let the receiver fail")
	}
	listening = background([]string{found[2][0], failing[1]}, at...)
	listening.prints(&listening.out, `(?m)http://`)
	run(strings.ReplaceAll(found[1][0], "42", "44"))
	dead := func() string { return run(found[4][1]) }
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(dead(), " orders "); <-time.After(500 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the order is not dead:\n%s", dead())
		}
	}
	for i, want := range []string{`(?m)^orders +hook +`, `(?m) orders +hook +.*500`, `(?m)^topic +orders`, `(?m)^1 message redriven`} {
		if out := run(found[4][i]); !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s printed\n%s\nwant %s", found[4][i], out, want)
		}
	}

	// 5. Prove it.
	if out := run(found[5][0]); !strings.HasPrefix(out, "no violations") {
		t.Errorf("%s printed\n%s", found[5][0], out)
	}
}
