package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/tenant"
)

// version is set by the build.
var version = "dev"

// app is what every command needs: the settings that all of them share.
type app struct {
	databaseURL, configFile, logLevel, logFormat, worker string

	environment, onNewCluster string

	timeout time.Duration  // of commands that look or change and end
	file    *config.Config // read once; nil without a file
}

// config reads the configuration file, if there is one.
func (a *app) config() (*config.Config, error) {
	if a.file != nil {
		return a.file, nil
	}
	path := config.Pick(a.configFile, a.configFile != "", os.Getenv("DEED_CONFIG"), "", "")
	asked := path != ""
	if !asked {
		path = "deed.yaml"
	}
	file, err := config.Load(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !asked:
		file = &config.Config{}
	case err != nil:
		return nil, &exitError{exitUsage, err}
	}
	a.file = file
	return file, nil
}

// lacks says which secrets of parts of the file this process does not have ([config.Config.Lacks]).
func lacks(file *config.Config, parts ...string) error {
	if err := file.Lacks(parts...); err != nil {
		return &exitError{exitUsage, err}
	}
	return nil
}

// setting picks a setting: flag, environment, file, default.
func setting(flag, name, file, otherwise string) string {
	return config.Pick(flag, flag != "", os.Getenv(name), file, otherwise)
}

// database returns the connection string. Nothing of it may be printed.
func (a *app) database() (string, error) {
	if url := setting(a.databaseURL, "DEED_DATABASE_URL", "", ""); url != "" {
		return url, nil
	}
	file, err := a.config()
	if err != nil {
		return "", err
	}
	if err := lacks(file, "database_url"); err != nil || file.DatabaseURL != "" {
		return file.DatabaseURL, err
	}
	for _, name := range []string{"PGHOST", "PGDATABASE", "PGSERVICE", "PGUSER"} {
		if os.Getenv(name) != "" {
			return "", nil // pgx reads the rest
		}
	}
	return "", usagef("which database? Give --database-url, set DEED_DATABASE_URL (or PGHOST and its like), or write database_url in deed.yaml; deed dev needs none")
}

// pool connects to the database.
func (a *app) pool(ctx context.Context) (*pgxpool.Pool, error) {
	url, err := a.database()
	if err != nil {
		return nil, err
	}
	return openPool(ctx, url, "")
}

// openPool has connections to spare: one that went silent keeps its place for
// a while. A relay's workers have a pool of their own besides.
func openPool(ctx context.Context, url, worker string) (*pgxpool.Pool, error) {
	cfg, err := parseDatabase(url, worker)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(url, "pool_max_conns") {
		cfg.MaxConns = 8
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return pool, nil
}

// parseDatabase reads a connection string and what PG… variables add to it. For
// the server's lists of sessions they have this version's name and the worker's,
// if it has one, unless the string gives them another.
func parseDatabase(text, worker string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, &exitError{exitUsage, databaseURLError(text, err)}
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = strings.TrimSpace("deed/" + version + " " + worker)
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	return cfg, nil
}

// databaseURLError says what is wrong without repeating the text. Where it
// cannot even be told which part is the password, pgx's own reason is left out
// too: it may quote some of it.
func databaseURLError(text string, err error) error {
	if text == "" {
		return fmt.Errorf("the PG… variables cannot be used: %s", strings.TrimPrefix(err.Error(), "cannot parse ``: "))
	}
	const want = "want postgres://user:password@host:port/database (special characters as %XX) or keywords such as host=… dbname=…"
	_, urlErr := url.Parse(text)
	reason := errors.Unwrap(err)
	if urlErr != nil || reason == nil || !strings.Contains(text, "=") && !strings.Contains(text, "://") {
		return fmt.Errorf("the database url cannot be read: %s", want)
	}
	return fmt.Errorf("the database url cannot be read: %w; %s", reason, want)
}

// connect opens one connection.
func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := parseDatabase(url, "")
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// takesLong is an annotation of commands that take as long as what they are given:
// they have only the --timeout that is asked for.
const takesLong = "takes-long"

// bounded gives a command, and all that are below it, the --timeout.
func (a *app) bounded(cmd *cobra.Command) *cobra.Command {
	a.timeout = 10 * time.Minute
	cmd.PersistentFlags().Var((*durationFlag)(&a.timeout), "timeout", "give up after this long; 0: never; commands that take as long as what they are given do so only where it is given")
	a.bound(cmd)
	return cmd
}

func (a *app) bound(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.bound(sub)
	}
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, long := cmd.Annotations[takesLong]; a.timeout == 0 || long && !cmd.Flags().Changed("timeout") {
			return run(cmd, args)
		}
		ctx, cancel := context.WithTimeoutCause(cmd.Context(), a.timeout, fmt.Errorf("--timeout %s is over", a.timeout))
		defer cancel()
		cmd.SetContext(ctx)
		err := run(cmd, args)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return err
	}
}

