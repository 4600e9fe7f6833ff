package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxConns is how many connections a pool of [DB.Pool] may have: a hundredth of
// what the server takes would starve no test that runs beside.
const maxConns = 8

// DB is a test's own database. Its methods may be called by several goroutines
// at once.
type DB struct {
	t      testing.TB
	server *server
	name   string
	broken atomic.Bool

	mu     sync.Mutex // guards what follows
	shared map[Role]*pgxpool.Pool
	pools  []*pgxpool.Pool // all of them
	conns  []*pgx.Conn
}

// New returns a database with the schema, as it is when "deed migrate up" is
// done. When the test and the cleanups that it registers afterwards are over,
// deed.verify() looks at it, its connections are closed and it is dropped.
func New(t testing.TB) *DB {
	t.Helper()
	return newDB(t, sharedOf(t), true)
}

// Bare returns an empty database, for tests of the migrations themselves.
func Bare(t testing.TB) *DB {
	t.Helper()
	return newDB(t, sharedOf(t), false)
}

func sharedOf(t testing.TB) *server {
	t.Helper()
	s, err := shared.get()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return s
}

func newDB(t testing.TB, s *server, migrated bool) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	from := "template0"
	if migrated {
		var err error
		if from, err = s.template(ctx); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
	db := &DB{
		t:      t,
		server: s,
		name:   fmt.Sprintf("deed_test_%d_%s", os.Getpid(), strings.ToLower(rand.Text()[:10])),
		shared: map[Role]*pgxpool.Pool{},
	}
	// Copying files costs less than logging every page of them.
	if err := s.exec(ctx, `create database `+db.name+` template `+from+` strategy file_copy`); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(db.end)
	return db
}

// Name returns the database's name.
func (db *DB) Name() string { return db.name }

// URL returns the connection URL of a role, for programs under test. Its search
// path is empty.
func (db *DB) URL(role Role) string {
	if role != Owner {
		// A bare database is made without the template, which comes with the
		// logins.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := db.server.template(ctx); err != nil {
			db.t.Fatalf("pgtest: %v", err)
		}
	}
	return db.server.as(role, db.name)
}

// Pool returns the role's pool: the same one at every call, closed at the end
// of the test.
func (db *DB) Pool(role Role) *pgxpool.Pool {
	db.mu.Lock()
	pool := db.shared[role]
	db.mu.Unlock()
	if pool != nil {
		return pool
	}
	pool = db.NewPool(role, maxConns)
	db.mu.Lock()
	defer db.mu.Unlock()
	if first := db.shared[role]; first != nil {
		return first // another goroutine's; ours has no connection and is closed with the rest
	}
	db.shared[role] = pool
	return pool
}

// NewPool returns another pool of the role, with at most size connections,
// closed at the end of the test.
func (db *DB) NewPool(role Role, size int32) *pgxpool.Pool {
	cfg, err := pgxpool.ParseConfig(db.URL(role))
	if err != nil {
		db.t.Fatalf("pgtest: %v", err)
	}
	cfg.MaxConns = size
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		db.t.Fatalf("pgtest: %v", err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.pools = append(db.pools, pool)
	return pool
}

// Conn returns a connection of the role's own, outside any pool, closed at the
// end of the test.
func (db *DB) Conn(t testing.TB, role Role) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.URL(role))
	if err != nil {
		t.Fatalf("pgtest: connect as %s: %v", role, err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.conns = append(db.conns, conn)
	return conn
}

// Exec runs a statement with the rights of the role, or fails the test.
func (db *DB) Exec(t testing.TB, role Role, sql string, args ...any) {
	t.Helper()
	if _, err := db.Pool(role).Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("as %s: %s: %v", role, sql, err)
	}
}

// step is how many rows [DB.ExecSteps] has a statement write.
const step = 10_000

// ExecSteps is Exec for the numbers 1 to n, in transactions that write ten thousand
// rows each: the statement's $1 and $2 are the first and the last number. One that
// writes for half a minute would hold back the horizon of the whole server, for which
// others' tests wait.
func (db *DB) ExecSteps(t testing.TB, role Role, n int, sql string) {
	t.Helper()
	for first := 1; first <= n; first += step {
		db.Exec(t, role, sql, first, min(first+step-1, n))
	}
}

