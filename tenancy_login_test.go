package deed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// A setting that cannot be read is no tenant and no error, whatever rows there
// are: an error that came only where one matched would tell of it.
func TestContract_D7_UnreadableSettingTellsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	a, _ := twoTenants(t, db)
	for _, setting := range []string{"x", "0a", a.String() + "0", "{" + a.String() + "}", " " + a.String(), "null", "'"} {
		asTenant(t, db, nil, func(tx pgx.Tx) {
			if _, err := tx.Exec(ctx, `select set_config('app.current_tenant_id', $1, true)`, setting); err != nil {
				t.Fatal(err)
			}
			for table, want := range tableCases {
				if want != ownRows {
					continue
				}
				for _, where := range []string{"true", "false", "tenant_id = '" + a.String() + "'"} {
					n := -1
					err := tx.QueryRow(ctx, fmt.Sprintf(`select count(*) from deed.%s where %s`, table, where)).Scan(&n)
					if n != 0 || err != nil {
						t.Fatalf("setting %q, %s where %s: %d rows, %v; want none and no error", setting, table, where, n, err)
					}
				}
			}
		})
		for _, call := range []string{
			`select deed.publish('orders', '{}')`, `select id from deed.publish_many('{orders}', '{"{}"}')`, `select id from deed.publish_one('orders', '{}')`,
			`select deed.suppress('email', '{x@y.z}', 'x', 'x')`,
		} {
			asTenant(t, db, nil, func(tx pgx.Tx) {
				if _, err := tx.Exec(ctx, `select set_config('app.current_tenant_id', $1, true)`, setting); err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(ctx, call); sqlState(err) != "DDTEN" {
					t.Errorf("setting %q: %s: %v, want DDTEN", setting, call, err)
				}
			})
		}
	}
}

// A login that is bound sees its tenants and publishes for them, and for no
// other, whatever its transaction sets.
func TestContract_D7_ABoundLogin(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	a, b := twoTenants(t, db)
	admin := db.Pool(pgtest.Admin)
	login := pgtest.One[string](t, db.Pool(pgtest.App), `select session_user::text`)
	bind := func(ids ...tenant.ID) {
		t.Helper()
		if changed, err := tenant.Bind(ctx, admin, login, ids, audit.Act{By: "somebody", Reason: "test"}); err != nil || !changed {
			t.Fatalf("Bind: %t, %v", changed, err)
		}
	}
	// sees returns the tenants whose messages are visible, and what publishing does.
	sees := func(set *tenant.ID) (tenants string, publishing error) {
		t.Helper()
		asTenant(t, db, set, func(tx pgx.Tx) {
			tenants = pgtest.One[string](t, tx, `select coalesce(string_agg(distinct substr(tenant_id::text, 1, 2), ','), '') from deed.channel_outbox`)
			_, publishing = deed.Publish(ctx, tx, message("orders", 1))
		})
		return tenants, publishing
	}
	check := func(what string, set *tenant.ID, want string) {
		t.Helper()
		got, err := sees(set)
		if got != want {
			t.Errorf("%s: sees %q, want %q", what, got, want)
		}
		if want == "" && deed.CodeOf(err) != deed.Forbidden || want != "" && err != nil {
			t.Errorf("%s: publishing: %v", what, err)
		}
	}
	check("not bound, b set", &b, "0b")
	bind(a)
	check("bound to a, a set", &a, "0a")
	check("bound to a, b set", &b, "")
	check("bound to a, none set", nil, "0a")
	asTenant(t, db, &b, func(tx pgx.Tx) {
		if _, err := delivery.Suppress(ctx, tx, nil, delivery.Coverage{Channel: delivery.Email}, []string{"x@example.com"}, audit.Act{By: "x", Reason: "x"}); deed.CodeOf(err) != deed.Forbidden {
			t.Errorf("bound to a, suppresses for b: %v", err)
		}
	})
	asTenant(t, db, nil, func(tx pgx.Tx) {
		if stored := pgtest.One[string](t, tx, `
			with made as (select id from deed.publish_many('{orders}', '{"{}"}'))
			select deed.current_tenant()::text from made`); stored != a.String() {
			t.Errorf("bound to a, none set: is %s", stored)
		}
	})
	bind(a, b)
	check("bound to both, a set", &a, "0a")
	check("bound to both, b set", &b, "0b")
	check("bound to both, none set", nil, "")
	check("bound to both, another set", &tenant.ID{0xc}, "")
	if changed, err := tenant.Bind(ctx, admin, login, []tenant.ID{b, a}, audit.Act{By: "somebody", Reason: "again"}); changed || err != nil {
		t.Errorf("the same again: changed %t, %v", changed, err)
	}
	bindings, err := tenant.Bindings(ctx, admin)
	if err != nil || len(bindings) != 1 || bindings[0].Login != login || len(bindings[0].Tenants) != 2 {
		t.Errorf("Bindings: %+v, %v", bindings, err)
	}
	bind()
	check("bound no longer, b set", &b, "0b")
	if got := pgtest.One[string](t, admin, `select string_agg(action, ',' order by n) from deed.audit_log where subject_type = 'login'`); got != "bind,bind,unbind" {
		t.Errorf("the audit log has %s", got)
	}

	worker := pgtest.One[string](t, db.Pool(pgtest.Worker), `select session_user::text`)
	for login, ids := range map[string][]tenant.ID{worker: {a}, "nobody-of-that-name": {a}, login: {{0xd}}} {
		if _, err := tenant.Bind(ctx, admin, login, ids, audit.Act{By: "somebody", Reason: "test"}); !errors.Is(err, tenant.ErrCannotBind) {
			t.Errorf("Bind %s to %v: %v, want ErrCannotBind", login, ids, err)
		}
	}
}

