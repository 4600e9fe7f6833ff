package pgtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgembed"
)

// Psql returns psql as the role, with the search path that a login has who sets
// none, for what is run as users have it printed. It stops at the first error,
// prints rows only, and is killed when the test is over.
func (db *DB) Psql(t testing.TB, role Role, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	args = append([]string{"-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"}, args...)
	cmd := exec.CommandContext(ctx, PsqlPath(t), args...)
	cmd.WaitDelay = 30 * time.Second // a busy machine lets the output wait when psql has ended
	cmd.Env = append(os.Environ(), db.Env(t, role)...)
	return cmd
}

// Env returns the PG… variables with which libpq connects as the role.
func (db *DB) Env(t testing.TB, role Role) []string {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.URL(role))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return []string{
		"PGHOST=" + cfg.Host, "PGPORT=" + strconv.Itoa(int(cfg.Port)), "PGUSER=" + cfg.User,
		"PGPASSWORD=" + cfg.Password, "PGDATABASE=" + cfg.Database,
	}
}

// PsqlPath returns where psql is: on the path, or beside the server.
func PsqlPath(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("psql"); err == nil {
		return path
	}
	found, err := pgembed.Find()
	if err != nil {
		t.Fatalf("pgtest: psql: %v", err)
	}
	return filepath.Join(filepath.Dir(found.Postgres), "psql")
}
