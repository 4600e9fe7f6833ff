// Package copies_test starts copies of an installation beside it: they write to
// nobody until somebody says that they may.
package copies_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = 2 * time.Minute

// A dump of production that is restored elsewhere is another cluster.
func TestHold_ADumpWritesToNobody(t *testing.T) {
	t.Parallel()
	production := pgtest.Private(t, pgembed.Options{})
	db := production.DB(t)
	other := pgtest.Private(t, pgembed.Options{})
	other.DB(t) // makes the roles, which a dump has not
	beside(t, db, "", func() string {
		if _, err := connect(t, other.URL("postgres")).Exec(t.Context(), `create database copied`); err != nil {
			t.Fatal(err)
		}
		dump := exec.CommandContext(t.Context(), program(t, "pg_dump"), production.URL(db.Name()))
		restore := exec.CommandContext(t.Context(), program(t, "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", other.URL("copied"))
		text, err := dump.Output()
		if err != nil {
			t.Fatal("pg_dump: ", err)
		}
		var said bytes.Buffer
		restore.Stdin, restore.Stderr = bytes.NewReader(text), &said
		if err := restore.Run(); err != nil {
			t.Fatalf("psql: %v: %s", err, said.String())
		}
		return other.URL("copied")
	})
}

// A copy of production's files has its system identifier, too: only the
// environment tells.
func TestHold_APhysicalCopyWritesToNobody(t *testing.T) {
	t.Parallel()
	parent, err := os.MkdirTemp("", "deed-copies-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) }) // after the servers
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	original, copied := filepath.Join(parent, "a"), filepath.Join(parent, "b")
	production := pgtest.Private(t, pgembed.Options{Dir: original})
	db := production.DB(t)
	beside(t, db, "staging", func() string {
		production.Kill() // a snapshot of the volume is no tidier
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", original, copied).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
		if err := os.Remove(filepath.Join(copied, "data", "postmaster.pid")); err != nil {
			t.Fatal(err)
		}
		if err := production.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		return pgtest.Private(t, pgembed.Options{Dir: copied}).URL(db.Name())
	})
}

// beside runs production, takes a copy of it while a message and a delivery are
// owed, and starts both; the copy in its own environment if it has one.
func beside(t *testing.T, db *pgtest.DB, environment string, copied func() string) {
	t.Helper()
	production, staging := receiver(t), receiver(t)
	bin := binary(t)
	home := start(t, bin, db.URL(pgtest.Worker), production, "production")
	publish(t, db)
	wait(t, "production to deliver", func() bool { return production.hits.Load() == 1 })
	home.stop()
	publish(t, db)
	_, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), delivery.Delivery{
		Channel: delivery.Webhook, Provider: "calls", Recipient: production.URL + "/delivery", Payload: json.RawMessage(`{"n":1}`), Key: delivery.NewKey("once"),
	})
	if err != nil {
		t.Fatal(err)
	}
	where := copied()

	if environment == "" {
		environment = "production"
	}
	other := start(t, bin, where, staging, environment)
	wait(t, "the copy to say that it is held", func() bool { return strings.Contains(other.ready(), "held") })
	start(t, bin, db.URL(pgtest.Worker), production, "production")
	wait(t, "production to deliver what it owes", func() bool { return production.hits.Load() == 3 })
	// Publishing goes on, and still nobody hears of it.
	conn := connect(t, where)
	if _, err := conn.Exec(t.Context(), `select deed.publish('orders', '{"n":3}')`); err != nil {
		t.Fatal(err)
	}
	if out := other.deed("status"); !strings.Contains(out, "held") {
		t.Errorf("status does not say that it is held: %s", out)
	}
	if got := other.ready(); !strings.Contains(got, "held") {
		t.Errorf("readyz: %s", got)
	}
	if got := other.get("metrics"); !strings.Contains(got, "\ndeed_process_held 1\n") {
		t.Errorf("the metrics do not say that it is held:\n%s", got)
	}
	if n, m := staging.hits.Load(), production.hits.Load(); n != 0 || m != 3 {
		t.Fatalf("the copy delivered %d messages, and production's receiver has %d calls, want 0 and 3", n, m)
	}
	var claims int
	row := conn.QueryRow(t.Context(), `select (select count(*) from deed.pending where claim is not null) + (select count(*) from deed.channel_outbox where claim is not null)`)
	if err := row.Scan(&claims); err != nil || claims != 0 {
		t.Errorf("%d claims in the copy, %v", claims, err)
	}

	if out := other.deed("adopt"); !strings.Contains(out, "held: ") {
		t.Errorf("adopt does not say what holds: %s", out)
	}
	other.deed("adopt", "--yes", "--reason", "a test")
	wait(t, "the adopted copy to deliver", func() bool { return staging.hits.Load() == 2 && production.hits.Load() == 4 })
	wait(t, "the copy to be ready", func() bool { return other.ready() == "200" })
	if got := other.get("metrics"); !strings.Contains(got, "\ndeed_process_held 0\n") {
		t.Errorf("the metrics still say that it is held:\n%s", got)
	}
}

