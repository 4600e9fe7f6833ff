package contact_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// Seed 004's INSERT makes the contact, and of its smoke test 4 each statement is
// refused by the seed's own index, in one tenant: the same value in two is allowed.
func TestContract_O15_TheSeedsInsert(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := schema.InstallFaces(t.Context(), db.Conn(t, pgtest.Owner), []string{"contacts"}, nil); err != nil {
		t.Fatal(err)
	}
	app := db.Conn(t, pgtest.App)
	if _, err := app.Exec(t.Context(), `set search_path = public`); err != nil { // as it is unless somebody sets it
		t.Fatal(err)
	}
	const tenant = "'00000000-0000-0000-0000-000000000000'"
	fails := func(sql, state, index string) {
		t.Helper()
		_, err := app.Exec(t.Context(), sql)
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pg.Code != state || pg.ConstraintName != index {
			t.Errorf("%s: %v, want %s of %q", sql, err, state, index)
		}
		if ok && strings.Contains(strings.ToLower(pg.Message+pg.Detail+pg.Hint), "example.com") {
			t.Errorf("the error has the address: %s %s", pg.Message, pg.Detail)
		}
	}
	fails(`INSERT INTO contact_identities (tenant_id, contact_id, type, value)
VALUES
  (`+tenant+`, gen_random_uuid(), 'external_id', 'acct_123'),
  (`+tenant+`, gen_random_uuid(), 'external_id', 'acct_123')`, "23505", "uniq_identity_external")
	fails(`INSERT INTO contact_identities (tenant_id, contact_id, type, value)
VALUES
  (`+tenant+`, gen_random_uuid(), 'email', 'Alice@Example.com'),
  (`+tenant+`, gen_random_uuid(), 'email', 'alice@example.com')`, "23505", "uniq_identity_email_lower")
	same(t, "kept", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.contacts`), 0)

	alice := pgtest.One[string](t, app, `INSERT INTO contact_identities (tenant_id, contact_id, type, value) VALUES (`+tenant+`, gen_random_uuid(), 'email', 'Alice@Example.com') returning contact_id::text`)
	same(t, "known as", knownAs(t, db, "email", "ALICE@example.com"), alice)
	fails(`INSERT INTO contact_identities (contact_id, type, value) VALUES ('`+alice+`', 'email', 'alice@example.com')`, "23505", "contact_identities_pkey")
	fails(`INSERT INTO contact_identities (contact_id, type, value) VALUES (gen_random_uuid(), 'phone', '030 123')`, "DDARG", "")
	fails(`INSERT INTO contact_identities (tenant_id, contact_id, type, value) VALUES (gen_random_uuid(), gen_random_uuid(), 'email', 'x@example.com')`, "DDTEN", "")
	if _, err := db.Pool(pgtest.Worker).Exec(t.Context(), `insert into public.contact_identities (tenant_id, contact_id, type, value) values (gen_random_uuid(), gen_random_uuid(), 'email', 'x@example.com')`); err == nil || !strings.Contains(err.Error(), "not registered") {
		t.Errorf("a tenant that nobody has registered: %v", err)
	}
	db.Exec(t, pgtest.App, `insert into public.contact_identities (contact_id, type, value) VALUES ('`+alice+`', 'phone', '+49 30 123456')`)
	same(t, "a second one", knownAs(t, db, "phone", "+4930123456"), alice)
	same(t, "shown", pgtest.One[string](t, app, `select string_agg(type || ' ' || value, ', ' order by type) from contact_identities where contact_id = $1`, alice), "email alice@example.com, phone +4930123456")
	for _, change := range []string{`update public.contact_identities set value = 'x@example.com'`, `delete from public.contact_identities`} {
		if _, err := db.Pool(pgtest.Admin).Exec(t.Context(), change); err == nil || !strings.Contains(err.Error(), "by hand") {
			t.Errorf("%s: %v", change, err)
		}
	}

	// What the contact has revoked holds for what it is known by from now on.
	say(t, db, alice, "email", "revoked")
	db.Exec(t, pgtest.App, `insert into public.contact_identities (contact_id, type, value) VALUES ('`+alice+`', 'email', 'Alice@work.example')`)
	same(t, "suppressed", suppressed(t, db), "email:alice@example.com/news email:alice@work.example/news")
}
