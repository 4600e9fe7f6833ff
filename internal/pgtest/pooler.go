package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgembed"
)

// PoolerEnv names the environment variable with the URL of a pooler in front of
// the server that [Env] names. The logins of tests connect through it; the
// superuser, who breaks things by hand, and the harness do not.
const PoolerEnv = "DEED_TEST_POOLER"

const poolerPort = 6432

// poolerConfig is what docs/operations.md recommends, with few connections to
// the server and a different one for every transaction, so that nothing that
// needs a session goes unnoticed. PgBouncer 1.18 does not pass "options" on:
// the search path is emptied by the connect_query instead.
const poolerConfig = `[databases]
* = host=%[1]s port=%[2]d connect_query='select set_config(''search_path'', '''', false)'

[pgbouncer]
pool_mode = transaction
default_pool_size = 4
server_round_robin = 1
server_idle_timeout = 2
max_client_conn = 2000
listen_addr =
listen_port = %[3]d
unix_socket_dir = %[4]s
auth_type = trust
auth_file = %[5]s
log_connections = 0
log_disconnections = 0
log_pooler_errors = 0
`

// StartPooler runs PgBouncer in transaction mode in front of a cluster, until
// stop is called, and returns its URL.
func StartPooler(ctx context.Context, c *pgembed.Cluster) (address string, stop func() error, err error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		// Debian has it where only root looks.
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return "", nil, errors.New("pgtest: no pgbouncer was found; install it (on Debian: apt-get install pgbouncer)")
		}
	}
	direct, err := url.Parse(c.URL("postgres"))
	if err != nil {
		return "", nil, err
	}
	host, port := c.Dir(), c.Port()
	if direct.Host != "" {
		host = direct.Hostname()
	}
	password, _ := direct.User.Password()
	users := fmt.Sprintf("%q %q\n", pgembed.Superuser, password)
	for _, role := range []Role{App, Worker, Admin, Team} {
		users += fmt.Sprintf("%q %q\n", role.login(), loginPassword)
	}
	// The folder is closed to others, and takes what begins with a dot.
	config, auth := filepath.Join(c.Dir(), ".pgbouncer.ini"), filepath.Join(c.Dir(), ".pgbouncer.users")
	text := fmt.Sprintf(poolerConfig, host, port, poolerPort, c.Dir(), auth)
	if err := errors.Join(os.WriteFile(auth, []byte(users), 0o644), os.WriteFile(config, []byte(text), 0o644)); err != nil {
		return "", nil, fmt.Errorf("pgtest: %w", err)
	}
	stop, err = c.Companion(program, config)
	if err != nil {
		return "", nil, err
	}
	u := url.URL{Scheme: "postgres", Path: "/postgres", User: url.User(pgembed.Superuser)}
	query := url.Values{
		"sslmode": {"disable"}, "host": {c.Dir()}, "port": {strconv.Itoa(poolerPort)},
		"default_query_exec_mode": {"exec"},
	}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	if err := provePooler(ctx, u.String()); err != nil {
		return "", nil, fmt.Errorf("pgtest: start pgbouncer: %w", errors.Join(err, stop()))
	}
	return u.String(), stop, nil
}

// provePooler returns when connections are taken and one of them is seen to
// change its server between transactions: without that the tests through it
// would prove nothing.
func provePooler(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	a, err := patientConnect(ctx, address)
	if err != nil {
		return err
	}
	defer a.Close(ctx)
	b, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer b.Close(ctx)
	// With one busy, the other gets a second session; then it takes turns.
	err = pgx.BeginFunc(ctx, a, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `select 1`)
		return errors.Join(err, b.Ping(ctx))
	})
	seen := map[int]bool{}
	for range 10 {
		var pid int
		err = errors.Join(err, b.QueryRow(ctx, `select pg_backend_pid()`).Scan(&pid))
		seen[pid] = true
	}
	if err == nil && len(seen) < 2 {
		err = errors.New("every transaction of a connection runs in the same session of the server")
	}
	return err
}

// patientConnect connects as soon as connections are taken.
func patientConnect(ctx context.Context, address string) (*pgx.Conn, error) {
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for {
		conn, err := pgx.Connect(ctx, address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-retry.C:
		}
	}
}

// poolerFromEnv returns the pooler's URL, or nil.
func poolerFromEnv() (*url.URL, error) {
	env := os.Getenv(PoolerEnv)
	if env == "" {
		return nil, nil
	}
	u, err := url.Parse(env)
	if err != nil {
		return nil, fmt.Errorf("%s is no URL", PoolerEnv)
	}
	return u, nil
}