// Queryer is a pool, a connection or a transaction.
type Queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// One returns the one value that a query answers with, or fails the test.
func One[T any](t testing.TB, q Queryer, sql string, args ...any) T {
	t.Helper()
	var value T
	if err := q.QueryRow(context.Background(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// Providers registers providers of that kind, unless they are registered, so
// that deliveries can be reserved for them before a ledger runs.
func (db *DB) Providers(t testing.TB, kind string, names ...string) {
	t.Helper()
	db.Exec(t, Owner, `
		insert into deed.providers (name, kind, registered_at)
		select distinct n, $1, clock_timestamp() from unnest($2::text[]) n
		on conflict do nothing`, kind, names)
}

// Broken says that the test breaks the tables on purpose: deed.verify() is not
// asked at its end.
func (db *DB) Broken() { db.broken.Store(true) }

// end checks the database and removes it.
func (db *DB) end() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if !db.broken.Load() {
		if err := db.verify(ctx); err != nil {
			db.t.Errorf("pgtest: verify: %v", err)
		}
	}
	db.closeAll(ctx)
	if err := db.drop(ctx); err != nil {
		db.t.Errorf("pgtest: %v", err)
	}
}

// violation is a row of deed.verify().
type violation struct{ Invariant, Subscription, Message, Detail string }

// untold is what the audit log of campaigns' runs leaves out of what became of their deliveries (C6): each
// change begins with what the one before it ended with, and the last one with what is there. It is asked of
// databases that this program has made, and not by deed.verify: runs of before migration 0123 have no such rows.
const untold = `
	with told as materialized (
		select a.subject_id, a.from_status, a.to_status, a.action, a.n, lag(a.to_status) over w as was, lead(a.n) over w is null as last
		from deed.campaign_audit_log a
		where a.subject_type = 'delivery' and a.subject_id is not null
			and exists (select from deed.campaign_runs r where r.id = a.run_id and r.sealed_at is null)
		window w as (partition by a.run_id, a.subject_id order by a.n)
	)
	select 'transition of a delivery is not in campaign_audit_log', '', t.subject_id, format('it was %s, and %s has found it %s (%s)', t.was, t.action, t.from_status, t.n)
	from told t
	where t.from_status is distinct from t.was
	union all
	select 'delivery is not in campaign_audit_log as it is', '', c.id::text, format('it is %s, and was %s at last', c.status, t.to_status)
	from deed.campaign_runs r
	join deed.channel_outbox c on c.run_id = r.id
	left join told t on t.last and t.subject_id = c.id::text
	where r.sealed_at is null and c.status is distinct from t.to_status`

func (db *DB) verify(ctx context.Context) error {
	var list []violation
	err := db.inspect(ctx, func(conn *pgx.Conn) error {
		var installed bool
		err := conn.QueryRow(ctx, `select to_regprocedure('deed.verify()') is not null`).Scan(&installed)
		if err != nil || !installed {
			return err
		}
		rows, err := conn.Query(ctx, `
			select invariant, coalesce(subscription, ''), coalesce(message_id::text, ''), detail from deed.verify()
		`)
		if err != nil {
			return err
		}
		if list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[violation]); err != nil {
			return err
		}
		rows, err = conn.Query(ctx, untold)
		if err != nil {
			return err
		}
		more, err := pgx.CollectRows(rows, pgx.RowToStructByPos[violation])
		list = append(list, more...)
		return err
	})
	for _, v := range list {
		db.t.Errorf("deed.verify: %s: subscription %q, message %q: %s", v.Invariant, v.Subscription, v.Message, v.Detail)
	}
	return err
}

// inspect runs f in a session of the superuser's: one of the test's own that is idle,
// as new as it can be made, for it has read the catalogue; or else a new one.
func (db *DB) inspect(ctx context.Context, f func(*pgx.Conn) error) error {
	db.mu.Lock()
	pool := db.shared[Owner]
	db.mu.Unlock()
	if pool != nil {
		idle := pool.AcquireAllIdle(ctx)
		defer func() {
			for _, conn := range idle {
				conn.Release()
			}
		}()
		for _, conn := range idle {
			// The test may have cut it, or left it with settings.
			if _, err := conn.Exec(ctx, `discard all`, pgx.QueryExecModeSimpleProtocol); err == nil {
				return f(conn.Conn())
			}
		}
	}
	return db.server.do(ctx, db.name, f)
}

// closeAll closes every connection. A pool waits for those that are in use: a
// test that has lost one fails, and does not hang.
func (db *DB) closeAll(ctx context.Context) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, conn := range db.conns {
		_ = conn.Close(ctx) // the test may have closed it, or cut it
	}
	wait := time.Minute // a busy server lets even those wait that say goodbye
	if db.t.Failed() {
		wait = time.Second // it probably ended in the middle of something
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	closed := make(chan struct{})
	go func() { // ends when every connection has been given back
		defer close(closed)
		for _, pool := range db.pools {
			pool.Close()
		}
	}()
	select {
	case <-closed:
	case <-timeout.C:
		db.t.Errorf("pgtest: a connection of a pool was not given back")
	}
}

// drop removes the database with everything that would hold it up.
func (db *DB) drop(ctx context.Context) error {
	sql := `drop database ` + db.name + ` with (force)`
	err := db.server.exec(ctx, sql)
	if sqlState(err) != "55006" { // object in use
		return err
	}
	err = db.server.do(ctx, db.name, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `select gid from pg_prepared_xacts where database = current_database()`)
		if err != nil {
			return err
		}
		prepared, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, gid := range prepared {
			if err == nil {
				_, err = conn.Exec(ctx, `rollback prepared '`+strings.ReplaceAll(gid, `'`, `''`)+`'`)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return db.server.exec(ctx, sql)
}
