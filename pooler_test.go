package deed_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

const poolerSetting = "default_query_exec_mode=exec"

// cachingPool prepares statements, whatever the connection string says.
func cachingPool(t *testing.T, db *pgtest.DB) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL(pgtest.Admin))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A client that prepares statements behind a pooler is told of the setting, at
// the latest when a statement is not there. "make test" runs this through a
// pooler too.
func TestClient_NamesThePoolersSetting(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	pool := cachingPool(t, db)
	var log syncBuilder
	_, err := deed.New(ctx, pool, deed.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	pooled := os.Getenv(pgtest.PoolerEnv) != ""
	if err != nil && (!pooled || !strings.Contains(err.Error(), poolerSetting)) {
		t.Fatal(err)
	}
	if err == nil && strings.Contains(log.String(), poolerSetting) != pooled {
		t.Errorf("through a pooler: %t; New logs %q", pooled, log.String())
	}
	if pooled {
		return
	}
	operator, err := admin.New(ctx, pool, admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Status(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `deallocate all`); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Status(ctx); err == nil || !strings.Contains(err.Error(), poolerSetting) {
		t.Errorf("a statement that another session has: %v", err)
	}
}
