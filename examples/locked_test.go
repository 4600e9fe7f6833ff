package examples_test

import (
	"context"
	"io"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/pgtest"
)

// What somebody keeps locked, as an operator's transaction that is left open does, holds up no other outcome and ends no
// worker: what is free again after a second is recorded then, and what stays locked is left to its lease. Each is handled once.
func TestWorkers_SomeAreLocked(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"python", "shell"} {
		for _, kept := range []bool{false, true} {
			t.Run(language+map[bool]string{false: ", for a second", true: ", kept"}[kept], func(t *testing.T) {
				t.Parallel()
				whileLocked(t, language, kept)
			})
		}
	}
}

// said is what a worker writes while others read it.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func whileLocked(t *testing.T, language string, kept bool) {
	ctx := context.Background()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	db.Exec(t, pgtest.Worker, `select deed.subscribe('orders', 'w')`)
	ids := pgtest.One[[]int64](t, db.Pool(pgtest.App), `
		select array_agg(deed.publish('orders', case
		  when n % 2 = 0 then jsonb_build_object('fail', n)
		  else jsonb_build_object('n', n) || case when n = 1 then jsonb_build_object('much', repeat('x', 300000)) else '{}' end end) order by n)
		from generate_series(1, 8) n`)
	cmd := worker(t, db, language, "orders", "w", false)
	told := &said{}
	cmd.Stderr = told
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	// It has the first in hand, which nobody reads, and has claimed all.
	begun := make([]byte, 1)
	if _, err := io.ReadFull(out, begun); err != nil {
		t.Fatal(err)
	}
	tx, err := owner.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	// One that will be done, and one that will fail.
	if n := pgtest.One[int](t, tx, `select count(*) from (select from deed.pending where id = any ($1) and claim is not null for update) l`, ids[2:4]); n != 2 {
		t.Fatalf("%d of 2 are claimed", n)
	}
	rest := make(chan string, 1)
	go func() {
		all, err := io.ReadAll(out)
		if err != nil {
			t.Error(err)
		}
		rest <- string(all)
	}()
	wait := func(what string, is func() bool) {
		t.Helper()
		if !pgtest.Wait(pgtest.Patience, func() bool { return is() || len(rest) > 0 }) || !is() {
			t.Fatalf("%s: not so; it said: %s", what, told.String())
		}
	}
	state := func(what, want string) {
		t.Helper()
		wait(what+" "+want, func() bool {
			return want == pgtest.One[string](t, owner, `select (select coalesce(sum(finished), 0) from deed.receipts) || ' finished, ' || (select count(*) from deed.pending where attempts > 0) || ' failed'`)
		})
	}
	handled := 4
	if kept {
		state("beside two that stay locked", "3 finished, 3 failed")
		db.Exec(t, pgtest.App, `select deed.publish('orders', '{"n": 99}')`)
		state("after that", "4 finished, 3 failed")
		handled++
	} else {
		wait("it waits for a lock", func() bool {
			return pgtest.One[bool](t, owner, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
		})
		time.Sleep(time.Second)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if !kept {
		state("when they are free again", "4 finished, 4 failed")
		if n := pgtest.One[int](t, owner, `select sum(failed) from deed.receipts`); language == "python" && n != 4 {
			t.Errorf("by the receipts %d have failed, want 4", n)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	printed := string(begun) + <-rest
	if err := cmd.Wait(); err != nil {
		t.Errorf("the worker ended with %v: %s", err, told.String())
	}
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(\S+) orders `).FindAllStringSubmatch(printed, -1) {
		if seen[m[1]] {
			t.Errorf("%s was handled twice", m[1])
		}
		seen[m[1]] = true
	}
	if len(seen) != handled {
		t.Errorf("%d were handled, want %d", len(seen), handled)
	}
	if kept && !strings.Contains(told.String(), "locked") {
		t.Errorf("the worker does not say that some stay locked: %q", told.String())
	}
}
