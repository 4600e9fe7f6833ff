package schema_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// What a compatible migration would take away a program of before still calls, until the functions are replaced, which may be
// hours later, or days where a step between them fails: gone.sql drops it in the transaction that makes the new ones. Up to
// 0082, which is breaking, whoever calls what was dropped is stopped anyhow.
func TestMigrations_DropNoFunctionBesideItsCallers(t *testing.T) {
	t.Parallel()
	migrations, err := schema.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range migrations {
		if m.Version > 82 && !m.Breaking && strings.Contains(m.SQL, "drop function") {
			t.Errorf("%s drops a function that older programs call beside it: put that into gone.sql", m.Name)
		}
	}
}

var validates = regexp.MustCompile(`(?m)^ *alter table deed\.([a-z_]+) validate constraint ([a-z0-9_]+);$`)

// Rows are looked at in another migration than that which adds the constraint: its lock, which nobody can read beside, is
// held until its transaction ends. Of tables that are small whatever there is of messages that is no matter.
func TestMigrations_ReadNoLargeTableUnderALock(t *testing.T) {
	t.Parallel()
	migrations, err := schema.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	small := []string{"providers", "audiences", "campaign_runs", "job_queue"}
	found, said := 0, 0
	for _, m := range migrations {
		said += strings.Count(m.SQL, "validate constraint ")
		for _, v := range validates.FindAllStringSubmatch(m.SQL, -1) {
			found++
			if regexp.MustCompile(`add constraint `+v[2]+`\s`).MatchString(m.SQL) && !slices.Contains(small, v[1]) {
				t.Errorf("%s adds %s to deed.%s, and reads the whole table before it lets it go: validate it in a migration of its own", m.Name, v[2], v[1])
			}
		}
	}
	if found != said {
		t.Errorf("%d of %d lines that validate a constraint were looked at", found, said)
	}
}

// While a migration waits, what older programs call is there.
func TestUp_LeavesFunctionsUntilTheirSuccessorsAreThere(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	db.Exec(t, pgtest.Owner, `
		delete from deed.migrations where version between 127 and 129;
		update deed.migrations set hash = 'older' where version = 0;
		create function deed.roll_up(int, text) returns int language sql set search_path = pg_catalog, pg_temp as 'select 1'`)
	there := func() bool {
		return pgtest.One[bool](t, owner, `select to_regprocedure('deed.roll_up(int, text)') is not null`)
	}
	open, err := db.Conn(t, pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(context.Background()) }()
	if _, err := open.Exec(t.Context(), `lock table deed.channel_outbox in access share mode`); err != nil {
		t.Fatal(err)
	}
	conn := db.Conn(t, pgtest.Owner)
	migrated := make(chan error, 1)
	go func() { // ends with the open transaction
		_, err := schema.Up(context.Background(), conn)
		migrated <- err
	}()
	if !pgtest.Wait(pgtest.Patience, func() bool { // 0127 is recorded, and 0128 waits
		return len(migrated) > 0 || pgtest.One[bool](t, owner, `select exists (select from deed.migrations where version = 127)`)
	}) || !there() {
		t.Error("the function is gone before the migrations are over, or they do not come so far")
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	if there() {
		t.Error("what was before is still there")
	}
}
