//go:build upgrade

// Package upgrade_test takes a database in the middle of its work from
// PostgreSQL 15 to 18, with PostgreSQL's own programs.
package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds every wait; it only matters to a test that fails.
const patience = 3 * time.Minute

// The folders of all programs of both versions.
var oldBin, newBin = os.Getenv("DEED_PG_OLD"), os.Getenv("DEED_PG_NEW")

// pg_upgrade takes the files of a cluster of 15 to one of 18, with a stream, a
// queue and deliveries in the middle of their work: deliveries hold until
// somebody says that this is no copy, then nothing is lost, nothing is dead, and
// deed verify is clean.
func TestUpgrade_Files(t *testing.T) {
	s := begin(t)
	to := pgtest.Private(t, pgembed.Options{Binaries: programs(t, newBin, 18), Unsafe: true})
	s.stop(t)
	for _, c := range []*pgtest.Cluster{s.from, to} {
		bin := oldBin
		if c == to {
			bin = newBin
		}
		run(t, c, filepath.Join(bin, "pg_ctl"), "-D", filepath.Join(c.Dir(), "data"), "-m", "fast", "-w", "stop")
	}
	run(t, to, filepath.Join(newBin, "pg_checksums"), "--disable", "-D", filepath.Join(to.Dir(), "data")) // as the old one has it
	run(t, to, filepath.Join(newBin, "pg_upgrade"), "-U", pgembed.Superuser, "-b", oldBin, "-B", newBin,
		"-d", filepath.Join(s.from.Dir(), "data"), "-D", filepath.Join(to.Dir(), "data"), "--no-sync")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := to.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	s.goOn(t, to)
}

// A dump of a database of 15 is restored into a new cluster of 18, whose
// transaction ids are lower than those that the rows were written with.
func TestUpgrade_Dump(t *testing.T) {
	s := begin(t)
	to := pgtest.Private(t, pgembed.Options{Binaries: programs(t, newBin, 18), Unsafe: true})
	s.stop(t)
	dump := filepath.Join(s.from.Dir(), "dump")
	roles := run(t, s.from, filepath.Join(newBin, "pg_dumpall"), "--roles-only", "-d", s.from.URL("postgres"))
	psql := command(to, filepath.Join(newBin, "psql"), "-q", "-d", to.URL("postgres"))
	psql.Stdin = strings.NewReader(roles + fmt.Sprintf("create database %s;\n", s.db.Name()))
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	run(t, s.from, filepath.Join(newBin, "pg_dump"), "-Fc", "-f", dump, s.from.URL(s.db.Name()))
	run(t, s.from, filepath.Join(newBin, "pg_restore"), "--exit-on-error", "-d", to.URL(s.db.Name()), dump)
	s.goOn(t, to)
}

func programs(t *testing.T, dir string, major int) pgembed.Binaries {
	t.Helper()
	if dir == "" {
		t.Fatal("DEED_PG_OLD and DEED_PG_NEW name no programs: run make test-upgrade")
	}
	return pgembed.Binaries{Postgres: filepath.Join(dir, "postgres"), Initdb: filepath.Join(dir, "initdb"), Major: major}
}

// command prepares a program to run as the cluster's owner, in its folder.
func command(c *pgtest.Cluster, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = c.Dir()
	if info, err := os.Stat(filepath.Join(c.Dir(), "data")); err == nil && os.Geteuid() == 0 {
		owner := info.Sys().(*syscall.Stat_t)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") }), "LC_ALL=C")
	return cmd
}

func run(t *testing.T, c *pgtest.Cluster, program string, args ...string) string {
	t.Helper()
	out, err := command(c, program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(program), err, out)
	}
	return string(out)
}

// system is a database with work, first on one server, then on another.
type system struct {
	from *pgtest.Cluster
	db   *pgtest.DB
	out  *outside
	made map[string]bool // what is owed, by name
	n    int
	halt func()

	ledger *delivery.Ledger // that runs
}

// outside is what receives messages and deliveries.
type outside struct {
	mu     sync.Mutex // guards the fields below
	times  map[string]int
	newest map[string]int // of each key of the stream
	wrong  []string
	open   bool // else everything is away but what came before
}

const perRound = 200

