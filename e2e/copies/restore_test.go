package copies_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// A dump's text is parsed anew: every object must come back as it was, or each
// restored database would seem to have drifted.
func TestRestore_EveryObjectComesBackAsItWas(t *testing.T) {
	t.Parallel()
	c := pgtest.Private(t, pgembed.Options{Unsafe: true})
	db := c.DB(t)
	from := connect(t, c.URL(db.Name()))
	if _, err := schema.InstallFaces(t.Context(), from, schema.Faces(), nil); err != nil {
		t.Fatal(err)
	}
	valid(t, from)
	valid(t, restored(t, c, db.Name(), c))

	bare := restored(t, c, db.Name(), c, "--no-acl")
	if _, err := schema.Up(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	valid(t, bare)
}

// A dump of a database has no roles, and a cluster that never had them refuses each
// policy and grant that names one.
func TestRestore_WithoutTheRoles(t *testing.T) {
	t.Parallel()
	c := pgtest.Private(t, pgembed.Options{Unsafe: true})
	db := c.DB(t)
	from := connect(t, c.URL(db.Name()))
	if _, err := schema.InstallFaces(t.Context(), from, schema.Faces(), nil); err != nil {
		t.Fatal(err)
	}
	to := restored(t, c, db.Name(), pgtest.Private(t, pgembed.Options{Unsafe: true}))
	if _, err := schema.Up(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	valid(t, to)
}

func valid(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if differences, err := schema.Validate(t.Context(), conn); len(differences) != 0 || err != nil {
		t.Errorf("Validate: %d differences: %q, %v", len(differences), differences, err)
	}
}

// restored is a new database on the cluster to, made from a dump of the database
// name; what cannot be restored is passed over, as pg_restore does.
func restored(t *testing.T, from *pgtest.Cluster, name string, to *pgtest.Cluster, flags ...string) *pgx.Conn {
	t.Helper()
	made := fmt.Sprintf("restored_%d", len(flags))
	if _, err := connect(t, to.URL("postgres")).Exec(t.Context(), `create database `+made); err != nil {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(t.Context(), program(t, "pg_dump"), "-Fc", from.URL(name)).Output()
	if err != nil {
		t.Fatal("pg_dump: ", err)
	}
	restore := exec.CommandContext(t.Context(), program(t, "pg_restore"), append(flags, "-d", to.URL(made))...)
	restore.Stdin = bytes.NewReader(text)
	if out, err := restore.CombinedOutput(); err != nil && from == to {
		t.Fatalf("pg_restore: %v\n%s", err, out)
	}
	return connect(t, to.URL(made))
}