// endpoint counts what it receives.
type endpoint struct {
	*httptest.Server
	hits atomic.Int64
}

func receiver(t *testing.T) *endpoint {
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		e.hits.Add(1)
	}))
	t.Cleanup(e.Close)
	return e
}

// relay is a running deed relay.
type relay struct {
	t       *testing.T
	bin     string
	file    string
	url     string
	address string
	cmd     *exec.Cmd
	log     *os.File
	ended   chan error
	once    sync.Once
}

// listening is what a relay logs.
var listening = regexp.MustCompile(`listening address=(\S+)\s`)

func start(t *testing.T, bin, url string, to *endpoint, environment string) *relay {
	t.Helper()
	dir := t.TempDir()
	r := &relay{t: t, bin: bin, file: filepath.Join(dir, "deed.yaml"), url: url, ended: make(chan error, 1)}
	if err := os.WriteFile(r.file, fmt.Appendf(nil, `environment: %s
topics:
  orders: {sink: hooks, from: beginning}
sinks:
  hooks: {type: webhook, url: %s/message, secret: env:HOOK_SECRET, allow_hosts: [127.0.0.1]}
channels:
  outbox: {enabled: true}
providers:
  calls: {type: webhook, secret: env:HOOK_SECRET, allow_hosts: [127.0.0.1]}
`, environment, to.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.Command(bin, "relay", "--config", r.file, "--listen", "127.0.0.1:0")
	r.cmd.Env = r.env()
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- r.cmd.Wait() }() // ends with the process
	t.Cleanup(r.stop)
	wait(t, "a relay to say where it listens", func() bool {
		text, _ := os.ReadFile(r.log.Name())
		if m := listening.FindSubmatch(text); m != nil {
			r.address = string(m[1])
		}
		return r.address != ""
	})
	return r
}

func (r *relay) env() []string {
	return append(os.Environ(), "DEED_DATABASE_URL="+r.url, "HOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
}

func (r *relay) stop() {
	r.once.Do(func() {
		_ = r.cmd.Process.Signal(os.Interrupt)
		select {
		case <-r.ended:
		case <-time.After(patience):
			_ = r.cmd.Process.Kill()
			r.t.Error("a relay did not stop")
		}
		if r.t.Failed() {
			text, _ := os.ReadFile(r.log.Name())
			r.t.Logf("relay: %s", text)
		}
		_ = r.log.Close()
	})
}

// ready is what /readyz says: 200, or why not.
func (r *relay) ready() string {
	text := r.get("readyz")
	if strings.HasPrefix(text, "200 ") {
		return "200"
	}
	return text
}

// get is the status and the text of a page; empty: there is no answer.
func (r *relay) get(page string) string {
	answer, err := http.Get("http://" + r.address + "/" + page)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.Status + " " + string(text)
}

// deed runs the program with the relay's configuration.
func (r *relay) deed(args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.bin, append(args, "--config", r.file)...)
	cmd.Env = r.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("deed %q: %v: %s", args, err, out)
	}
	return string(out)
}

// binary builds the program.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "deed")
	build := exec.Command("go", "build", "-o", path, "./cmd/deed")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// program is one of PostgreSQL's, of the version that the servers have.
func program(t *testing.T, name string) string {
	t.Helper()
	found, err := pgembed.Find()
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.EvalSymlinks(found.Postgres) // beside it in its own folder
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(filepath.Dir(path), name)
}

func publish(t *testing.T, db *pgtest.DB) {
	t.Helper()
	if _, err := deed.Publish(t.Context(), db.Pool(pgtest.App), deed.Message{Topic: "orders", Value: 1}); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if !pgtest.Wait(patience, cond) {
		t.Fatalf("waited %s for %s", patience, what)
	}
}