func begin(t *testing.T) *system {
	t.Helper()
	s := &system{
		from: pgtest.Private(t, pgembed.Options{Binaries: programs(t, oldBin, 15), Unsafe: true}),
		out:  &outside{times: map[string]int{}, newest: map[string]int{}, open: true}, made: map[string]bool{},
	}
	s.db = s.from.DB(t)
	s.start(t, s.db.Pool(pgtest.Worker))
	// What is published to a topic that is not declared yet comes without order,
	// and nothing can be reserved for a provider that nobody has registered.
	wait(t, "the topics to be declared", func() bool {
		return pgtest.One[bool](t, s.db.Pool(pgtest.Owner), `
			select count(*) = 2 and not exists (select from deed.backfills where finished_at is null)
			  and exists (select from deed.providers) from deed.subscriptions where id > 0`)
	})
	s.publish(t, s.db.Pool(pgtest.App))
	wait(t, "the first round", func() bool { return s.out.count() == len(s.made) })
	// From here on what is published waits, fails or stands in a queue.
	s.out.set(false)
	for range 3 {
		s.publish(t, s.db.Pool(pgtest.App))
	}
	wait(t, "some to have failed", func() bool {
		return pgtest.One[bool](t, s.db.Pool(pgtest.Owner), `
			select exists (select from deed.pending where last_error is not null)
			  and exists (select from deed.channel_outbox where last_error is not null)`)
	})
	return s
}

