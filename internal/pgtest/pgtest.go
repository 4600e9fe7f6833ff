// Package pgtest gives each test a database of its own: a clone of a migrated
// template, dropped when the test ends.
//
// The databases live in one PostgreSQL for the whole run. It is the one that
// the environment variable DEED_TEST_PG names, as "go run
// ./internal/pgtest/cluster" sets it, or else one that this process starts at
// the first use and [Main] stops. fsync is off in it; tests that kill a server
// take [Private].
//
// At the end of every test deed.verify() looks at what the test has left.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/deedhq/deed/internal/pgembed"
)

// Env names the environment variable with a superuser's URL of the server to
// use.
const Env = "DEED_TEST_PG"

// patience bounds everything that the harness itself asks of a server.
const patience = 2 * time.Minute

// Options returns how the suite's server runs.
func Options() pgembed.Options {
	return pgembed.Options{Unsafe: true, TempDir: memoryFolder(), Settings: settings()}
}

func settings() map[string]string {
	return map[string]string{
		"max_connections":           "1000", // of three packages at a time, eight tests of each
		"max_prepared_transactions": "50",
		"shared_buffers":            "128MB",
		"max_wal_size":              "512MB",
		"autovacuum":                "on",
	}
}

// Main is the TestMain of every package that uses this one: it runs the tests,
// removes the server that they have started, and fails when they have leaked a
// goroutine.
func Main(m *testing.M) {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	if code == 0 {
		// The driver closes a connection that was cut off in the background, and
		// gives a silent one 15 seconds for it.
		ended := time.Now().Add(20 * time.Second)
		err := goleak.Find()
		for err != nil && time.Now().Before(ended) {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// A server is where databases are made.
type server struct {
	url    func(database string) string // the superuser's
	pooler *url.URL                     // where the other logins connect; nil: to the server

	mu   sync.Mutex
	made string // the template, once it is known to be there

	// Sessions that make and drop databases, for the next test to use: a new one
	// costs the server as much as a tenth of the database. Only of a server that no
	// test may kill, or counts the sessions of.
	keeps bool
	idle  []*pgx.Conn
}

// shared is the process's server. Its life is the process's: only [Main] ends
// it.
var shared sharedServer

type sharedServer struct {
	mu      sync.Mutex
	server  *server
	cluster *pgembed.Cluster // nil for a server that is not ours
	err     error            // why there is none; asking again would only take longer
}

func (s *sharedServer) get() (*server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil && s.err == nil {
		s.server, s.err = s.open()
	}
	return s.server, s.err
}

func (s *sharedServer) open() (*server, error) {
	if env := os.Getenv(Env); env != "" {
		u, err := url.Parse(env)
		if err != nil {
			return nil, fmt.Errorf("%s is no URL", Env)
		}
		pooler, err := poolerFromEnv()
		if err != nil {
			return nil, err
		}
		return &server{url: func(database string) string { return onDatabase(*u, database) }, pooler: pooler, keeps: true}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgembed.Start(ctx, Options())
	if err != nil {
		return nil, err
	}
	s.cluster = c
	return &server{url: c.URL, keeps: true}, nil
}

func (s *sharedServer) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.closeIdle() // of one whose last write was slow the driver still reads
	}
	if s.cluster == nil {
		return nil
	}
	err := s.cluster.Stop(context.Background())
	s.cluster, s.server, s.err = nil, nil, errors.New("the server was stopped by Main")
	return err
}

func onDatabase(u url.URL, database string) string {
	u.Path = "/" + database
	return u.String()
}

// as returns the URL of a role's login. The search path is empty, so that a
// name without its schema is found out.
func (s *server) as(role Role, database string) string {
	if s.pooler != nil && role != Owner {
		pooled := *s.pooler
		pooled.User = url.UserPassword(role.login(), loginPassword)
		return onDatabase(pooled, database)
	}
	u, err := url.Parse(s.url(database))
	if err != nil {
		return s.url(database) // pgx says what is wrong with it
	}
	if role != Owner {
		u.User = url.UserPassword(role.login(), loginPassword)
	}
	u.RawQuery = strings.TrimPrefix(u.RawQuery+"&options=-c%20search_path%3D", "&")
	return u.String()
}

// do runs statements as the superuser on a connection of their own: a test may
// have killed the server since the last one.
func (s *server) do(ctx context.Context, database string, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.url(database))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return f(conn)
}

// exec runs statements as the superuser, where databases are made and dropped.
func (s *server) exec(ctx context.Context, statements ...string) error {
	conn, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer s.give(ctx, conn)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func (s *server) take(ctx context.Context) (*pgx.Conn, error) {
	s.mu.Lock()
	var conn *pgx.Conn
	if n := len(s.idle); n > 0 {
		conn, s.idle = s.idle[n-1], s.idle[:n-1]
	}
	s.mu.Unlock()
	if conn != nil {
		if conn.Ping(ctx) == nil {
			return conn, nil
		}
		_ = conn.Close(ctx) // the server was started anew
	}
	return pgx.Connect(ctx, s.url("postgres"))
}

func (s *server) give(ctx context.Context, conn *pgx.Conn) {
	if !s.keeps || conn.IsClosed() {
		_ = conn.Close(ctx)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, conn)
}

func (s *server) closeIdle() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.idle {
		_ = conn.Close(ctx)
	}
	s.idle = nil
}

func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
