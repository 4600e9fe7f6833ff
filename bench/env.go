package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// login is a plain one, as row-level security wants it; its password protects
// a server that ends with this program.
const login = "bench"

// workerConns is how many connections each peer's workers may have.
const workerConns = 16

// env is where one measure of one peer is taken: a new database, copied from
// the peer's template.
type env struct {
	*bench
	peer
	measure  string
	database string
	owner    *pgx.Conn // the superuser's, in the database
	network  *network  // that the plain login's connections go through; nil: none
	pools    []*pgxpool.Pool
	sent     statements
}

// makeTemplate makes the database that a peer's are copied from, with the
// peer's schema, and the business table that everyone writes to.
func (b *bench) makeTemplate(ctx context.Context, p peer) error {
	name := "template_" + p.template()
	if err := b.exec(ctx, `create database `+name); err != nil {
		return err
	}
	url := b.cluster.URL(name)
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := p.install(ctx, pool); err != nil {
		return err
	}
	for _, sql := range []string{
		`do $$ begin
		   if not exists (select from pg_roles where rolname = '` + login + `') then
		     create role ` + login + ` login inherit nosuperuser nobypassrls password '` + login + `';
		   end if;
		 end $$`,
		`create table business (id bigint generated always as identity primary key, client int not null, amount numeric not null, at timestamptz not null default now())`,
		`grant insert on business to ` + login,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if err := p.grant(ctx, pool); err != nil {
		return err
	}
	if p, ok := p.(filler); ok {
		if err := p.fillTemplate(ctx, pool, b.opts); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	_, err = pool.Exec(ctx, `vacuum (freeze, analyze)`)
	return err
}

// exec runs a statement as the superuser, outside the measured databases.
func (b *bench) exec(ctx context.Context, sql string) error {
	if _, err := b.admin.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

func (b *bench) newEnv(ctx context.Context, m measure, p peer) (*env, error) {
	e := &env{bench: b, peer: p, measure: m.name, database: "bench"}
	if err := b.exec(ctx, `drop database if exists bench with (force)`); err != nil {
		return nil, err
	}
	sql := `create database bench template template_` + p.template()
	if _, ok := p.(filler); ok {
		sql += ` strategy file_copy` // through the WAL it would be gigabytes
	}
	if err := b.exec(ctx, sql); err != nil {
		return nil, err
	}
	var err error
	if e.owner, err = pgx.Connect(ctx, b.cluster.URL(e.database)); err != nil {
		return nil, err
	}
	if m.roundTrip > 0 {
		if e.network, err = newNetwork(ctx, e.cluster.URL(e.database), m.roundTrip); err != nil {
			return nil, err
		}
	}
	return e, b.exec(ctx, `checkpoint`)
}

func (e *env) close(ctx context.Context) error {
	e.closePools()
	if e.network != nil {
		e.network.close()
	}
	if err := e.owner.Close(ctx); err != nil {
		return err
	}
	return e.exec(ctx, `drop database bench with (force)`)
}

// url is the database's, for the plain login.
func (e *env) url() string {
	u, err := url.Parse(e.cluster.URL(e.database))
	if err != nil {
		panic(err) // it is our own
	}
	u.User = url.UserPassword(login, login)
	if e.network != nil {
		u.Host, u.RawQuery = e.network.address(), "sslmode=disable"
	}
	return u.String()
}

// pool returns connections of the plain login; all of them are made now.
func (e *env) pool(ctx context.Context, size int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(e.url())
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = int32(size), int32(size)
	cfg.ConnConfig.Tracer = e.tracer()
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	e.pools = append(e.pools, pool)
	conns := make([]*pgxpool.Conn, 0, size)
	defer func() {
		for _, c := range conns {
			c.Release()
		}
	}()
	for range size {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	return pool, nil
}

// tracer counts statements where that is what is measured; elsewhere it would
// only take time.
func (e *env) tracer() pgx.QueryTracer {
	switch e.measure {
	case "cost", "stream cost", "stream idle":
		return &e.sent
	}
	return nil
}

func (e *env) closePools() {
	for _, pool := range e.pools {
		pool.Close()
	}
	e.pools = nil
}

// settle gives the tables the statistics and the visibility map of a database
// in use, and begins a new checkpoint.
func (e *env) settle(ctx context.Context) error {
	if _, err := e.owner.Exec(ctx, `vacuum (analyze)`); err != nil {
		return err
	}
	return e.exec(ctx, `checkpoint`)
}

// record keeps a figure of this environment's peer.
func (e *env) record(metric, unit string, value float64) {
	e.figures.add(e.measure, metric, unit, e.name(), value)
}

// expect notes a count that is not what it should be.
func (e *env) expect(what string, got, want int) {
	if got != want {
		e.wrong = append(e.wrong, fmt.Sprintf("%s: %s: %s: %d, want %d", e.measure, e.name(), what, got, want))
	}
}

// expectStored checks what the peer's tables say of messages.
func (e *env) expectStored(ctx context.Context, waiting, finished int) error {
	gotWaiting, gotFinished, err := e.stored(ctx, e.owner)
	if err != nil {
		return err
	}
	e.expect("waiting in the database", gotWaiting, waiting)
	e.expect("finished in the database", gotFinished, finished)
	return nil
}
