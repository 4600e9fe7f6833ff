// Package examples_test runs the workers in other languages against a database,
// as their users would.
package examples_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// python returns a Python that has psycopg.
func python(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(path, "-c", "import psycopg").Run() == nil {
			return path
		}
	}
	t.Fatal("no Python has psycopg 3; run: .ci/setup python3-psycopg")
	return ""
}

// worker is a way to start one of the examples, whose handler prints a line that
// ends in the content, and refuses what has "fail".
func worker(t *testing.T, db *pgtest.DB, language, topic, subscription string, untilEmpty bool) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*pgtest.Patience) // the one in shell starts a hundred programs or two
	t.Cleanup(cancel)
	var cmd *exec.Cmd
	switch language {
	case "python":
		args := []string{filepath.Join("python", "worker.py"), topic, subscription}
		if untilEmpty {
			args = append(args, "--until-empty")
		}
		cmd = exec.CommandContext(ctx, python(t), args...)
	case "shell":
		cmd = exec.CommandContext(ctx, filepath.Join("shell", "worker.sh"), topic, subscription, "bash", "-c",
			`body=$(cat); case $body in *fail*) echo "this message asks to fail" >&2; exit 1;; esac; echo "$MESSAGE_ID $MESSAGE_TOPIC $body"`)
	}
	cmd.Env = append(os.Environ(), db.Env(t, pgtest.Worker)...)
	cmd.Env = append(cmd.Env, "PYTHONDONTWRITEBYTECODE=1")
	if untilEmpty {
		cmd.Env = append(cmd.Env, "UNTIL_EMPTY=1")
	}
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// numbers are the contents of the messages that a worker printed.
func numbers(out string) []string {
	var list []string
	for _, m := range regexp.MustCompile(`(?m) orders \{"n": (\d+)\}$`).FindAllStringSubmatch(out, -1) {
		list = append(list, m[1])
	}
	slices.Sort(list)
	return list
}

// Two of them share the work, each message is handled once, and what a handler
// refuses is tried again later, its error kept.
func TestWorkers(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"python", "shell"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			owner := db.Pool(pgtest.Owner)
			db.Exec(t, pgtest.Worker, `select deed.subscribe('orders', 'w')`)
			db.Exec(t, pgtest.App, `select deed.publish('orders', jsonb_build_object('n', n), p_key => E'k\n' || n) from generate_series(1, 30) n`)
			db.Exec(t, pgtest.App, `select deed.publish('orders', '{"fail": true}')`)
			outs := make(chan string, 2)
			for range 2 {
				cmd := worker(t, db, language, "orders", "w", true)
				go func() {
					out, err := cmd.CombinedOutput()
					if err != nil {
						t.Errorf("%v: %s", err, out)
					}
					outs <- string(out)
				}()
			}
			got := numbers(<-outs + <-outs)
			var want []string
			for n := range 30 {
				want = append(want, fmt.Sprint(n+1))
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("handled %v", got)
			}
			failed := pgtest.One[string](t, owner, `
				select count(*) || ' ' || bool_and(attempts > 0 and process_after is not null and claim is null) || ' ' || max(last_error) from deed.pending`)
			if !strings.HasPrefix(failed, "1 true ") || !strings.HasSuffix(failed, "this message asks to fail") {
				t.Errorf("left over: %s", failed)
			}
			if n := pgtest.One[int](t, owner, `select sum(finished) from deed.receipts where worker like $1 || ':%'`, language); n != 30 {
				t.Errorf("%d are finished by a worker of this language", n)
			}
		})
	}
}

// SIGTERM ends a worker between two messages, and nothing is lost: what it has in hand then is finished, and what it has claimed beside that is handled by the
// next one, each once. It has in hand what its handler cannot print, since nobody reads that.
func TestWorkers_Stop(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"python", "shell"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			owner := db.Pool(pgtest.Owner)
			db.Exec(t, pgtest.Worker, `select deed.subscribe('orders', 'w')`)
			db.Exec(t, pgtest.App, `select deed.publish('orders', jsonb_build_object('n', n, 'much', repeat('x', 300000))) from generate_series(1, 3) n`)
			cmd := worker(t, db, language, "orders", "w", false)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			begun := make([]byte, 1)
			if _, err := io.ReadFull(out, begun); err != nil {
				t.Fatal(err)
			}
			state := func() string {
				return pgtest.One[string](t, owner, `select (select coalesce(sum(finished), 0) from deed.receipts) || ' finished, ' || (select count(*) from deed.pending where claim is not null) || ' claimed'`)
			}
			want(t, "while it has one in hand", state(), "0 finished, 3 claimed")
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(out)
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("the worker ended with %v", err)
			}
			want(t, "when it has ended", state(), "1 finished, 2 claimed")
			db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = now() - interval '1 second'`)
			others, err := worker(t, db, language, "orders", "w", true).Output()
			if err != nil {
				t.Fatal(err)
			}
			want(t, "in the end", state(), "3 finished, 0 claimed")
			ids := regexp.MustCompile(`(?m)^(\S+) orders `).FindAllStringSubmatch(string(begun)+string(rest)+string(others), -1)
			if len(ids) != 3 || ids[0][1] == ids[1][1] || ids[0][1] == ids[2][1] || ids[1][1] == ids[2][1] {
				t.Errorf("%d were handled, want each once", len(ids))
			}
		})
	}
}

func want(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A database that is away is no empty queue: the worker ends, and says that it failed.
func TestWorkers_TheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"python", "shell"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			cmd := worker(t, pgtest.New(t), language, "orders", "w", true)
			cmd.Env = append(cmd.Env, "PGHOST=127.0.0.1", "PGPORT=1", "DATABASE_URL=") // where nobody listens
			if out, err := cmd.CombinedOutput(); err == nil {
				t.Errorf("it ended as if all were done: %s", out)
			}
		})
	}
}
