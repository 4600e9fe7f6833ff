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
	if again := up(t, owner); len(again.Roles)+again.Rights+len(again.Faces) != 0 || again.Functions {
		t.Errorf("the next Up did %+v", again)
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