// Who drains and who operates writes through functions alone: neither writes an
// audit row of another's name or time, takes pending rows away, or makes
// receipts up.
func TestContract_D7_TablesAreWrittenByFunctionsAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, role := range []string{"deed_app", "deed_worker", "deed_admin"} {
		writable := pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select coalesce(string_agg(table_name || ' ' || privilege_type, ', ' order by 1), '')
			from information_schema.role_table_grants
			where table_schema = 'deed' and grantee = $1 and privilege_type <> 'SELECT'
			  -- Names what has been delivered, for deed.purge to remove.
			  and table_name || ' ' || privilege_type <> 'purges INSERT'`, role)
		if writable != "" {
			t.Errorf("%s may write by hand: %s", role, writable)
		}
		// What was granted of single columns stands nowhere else.
		columns := pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select coalesce(string_agg(concat_ws(' ', a.attrelid::regclass, a.attname, g.privilege_type), ', ' order by a.attname), '')
			from pg_attribute a
			join pg_class c on c.oid = a.attrelid and c.relnamespace = 'deed'::regnamespace
			cross join lateral aclexplode(a.attacl) g
			where g.grantee = $1::regrole and g.privilege_type <> 'SELECT'`, role)
		want := ""
		if role == "deed_admin" { // what an operator may set
			want = "deed.settings dedup_window UPDATE, deed.settings max_delivery UPDATE, deed.settings max_payload UPDATE, deed.settings retention UPDATE, deed.settings strict_topics UPDATE"
		}
		if columns != want {
			t.Errorf("%s may write the columns %s, want %s", role, columns, want)
		}
	}
	for role, call := range map[pgtest.Role]string{
		pgtest.Worker: `select deed.unsuppress('email', '{x@y.z}', 'x', 'x', '00000000-0000-0000-0000-000000000000')`,
		pgtest.Admin:  `insert into deed.audit_log (actor, login, action, subject_type) values ('x', 'x', 'x', 'x')`,
	} {
		if _, err := db.Pool(role).Exec(context.Background(), call); sqlState(err) != "42501" {
			t.Errorf("%v may run %q: %v", role, call, err)
		}
	}
}

// Who binds a login to a tenant while its removal is being asked for is told that it is gone, and the login is bound to nothing.
func TestBindLogin_BesideARemoval(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := tenant.ID{0xb}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), b, "b"); err != nil {
		t.Fatal(err)
	}
	operators := db.NewPool(pgtest.Admin, 2)
	login := pgtest.One[string](t, db.Pool(pgtest.App), `select session_user::text`)
	act := audit.Act{By: "ann", Reason: "x"}
	asking := beginFor(t, operators, b, pgx.ReadCommitted)
	if first, err := tenant.Remove(t.Context(), asking, b, act); !first || err != nil {
		t.Fatalf("Remove: %t, %v", first, err)
	}
	bound := make(chan error, 1)
	go func() {
		_, err := tenant.Bind(t.Context(), operators, login, []tenant.ID{b}, act)
		bound <- err
	}()
	eventually(t, "who binds to wait for who removes", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `
			select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%bind_login%' and pid <> pg_backend_pid())`)
	})
	if err := asking.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-bound; !errors.Is(err, tenant.ErrCannotBind) || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("a login is bound to a tenant that was removed meanwhile: %v", err)
	}
	list, err := tenant.Bindings(t.Context(), operators)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the logins that are bound", len(list), 0)
}

// A removal ends though a login was bound to its tenant beside it, as older versions let one: the login is shut, or has
// what else it was bound to.
func TestTenantRemoval_EndsThoughALoginIsBound(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	for id, name := range map[tenant.ID]string{a: "a", b: "b"} {
		if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), id, name); err != nil {
			t.Fatal(err)
		}
	}
	askRemoval(t, db, b)
	db.Exec(t, pgtest.Owner, `
		insert into deed.tenant_logins (login, tenant_id)
		values ('late', $2::text::uuid), ('other', $1::text::uuid), ('other', $2::text::uuid)`, a.String(), b.String())
	db.Exec(t, pgtest.Owner, `update deed.settings set bound_logins = true`)
	// What other tests' transactions do on the same server is waited for; what goes round is not.
	eventuallyWithin(t, 3*time.Minute, "the removal to be over", func() bool {
		state := "going"
		for steps := 0; state == "going"; steps++ {
			if steps == 300 {
				t.Fatal("the removal goes round, and has no end")
			}
			state = removalStep(t, db.Pool(pgtest.Worker), b, 5000)
		}
		return state == "done"
	})
	list, err := tenant.Bindings(t.Context(), db.Pool(pgtest.Admin))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the logins that are bound", fmt.Sprint(list), fmt.Sprintf("[{late []} {other [%s]}]", a))
	same(t, "logins that were taken away", pgtest.One[int](t, db.Pool(pgtest.Owner), `select (taken ->> 'tenant_logins')::int from deed.tenant_removals`), 2)
	verified(t, db)
}
