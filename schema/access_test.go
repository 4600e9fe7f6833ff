package schema_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// forget leaves what a dump becomes in a cluster without deed's roles: neither they,
// nor the policies and grants that name them, and a function whose grant was
// refused keeps the one that it was made with.
const forget = `
	drop owned by deed_app, deed_worker, deed_admin cascade;
	drop role deed_app; drop role deed_worker; drop role deed_admin;
	drop policy settings_owner on deed.settings;
	drop policy contracts_owner on deed.contracts;
	drop policy log_owner on deed.log;
	grant execute on all functions in schema deed to public`

// installed is a server of its own, for roles are the cluster's, on which a login
// that may make roles has installed all there is.
func installed(t *testing.T) (super, owner *pgx.Conn) {
	t.Helper()
	c := pgtest.Private(t, pgembed.Options{Unsafe: true})
	super = connect(t, c.URL("postgres"), "")
	execute(t, super, `create role shop login createrole; grant create on database postgres to shop; grant create on schema public to shop`)
	owner = connect(t, c.URL("postgres"), "shop")
	up(t, owner)
	if _, err := schema.InstallFaces(t.Context(), owner, schema.Faces(), nil); err != nil {
		t.Fatal(err)
	}
	return super, owner
}

func TestUp_MakesRolesAndRightsAgain(t *testing.T) {
	t.Parallel()
	super, owner := installed(t)
	execute(t, super, forget)
	execute(t, super, `alter role shop nocreaterole`)
	_, err := schema.Up(t.Context(), owner)
	if err == nil || !strings.Contains(err.Error(), "create role deed_app nologin") {
		t.Errorf("Up without the roles, by a login that may not make them: %v", err)
	}

	execute(t, super, `alter role shop createrole`)
	result := up(t, owner)
	if !slices.Equal(result.Roles, []string{"deed_admin", "deed_app", "deed_worker"}) || result.Rights < 100 {
		t.Errorf("Up made the roles %q and %d policies and grants again", result.Roles, result.Rights)
	}
	if differences, err := schema.Validate(t.Context(), owner); len(differences) != 0 || err != nil {
		t.Errorf("Validate: %q, %v", differences, err)
	}
	if !pgtest.One[bool](t, super, `
		select has_schema_privilege('deed_app', 'deed', 'usage') and has_column_privilege('deed_admin', 'deed.settings', 'retention', 'update')
		  and has_schema_privilege('deed_worker', 'm10_recovery', 'usage')`) {
		t.Error("a role may not use what it is for")
	}
	if got := pgtest.One[string](t, super, `
		select coalesce(string_agg(p.policyname, ' ' order by p.policyname), '') from pg_policies p
		where p.schemaname = 'deed' and p.tablename in ('log', 'run_log') and has_table_privilege('deed_worker', 'deed.' || p.tablename, 'select')`); got != "log_admin log_app log_owner log_worker run_log_admin run_log_app run_log_owner run_log_worker" {
		t.Errorf("of the partitioned logs a worker may read those with the policies %q", got)
	}
	if again := up(t, owner); len(again.Roles)+again.Rights+len(again.Faces) != 0 || again.Functions {
		t.Errorf("the next Up did %+v", again)
	}
}

// What is changed of a partitioned table is a difference, as of any other.
func TestValidate_PartitionedTables(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Conn(t, pgtest.Owner)
	for _, test := range []struct{ change, want string }{
		{`alter policy log_app on deed.log using (true)`, "+ policy log_app for r to deed_app using true"},
		{`grant select on deed.log to public`, "+ grant select to public"},
		{`revoke select on deed.run_log from deed_worker`, "- grant select to deed_worker"},
		{`alter table deed.run_log no force row level security`, "+ table deed.run_log partition by RANGE (run_id) rls=true forced=false"},
		{`drop trigger run_log_rewrite on deed.run_log`, "- CREATE TRIGGER run_log_rewrite "},
		{`drop index deed.log_xid_idx`, "- CREATE INDEX log_xid_idx "},
		{`alter table deed.run_log drop constraint run_log_once`, "- constraint run_log_once "},
	} {
		execute(t, conn, "begin; "+test.change)
		differences, err := schema.Validate(t.Context(), conn)
		if err != nil || !slices.ContainsFunc(differences, func(d string) bool { return strings.HasPrefix(d, test.want) }) {
			t.Errorf("after %s: %q, %v; want %s", test.change, differences, err, test.want)
		}
		execute(t, conn, "rollback")
	}
}

// With migrations to come it cannot be done: they change what is not there.
func TestUp_ErrNeitherRightsNorMigrations(t *testing.T) {
	t.Parallel()
	super, owner := installed(t)
	execute(t, super, forget)
	execute(t, super, `delete from deed.migrations where version > 30`)
	for range 2 {
		_, err := schema.Up(t.Context(), owner)
		if err == nil || !strings.Contains(err.Error(), "restore the dump again") {
			t.Errorf("Up: %v", err)
		}
	}
}

func connect(t *testing.T, url, user string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		cfg.User = user
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}