// withOperator runs fn with what an operator does.
func (a *app) withOperator(ctx context.Context, fn func(*admin.Client, *pgxpool.Pool) error) error {
	pool, err := a.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	on, environment, err := a.newCluster()
	if err != nil {
		return err
	}
	c, err := admin.New(ctx, pool, admin.Options{OnNewCluster: on, Environment: environment})
	if err != nil {
		return err
	}
	return fn(c, pool)
}

// newCluster is what a relay of these settings does on a new cluster, and its
// environment. A file that --config does not name and that cannot be read is a
// matter of the commands that need one.
func (a *app) newCluster() (on deed.OnNewCluster, environment string, err error) {
	file, err := a.config()
	switch {
	case err != nil && a.configFile != "":
		return "", "", err
	case err != nil:
		file = &config.Config{}
	}
	on = deed.OnNewCluster(setting(a.onNewCluster, "DEED_ON_NEW_CLUSTER", file.OnNewCluster, ""))
	environment = setting(a.environment, "DEED_ENVIRONMENT", file.Environment, "")
	if err := on.Check(environment); err != nil {
		return "", "", usagef("--on-new-cluster, --environment: %w", err)
	}
	if on == "" && holds(file) {
		on = deed.Hold
	}
	return on, environment, nil
}

// outboxEnv is the variable of a setting of deliveries.
func outboxEnv(flag string) string {
	return "DEED_CHANNELS_OUTBOX_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// holds reports whether a relay of the file holds on a new cluster by default.
// One that has its deliveries from a flag, or is deed dev, knows better.
func holds(file *config.Config) bool {
	if file.Campaigns.Enabled || file.Runs.Enabled || len(file.Sources) > 0 || file.Public.Links {
		return true
	}
	for _, s := range file.Sinks {
		if s.Type == "webhook" {
			return true
		}
	}
	enabled, err := strconv.ParseBool(setting("", outboxEnv("enabled"), file.Outbox.Enabled, ""))
	return err == nil && enabled
}

// withConn runs fn with one connection, for migrations.
func (a *app) withConn(ctx context.Context, fn func(*pgx.Conn) error) error {
	url, err := a.database()
	if err != nil {
		return err
	}
	conn, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return fn(conn)
}

// logger writes to w as the settings say.
func (a *app) logger(w io.Writer) (*slog.Logger, error) {
	file, err := a.config()
	if err != nil {
		return nil, err
	}
	var level slog.Level
	name := setting(a.logLevel, "DEED_LOG_LEVEL", file.LogLevel, "info")
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return nil, usagef("log level %q is none of debug, info, warn and error", name)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch format := setting(a.logFormat, "DEED_LOG_FORMAT", file.LogFormat, "text"); format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	default:
		return nil, usagef("log format %q is neither text nor json", format)
	}
}

// tenantFlag is a --tenant of a command; the empty string is none.
type tenantFlag struct{ text string }

func (t *tenantFlag) add(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&t.text, "tenant", "", usage+"; also DEED_TENANT")
}

// given reports whether the flag is; DEED_TENANT limits what other flags select, and selects nothing by itself.
func (t *tenantFlag) given() bool { return t.text != "" }

func (t *tenantFlag) id() (*tenant.ID, error) {
	text := setting(t.text, "DEED_TENANT", "", "")
	if text == "" {
		return nil, nil
	}
	id, err := tenant.Parse(text)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return &id, nil
}

// inTenant runs fn in a transaction that acts for a tenant, if one is given.
func inTenant(ctx context.Context, pool *pgxpool.Pool, owner *tenant.ID, fn func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if owner != nil {
			if err := tenant.Set(ctx, tx, *owner); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}
