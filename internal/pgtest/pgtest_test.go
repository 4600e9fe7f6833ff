package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgembed"
)

func TestMain(m *testing.M) { Main(m) }

// fakeT is a test whose failure is the thing to see.
type fakeT struct {
	testing.TB // of the real test
	errors     []string
	cleanups   []func()
}

func (f *fakeT) Helper()           {}
func (f *fakeT) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *fakeT) Failed() bool      { return len(f.errors) > 0 }
func (f *fakeT) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeT) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// run runs a test to its end and returns its errors.
func (f *fakeT) run(test func(testing.TB)) []string {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, fn := range slices.Backward(f.cleanups) {
				fn()
			}
		}()
		test(f)
	}()
	<-done
	return f.errors
}

func exists(t *testing.T, name string) bool {
	t.Helper()
	s, err := shared.get()
	if err != nil {
		t.Fatal(err)
	}
	var present bool
	err = s.do(context.Background(), "postgres", func(conn *pgx.Conn) error {
		present = One[bool](t, conn, `select exists (select from pg_database where datname = $1)`, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return present
}

func TestNew_IsQuick(t *testing.T) {
	t.Parallel()
	New(t) // the first one pays for the server and the template
	var made, ended []time.Duration
	for n := 0; n < 9 || slices.Min(made) > time.Second && n < 60; n++ { // of the others the machine's other work is a part
		f := &fakeT{TB: t}
		began := time.Now()
		var stop time.Time
		errs := f.run(func(t testing.TB) {
			New(t)
			stop = time.Now()
		})
		made, ended = append(made, stop.Sub(began)), append(ended, time.Since(stop))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	slices.Sort(made)
	slices.Sort(ended)
	t.Logf("median of %d: made in %v, checked and dropped in %v", len(made), made[len(made)/2], ended[len(ended)/2])
	if made[0] > time.Second {
		t.Errorf("a database takes %v to make", made[0])
	}
}

func TestNew_LeavesNothing(t *testing.T) {
	t.Parallel()
	var name string
	f := &fakeT{TB: t}
	errs := f.run(func(t testing.TB) {
		db := New(t)
		name = db.Name()
		db.Exec(t, Owner, `select 1`)
		db.Conn(t, App)
		// A stray connection and a prepared transaction would hold a drop up.
		stray, err := pgx.Connect(context.Background(), db.URL(Owner))
		if err != nil {
			t.Fatalf("%v", err)
		}
		for _, sql := range []string{`begin`, `create table public.x ()`, `prepare transaction 'it''s mine'`} {
			if _, err := stray.Exec(context.Background(), sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	})
	if len(errs) > 0 {
		t.Error(errs)
	}
	if name == "" || exists(t, name) {
		t.Errorf("database %q is still there", name)
	}
}

func TestNew_InParallel(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range 8 {
		db := New(t)
		wg.Go(func() {
			db.Exec(t, Owner, fmt.Sprintf(`create table public.t%d ()`, i))
			got := One[string](t, db.Pool(Owner), `select string_agg(relname, ',') from pg_class where relnamespace = 'public'::regnamespace`)
			if want := fmt.Sprintf("t%d", i); got != want {
				t.Errorf("database %d has %q, want %q", i, got, want)
			}
		})
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	for name, db := range map[string]*DB{"migrated": New(t), "bare": Bare(t)} {
		for _, role := range []Role{App, Worker, Admin} {
			q := db.Pool(role)
			if got := One[bool](t, q, `select rolsuper or rolbypassrls or not rolinherit from pg_roles where rolname = current_user`); got {
				t.Errorf("%s: %s has rights of its own", name, role)
			}
			for _, group := range []Role{App, Worker, Admin} {
				if got := One[bool](t, q, `select pg_has_role('deed_' || $1, 'usage')`, string(group)); got != (role == group) {
					t.Errorf("%s: %s holds deed_%s: %t", name, role, group, got)
				}
			}
		}
		for _, role := range []Role{App, Worker, Admin, Owner} {
			if got := One[string](t, db.Pool(role), `show search_path`); got != "" {
				t.Errorf("%s: %s's search path is %q", name, role, got)
			}
			if got := One[string](t, db.Conn(t, role), `select current_database()::text`); got != db.Name() {
				t.Errorf("%s: %s is in %q", name, role, got)
			}
			if first, second := db.Pool(role), db.Pool(role); first != second {
				t.Errorf("%s: %s has two pools", name, role)
			}
		}
		if !One[bool](t, db.Pool(Owner), `select rolsuper from pg_roles where rolname = current_user`) {
			t.Errorf("%s: the owner is no superuser", name)
		}
	}
}

func TestBare_HasNoSchema(t *testing.T) {
	t.Parallel()
	if One[bool](t, Bare(t).Pool(Owner), `select to_regnamespace('deed') is not null`) {
		t.Error("there is a schema deed")
	}
}

const violate = `
	create or replace function deed.verify() returns table (invariant text, subscription text, message_id bigint, detail text)
	language sql as $$ values ('it adds up', null, 7::bigint, 'it does not') $$`

func TestVerify_FailsTheTest(t *testing.T) {
	t.Parallel()
	f := &fakeT{TB: t}
	errs := f.run(func(t testing.TB) { New(t).Exec(t, Owner, violate) })
	if want := `deed.verify: it adds up: subscription "", message "7": it does not`; len(errs) != 1 || errs[0] != want {
		t.Errorf("got %q, want %q", errs, want)
	}
}

func TestVerify_IsAskedAfterAFailureToo(t *testing.T) {
	t.Parallel()
	f := &fakeT{TB: t}
	errs := f.run(func(t testing.TB) {
		db := New(t)
		db.Exec(t, Owner, violate)
		t.Fatalf("the test's own")
	})
	if len(errs) != 2 {
		t.Errorf("got %q", errs)
	}
}

func TestVerify_NotOfWhatIsBrokenOrUninstalled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(testing.TB, *DB){
		"broken": func(t testing.TB, db *DB) {
			db.Broken()
			db.Exec(t, Owner, violate)
		},
		"uninstalled": func(t testing.TB, db *DB) { db.Exec(t, Owner, `drop schema deed cascade`) },
	} {
		f := &fakeT{TB: t}
		if errs := f.run(func(t testing.TB) { test(t, New(t)) }); len(errs) > 0 {
			t.Errorf("%s: got %q", name, errs)
		}
	}
}

// A test that ends in the middle of something fails, and the next one runs.
func TestPool_LostConnectionFailsTheTest(t *testing.T) {
	t.Parallel()
	f := &fakeT{TB: t}
	errs := f.run(func(t testing.TB) {
		conn, err := New(t).Pool(App).Acquire(context.Background())
		if err != nil {
			t.Fatalf("%v", err)
		}
		f.TB.Cleanup(conn.Release) // for the leak check of this package
		t.Errorf("the test's own")
	})
	if len(errs) != 2 || !strings.Contains(errs[1], "not given back") {
		t.Errorf("got %q", errs)
	}
}

func TestPrivate_SurvivesKillAndRestart(t *testing.T) {
	t.Parallel()
	c := Private(t, pgembed.Options{})
	db := c.DB(t)
	if got := One[string](t, db.Pool(App), `show fsync`); got != "on" {
		t.Errorf("fsync is %s", got)
	}
	db.Exec(t, Owner, `create table public.kept as select 1 as n`)
	c.Kill()
	if _, err := db.Pool(App).Exec(context.Background(), `select 1`); err == nil {
		t.Error("a killed server answers")
	}
	if err := c.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := One[int](t, db.Conn(t, Owner), `select n from public.kept`); got != 1 {
		t.Errorf("got %d", got)
	}
	c.Kill() // the cleanup has it recover for deed.verify
}

// One server serves several processes at once: the template is made once.
func TestCluster_ServesProcessesAtOnce(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := Private(t, Options())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			cmd := exec.Command(self, "-test.run", "^(TestRoles|TestBare_HasNoSchema)$")
			cmd.Env = append(os.Environ(), Env+"="+c.URL("postgres"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	conn, err := pgx.Connect(context.Background(), c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if got := One[int](t, conn, `select count(*) from pg_database where datname like 'deed\_template%'`); got != 1 {
		t.Errorf("%d templates, want 1", got)
	}
	if got := One[int](t, conn, `select count(*) from pg_database where datname like 'deed\_test%'`); got != 0 {
		t.Errorf("%d databases are left", got)
	}
}

func TestClusterCommand(t *testing.T) {
	t.Parallel()
	program := t.TempDir() + "/cluster"
	if out, err := exec.Command("go", "build", "-o", program, "./cluster").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tt := range []struct {
		script string
		status int
	}{
		{`test -n "$DEED_TEST_PG" && echo "$DEED_TEST_PG"`, 0},
		{`exit 7`, 7},
		{`kill -TERM $PPID; exec sleep 60`, 143}, // the signal comes back to the command
	} {
		out, err := exec.Command(program, "--", "sh", "-c", tt.script).Output()
		status := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if status != tt.status {
			t.Errorf("%s: status %d, want %d", tt.script, status, tt.status)
		}
		if u := strings.TrimSpace(string(out)); u != "" {
			conn, err := pgx.Connect(context.Background(), u)
			if err == nil {
				conn.Close(context.Background())
				t.Errorf("%s: the server outlived the command", tt.script)
			}
		}
	}
	if _, err := exec.Command(program).Output(); err == nil {
		t.Error("no command is no error")
	}
}
