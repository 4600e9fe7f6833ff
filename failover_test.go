package deed_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// pair is a server, a standby that follows it, and an address that leads to one
// of them, as a proxy or a name does.
type pair struct {
	t                testing.TB
	primary, standby *pgtest.Cluster
	db               *pgtest.DB
	address          string
}

func newPair(t testing.TB) *pair {
	t.Helper()
	p := &pair{t: t, primary: pgtest.Private(t, pgembed.Options{}), address: filepath.Join(t.TempDir(), "now")}
	p.db = p.primary.DB(t)
	p.primary.Kill()
	dir, err := os.MkdirTemp("", "deed-standby-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	data := filepath.Join(dir, "pg", "data")
	for _, args := range [][]string{
		{"cp", "-a", p.primary.Dir(), filepath.Join(dir, "pg")},
		{"rm", "-f", filepath.Join(data, "postmaster.pid")},
		{"cp", "-a", filepath.Join(data, "PG_VERSION"), filepath.Join(data, "standby.signal")}, // of the right owner
		{"chmod", "755", dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	// Not on the command line, as it is to be changed.
	follow := fmt.Sprintf("primary_conninfo = 'host=%s port=%d user=%s'\n", p.primary.Dir(), p.primary.Port(), pgembed.Superuser)
	auto, err := os.OpenFile(filepath.Join(data, "postgresql.auto.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = auto.WriteString(follow)
	if err := errors.Join(err, auto.Close(), p.primary.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	p.standby = pgtest.Private(t, pgembed.Options{Dir: filepath.Join(dir, "pg")})
	if p.primary.Port() != p.standby.Port() {
		t.Fatalf("the servers have the ports %d and %d", p.primary.Port(), p.standby.Port())
	}
	p.lead(p.primary)
	return p
}

// lead makes the address that of c.
func (p *pair) lead(c *pgtest.Cluster) {
	p.t.Helper()
	next := p.address + ".next"
	if err := os.Symlink(c.Dir(), next); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(next, p.address); err != nil {
		p.t.Fatal(err)
	}
}

// pool connects to the server of a folder, or where the address leads.
func (p *pair) pool(role pgtest.Role, host string) *pgxpool.Pool {
	p.t.Helper()
	u, err := url.Parse(p.db.URL(role))
	if err != nil {
		p.t.Fatal(err)
	}
	q := u.Query()
	q.Set("host", host)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	pool, err := pgxpool.New(context.Background(), u.String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(pool.Close)
	return pool
}

// onStandby runs a statement on the standby.
func (p *pair) onStandby(sql string) {
	p.t.Helper()
	conn, err := pgx.Connect(context.Background(), p.standby.URL("postgres"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
}

// A standby that lags behind is promoted under a relay that lives on: windows,
// pages and messages that the relay has seen are gone, and their numbers are
// given out again. What the new server has is delivered, and nothing stalls.
func TestCrash_StandbyPromoted(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	sink := &recorder{}
	c, _ := runOn(t, p.pool(pgtest.Worker, p.address), stream(sink))
	app := p.pool(pgtest.App, p.address)
	publishUntil := func(n int) {
		t.Helper()
		for i := range n {
			if _, err := deed.Publish(t.Context(), app, keyed(fmt.Sprint(i%20), i), keyed(fmt.Sprint(i%7), i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	arrived := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d messages to arrive", n), func() bool { got, _ := sink.counts(); return got >= n })
	}
	publishUntil(100)
	arrived(200)
	eventually(t, "the standby to have them", func() bool {
		conn, err := pgx.Connect(t.Context(), p.standby.URL(p.db.Name()))
		if err != nil {
			return false
		}
		defer conn.Close(context.Background())
		var n int
		return conn.QueryRow(t.Context(), `select count(*) from deed.log`).Scan(&n) == nil && n == 200
	})

	p.onStandby(`alter system set primary_conninfo = ''`)
	p.onStandby(`select pg_reload_conf()`)
	eventually(t, "the standby to be cut off", func() bool {
		conn, err := pgx.Connect(t.Context(), p.standby.URL("postgres"))
		if err != nil {
			return false
		}
		defer conn.Close(context.Background())
		var off bool
		return conn.QueryRow(t.Context(), `select not exists (select from pg_stat_wal_receiver)`).Scan(&off) == nil && off
	})
	publishUntil(100) // what is lost with the primary
	arrived(400)
	known := pgtest.One[int](t, p.db.Pool(pgtest.Owner), `select max(n) from deed.windows`)

	p.primary.Kill()
	p.onStandby(`select pg_promote()`)
	// Before the relay finds the new server others have published there, and
	// have opened windows past the numbers that it knows.
	app = p.pool(pgtest.App, p.standby.Dir())
	owner := p.pool(pgtest.Owner, p.standby.Dir())
	for pgtest.One[int](t, owner, `select max(n) from deed.windows`) < known+50 {
		publishUntil(2)
		pgtest.One[int](t, owner, `select deed.open_window()`)
	}
	p.lead(p.standby)
	publishUntil(50)
	drained(t, c)

	rows, err := owner.Query(t.Context(), `select deed.message_id(created_at, id)::text from deed.log`)
	if err != nil {
		t.Fatal(err)
	}
	there, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	came := map[string]int{}
	for _, m := range sink.done {
		came[m.ID.String()]++
	}
	missed, repeats := 0, 0
	for _, id := range there {
		if came[id] == 0 {
			missed++
		}
		repeats += max(0, came[id]-1)
	}
	if len(there) < 300 || missed > 0 {
		t.Errorf("the new server has %d messages, of which %d never came (and %d came again)", len(there), missed, repeats)
	}
}
