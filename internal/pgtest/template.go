package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/schema"
)

// A Role says whose rights a connection has.
type Role string

const (
	App    Role = "app"    // a plain login that holds deed_app
	Worker Role = "worker" // a plain login that holds deed_worker
	Admin  Role = "admin"  // a plain login that holds deed_admin
	Team   Role = "both"   // a plain login that holds deed_app and deed_worker, as who speaks a seed's SQL
	Owner  Role = "owner"  // the superuser, for breaking things by hand
)

// loginPassword is not a secret: on a socket nobody asks for it, and on
// loopback the server lives no longer than the tests.
const loginPassword = "deed_test"

func (r Role) login() string { return "deed_test_" + string(r) }

// template returns the name of the database that tests' databases are cloned
// from. It is made once per server and schema, by whichever process comes
// first; one that crashes on the way leaves no database of that name.
func (s *server) template(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made != "" {
		return s.made, nil
	}
	name := "deed_template_" + schema.Hash()
	err := s.do(ctx, "postgres", func(conn *pgx.Conn) error {
		// Held until the connection ends.
		if _, err := conn.Exec(ctx, `select pg_advisory_lock(hashtextextended('deed.pgtest.template', 0))`); err != nil {
			return err
		}
		var present bool
		err := conn.QueryRow(ctx, `select exists (select from pg_database where datname = $1)`, name).Scan(&present)
		if err != nil || present {
			return err
		}
		return s.makeTemplate(ctx, conn, name)
	})
	if err != nil {
		return "", fmt.Errorf("make the template: %w", err)
	}
	s.made = name
	return name, nil
}

func (s *server) makeTemplate(ctx context.Context, conn *pgx.Conn, name string) error {
	draft := name + "_draft"
	run := func(statements ...string) error {
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	}
	err := run(
		`drop database if exists `+draft+` with (force)`,
		`create database `+draft+` template template0 encoding 'UTF8'`,
	)
	if err != nil {
		return err
	}
	err = s.do(ctx, draft, func(conn *pgx.Conn) error {
		if _, err := schema.Up(ctx, conn); err != nil {
			return err
		}
		// Clones start with the statistics and the visibility map that a
		// database in use has.
		_, err := conn.Exec(ctx, `vacuum (freeze, analyze)`)
		return err
	})
	if err == nil {
		// The vacuum has removed the file that spares a session reading the
		// catalogue when it begins. This session writes it, and it is cloned.
		err = s.do(ctx, draft, func(conn *pgx.Conn) error { return conn.Ping(ctx) })
	}
	if err != nil {
		return err
	}
	for _, role := range []Role{App, Worker, Admin, Team} {
		held := "deed_" + string(role)
		if role == Team {
			held = "deed_app, deed_worker"
		}
		err := run(
			`do $$ begin
			   create role `+role.login()+` login inherit nosuperuser nobypassrls password '`+loginPassword+`';
			 exception when duplicate_object or unique_violation then
			   null; -- the template of another schema was here before
			 end $$`,
			`grant `+held+` to `+role.login(),
		)
		if err != nil {
			return err
		}
	}
	return run(
		`alter database `+draft+` rename to `+name,
		// A connection to it would stop it from being cloned.
		`alter database `+name+` with is_template true allow_connections false`,
	)
}