// publish owes a round of each kind, and messages that are due later.
func (s *system) publish(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		var ms []deed.Message
		var ds []delivery.Delivery
		for range perRound {
			s.n++
			for _, topic := range []string{"stream", "queue"} {
				name := fmt.Sprintf("%s %d", topic, s.n)
				s.made[name] = true
				ms = append(ms, deed.Message{Topic: topic, Key: fmt.Sprint("key-", s.n%7), Payload: fmt.Appendf(nil, "%q", name)})
			}
			if s.n%10 == 0 {
				name := fmt.Sprintf("delivery-%d@example.com", s.n)
				s.made[name] = true
				ds = append(ds, delivery.Delivery{
					Channel: delivery.Email, Provider: "fake", Recipient: name, Payload: []byte(`{}`), Key: delivery.NewKey(name),
				})
			}
		}
		if _, err := deed.Publish(t.Context(), tx, ms...); err != nil {
			return err
		}
		_, err := delivery.Reserve(t.Context(), tx, ds...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// start runs everything that drains, until halt.
func (s *system) start(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	const deadline = 25 * time.Second // of a statement: what is given up may have been done, and waits for its lease
	client, err := deed.New(t.Context(), pool, deed.Options{
		Topics: []deed.Topic{{Name: "stream", Mode: deed.ModeStream}, {Name: "queue"}}, Logger: logger, Deadline: deadline,
		Subscriptions: []deed.Subscription{{Topic: "stream", Name: "s", Sink: s.out}, {Topic: "queue", Name: "s", Sink: s.out}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := delivery.New(t.Context(), pool, delivery.Options{
		Providers: map[string]delivery.ProviderOptions{"fake": {Provider: s.out}}, PollInterval: 20 * time.Millisecond, BaseRetry: 10 * time.Millisecond,
		MaxAttempts: 100, Logger: logger, Deadline: deadline,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.ledger = ledger
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- client.Run(ctx) }() // both ended by halt
	go func() { ended <- ledger.Run(ctx) }()
	s.halt = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Errorf("a worker ended with: %v", err)
		}
	})
	t.Cleanup(s.halt)
}

// stop ends all sessions but says nothing to the rows.
func (s *system) stop(t *testing.T) {
	t.Helper()
	s.halt()
	for _, role := range []pgtest.Role{pgtest.Worker, pgtest.App, pgtest.Owner} {
		s.db.Pool(role).Reset()
	}
	// The template that the tests' databases are made of lets nobody connect.
	conn, err := pgx.Connect(t.Context(), s.from.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `update pg_database set datallowconn = true, datistemplate = false where datname like 'deed_template%'`); err != nil {
		t.Fatal(err)
	}
}

// goOn works on in the other server, and compares.
func (s *system) goOn(t *testing.T, to *pgtest.Cluster) {
	t.Helper()
	pool := func(login string) *pgxpool.Pool {
		u, err := url.Parse(to.URL(s.db.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if login != "" {
			u.User = url.UserPassword("deed_test_"+login, "deed_test")
		}
		pool, err := pgxpool.New(t.Context(), u.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	owner := pool("")
	verify := func(when string) {
		t.Helper()
		got := pgtest.One[string](t, owner, `select coalesce(string_agg(concat_ws(' ', invariant, subscription, message_id, detail), E'\n'), '') from deed.verify()`)
		if got != "" {
			t.Errorf("deed verify, %s:\n%s", when, got)
		}
	}
	if v := pgtest.One[string](t, owner, `show server_version`); !strings.HasPrefix(v, "18.") {
		t.Fatalf("this is PostgreSQL %s", v)
	}
	verify("before anybody has come back")
	before := s.out.repeats()
	s.out.set(true)
	s.start(t, pool("worker"))
	app := pool("app")
	s.publish(t, app)
	s.adopt(t, pool("admin"))
	wait(t, "everything to arrive", func() bool { return s.out.count() == len(s.made) })
	s.publish(t, app)
	wait(t, "what came later to arrive", func() bool { return s.out.count() == len(s.made) })
	wait(t, "nothing to be pending", func() bool {
		return pgtest.One[bool](t, owner, `select not exists (select from deed.pending) and not exists (select from deed.channel_outbox where status <> 'sent')`)
	})
	s.halt()
	verify("afterwards")
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if len(s.out.wrong) > 0 {
		t.Errorf("out of order: %s", s.out.wrong[:min(10, len(s.out.wrong))])
	}
	repeats := 0
	for name, n := range s.out.times {
		if n > 1 {
			repeats++
			// A stream that finds another cluster may read its last window again.
			if !strings.HasPrefix(name, "stream") {
				t.Errorf("%s came %d times", name, n)
			}
		}
	}
	t.Logf("%d messages and deliveries, %d of the stream twice (%d before)", len(s.made), repeats, before)
}

// adopt waits until all messages have arrived, whose sink goes on, and no
// delivery that had not come before; then it lets deliveries go on, too.
func (s *system) adopt(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	messages := 0
	for name := range s.made {
		if !strings.HasPrefix(name, "delivery") {
			messages++
		}
	}
	wait(t, "all messages to arrive", func() bool { return s.out.count("stream", "queue") == messages })
	wait(t, "deliveries to be held", func() bool { return strings.Contains(s.ledger.Held(), "the server is another") })
	if n := s.out.count("delivery"); n != perRound/10 {
		t.Errorf("%d deliveries were made, %d of them before", n, perRound/10)
	}
	operator, err := admin.New(t.Context(), pool, admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if why, err := operator.Adopt(t.Context(), audit.Act{Reason: "upgraded"}); err != nil || why == "" {
		t.Fatalf("adopt: %q, %v", why, err)
	}
}

func (o *outside) set(open bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = open
}

// count is how many have arrived; of some kinds, if they are named.
func (o *outside) count(kinds ...string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name := range o.times {
		if len(kinds) == 0 || slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(name, kind) }) {
			n++
		}
	}
	return n
}

func (o *outside) repeats() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, times := range o.times {
		n += times - 1
	}
	return n
}

// take counts what comes; while the outside is away it refuses half of it.
func (o *outside) take(name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open {
		return errors.New("away")
	}
	o.times[name]++
	return nil
}

// Deliver is of the sink.
func (o *outside) Deliver(_ context.Context, ms []deed.Message) []error {
	errs := make([]error, len(ms))
	for i, m := range ms {
		name := strings.Trim(string(m.Payload), `"`)
		if errs[i] = o.take(name); errs[i] != nil {
			continue
		}
		topic, number, _ := strings.Cut(name, " ")
		if topic != "stream" {
			continue
		}
		var n int
		_, _ = fmt.Sscan(number, &n)
		o.mu.Lock()
		// The next of a key is seven further.
		if last := o.newest[m.Key]; last != 0 && n > last+7 {
			o.wrong = append(o.wrong, fmt.Sprintf("%s: %d after %d", m.Key, n, last))
		}
		o.newest[m.Key] = max(o.newest[m.Key], n)
		o.mu.Unlock()
	}
	return errs
}

// Capabilities, Render and Send are of the provider.
func (o *outside) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{Kind: "fake", Channels: []delivery.Channel{delivery.Email}, Key: delivery.NoKey}
}

func (o *outside) Render(d delivery.Draft) ([]byte, error) { return d.Payload, nil }

func (o *outside) Send(_ context.Context, r delivery.Reservation) delivery.Outcome {
	if err := o.take(r.Recipient()); err != nil {
		return delivery.NotNow(err, 10*time.Millisecond)
	}
	return delivery.Accepted("m")
}

// wait polls until ok holds.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !pgtest.Wait(patience, ok) {
		t.Fatalf("waited %s for %s", patience, what)
	}
}
