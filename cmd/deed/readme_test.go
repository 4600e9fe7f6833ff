package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/pgtest"
)

// blocks returns the fenced blocks of a language.
func blocks(text, language string) []string {
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// Everything that the README shows is executed as it stands, but for the
// database's address, the receiver's port and where deed is built. Nothing
// is there that its steps do not start, but a deed dev that has its address.
// Its first block, make demo and make test, is what CI and e2e/demo run.
func TestREADME(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if n := strings.Count(text, "\n"); n >= 200 {
		t.Errorf("README.md has %d lines; it should have under 200", n)
	}
	shell, yaml, code, sql := blocks(text, "sh"), blocks(text, "yaml"), blocks(text, "go"), blocks(text, "sql")
	if len(shell) != 3 || len(yaml) != 1 || len(code) != 1 || len(sql) != 1 {
		t.Fatalf("README.md has %d, %d, %d and %d blocks of sh, yaml, go and sql", len(shell), len(yaml), len(code), len(sql))
	}
	if !strings.HasPrefix(shell[0], "make demo") || !strings.Contains(shell[0], "\nmake test") {
		t.Error("README.md does not open with its two commands")
	}

	db := pgtest.Bare(t)
	far := freeAddress(t)
	if dev, err := net.Listen("tcp", defaultListen); err == nil { // or somebody else has it
		t.Cleanup(func() { _ = dev.Close() })
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "deed"), ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(yaml[0], "127.0.0.1:9000", far, 1)
	if err := os.WriteFile(filepath.Join(dir, "deed.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(script string) string {
		t.Helper()
		for _, r := range [][2]string{
			{"make build && export PATH=$PWD/bin:$PATH", "true"},
			{"postgres://localhost/shop", "'" + db.URL(pgtest.Owner) + "'"},
			{"127.0.0.1:9000", far},
		} {
			script = strings.Replace(script, r[0], r[1], 1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-euc", script)
		cmd.Dir = dir
		cmd.WaitDelay = time.Minute // what the script has told to end may take so long

		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it starts ends with it
		end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.Cancel = end
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "DEED_DATABASE_URL="+db.URL(pgtest.Owner))
		out, err := cmd.CombinedOutput()
		_ = end()
		if err != nil {
			t.Fatalf("%s\n%v\n%s", script, err, out)
		}
		return string(out)
	}
	if out := run(shell[1]); !strings.Contains(out, "published 20000, repeated 0, rejected 0") {
		t.Errorf("the first commands printed\n%s", out)
	}
	if out := run(shell[2]); !regexp.MustCompile(`  204  orders  .*{"order":42}\n`).MatchString(out) {
		t.Errorf("the receiver did not get the order:\n%s", out)
	}
	db.Exec(t, pgtest.Owner, strings.TrimSuffix(strings.TrimSpace(sql[0]), ";"))

	db.Exec(t, pgtest.Owner, `create table public.orders (id int primary key)`)
	if out := runGo(t, root, code[0], db.URL(pgtest.Owner)); !strings.Contains(out, "order 44 attempt 1") {
		t.Errorf("the Go example printed\n%s", out)
	}
}

// freeAddress returns an address of this machine that nobody has. Its port is below those
// that are given to who asks for any, and to connections: else another test might have it
// before it is used, or while whoever listens there is started anew.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(22_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// runGo compiles the README's package in the module, beside a main that places
// an order and works until it has been handled.
func runGo(t *testing.T, root, code, url string) string {
	t.Helper()
	const program = `package main

import (
	"context"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/readme"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Args[1])
	if err == nil {
		_, err = pool.Exec(ctx, "select 1")
	}
	until := func(sql string) {
		for is := false; !is && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if err := pool.QueryRow(ctx, sql).Scan(&is); err != nil {
				println(err.Error())
			}
		}
	}
	placeOne := func() {
		// The topic has a subscription already, so this one begins now.
		until("select exists (select from deed.subscriptions where topic = 'orders' and name = 'handler')")
		if err := shop.PlaceOrder(ctx, pool, 44); err != nil {
			println(err.Error())
		}
		until("select not exists (select from deed.pending p join deed.subscriptions s on s.id = p.subscription where s.topic = 'orders' and s.name = 'handler')")
		cancel()
	}
	if err == nil {
		go placeOne()
		err = shop.Work(ctx, pool)
	}
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
}
`
	dir := t.TempDir()
	overlay := `{"Replace": {`
	for i, f := range []struct{ path, text string }{{"internal/readme/shop.go", code}, {"internal/readme/run/main.go", program}} {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(file, []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			overlay += ", "
		}
		overlay += fmt.Sprintf("%q: %q", filepath.Join(root, f.path), file)
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, []byte(overlay+"}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "shop")
	build := exec.CommandContext(context.Background(), "go", "build", "-overlay", overlayFile, "-o", binary, "./internal/readme/run")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	out, err := exec.Command(binary, url+"&search_path=public").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
