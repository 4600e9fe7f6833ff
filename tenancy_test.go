package deed_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// Every table has row-level security, forced, and the application's role
// cannot bypass it.
func TestContract_D7_EveryTableIsForced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `select deed.keep_partitions(4)`)
	owner := db.Pool(pgtest.Owner)
	open := pgtest.One[string](t, owner, `
		select coalesce(string_agg(relname, ', '), '') from pg_class
		where relnamespace = 'deed'::regnamespace and relkind in ('r', 'p') and relname <> 'migrations'
		  and not (relrowsecurity and relforcerowsecurity)`)
	if open != "" {
		t.Errorf("tables without forced row-level security: %s", open)
	}
	keyed := pgtest.One[string](t, owner, `
		select coalesce(string_agg(c.table_name, ', '), '')
		from information_schema.columns c
		where c.table_schema = 'deed' and c.column_name = 'tenant_id' and c.table_name !~ '^(log_p|run_log_w)'
		  and c.table_name not in ('tenant_logins', 'pauses', 'tenant_removals', 'erased_contents') -- not the application's to read
		  and c.table_name not in ('run_events', 'campaign_audit_log') -- views, which their reader's policies hold for: TestContract_D7_EveryTableEachVerb
		  and c.table_name <> 'finished' -- a view, which has the condition itself: TestContract_D7_FacesShowOnesOwnTenant
		  and not exists (
		    select from pg_policies p
		    where p.schemaname = 'deed' and p.tablename = c.table_name and 'deed_app' = any (p.roles)
		      and p.qual ~ '^\(tenant_id = \( SELECT deed\.current_tenant\(\) AS current_tenant\)\)$')`)
	if keyed != "" {
		t.Errorf("tables with tenants' data and no policy for deed_app: %s", keyed)
	}
	writable := pgtest.One[string](t, owner, `
		select coalesce(string_agg(table_name || ' ' || privilege_type, ', '), '')
		from information_schema.role_table_grants
		where table_schema = 'deed' and grantee = 'deed_app' and privilege_type <> 'SELECT'`)
	if writable != "" {
		t.Errorf("the application may write tables directly: %s", writable)
	}
	for _, role := range []string{"deed_app", "deed_worker", "deed_admin"} {
		if pgtest.One[bool](t, owner, `select rolbypassrls or rolsuper or rolcanlogin from pg_roles where rolname = $1`, role) {
			t.Errorf("%s can bypass row-level security, or log in", role)
		}
	}
	public := pgtest.One[string](t, owner, `
		select coalesce(string_agg(p.proname, ', '), '') from pg_proc p
		where p.pronamespace = 'deed'::regnamespace and has_function_privilege('public', p.oid, 'execute')`)
	if public != "" {
		t.Errorf("functions that everyone may call: %s", public)
	}
	unpinned := pgtest.One[string](t, owner, `
		select coalesce(string_agg(p.proname, ', '), '') from pg_proc p
		where p.pronamespace = 'deed'::regnamespace and p.prosqlbody is null -- those were resolved when they were made
		  and not exists (select from unnest(p.proconfig) c where c like 'search_path=%')`)
	if unpinned != "" {
		t.Errorf("functions without a pinned search_path: %s", unpinned)
	}
}

// What each login sees of two tenants' messages, with and without a tenant
// set, and after one was set and is set no more.
func TestContract_D7_WhoSeesWhat(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "s")
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	publishAs := func(id tenant.ID) {
		err := pgx.BeginFunc(ctx, db.Pool(pgtest.App), func(tx pgx.Tx) error {
			if err := tenant.Set(ctx, tx, id); err != nil {
				return err
			}
			m := message("orders", 1)
			m.IdempotencyKey = "k"
			_, err := deed.Publish(ctx, tx, m)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	publishAs(a)
	publishAs(b)
	publish(t, db, message("orders", 1)) // the default tenant's

	conn := db.Conn(t, pgtest.App)
	sees := func(table string, set *tenant.ID) string {
		t.Helper()
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(ctx)
		if set != nil {
			if err := tenant.Set(ctx, tx, *set); err != nil {
				t.Fatal(err)
			}
		}
		return pgtest.One[string](t, tx, `select coalesce(string_agg(distinct substr(tenant_id::text, 1, 2), ','), 'nothing') from deed.`+table)
	}
	for _, table := range []string{"log", "pending", "publish_keys"} {
		own := "00"
		if table == "publish_keys" {
			own = "nothing" // the default tenant used no key
		}
		for _, step := range []struct {
			what string
			set  *tenant.ID
			want string
		}{
			{"none set, single-tenant", nil, own},
			{"a", &a, "0a"},
			{"b", &b, "0b"},
			{"none set again", nil, own},
			{"an unknown one", &tenant.ID{0xc}, "nothing"},
		} {
			if got := sees(table, step.set); got != step.want {
				t.Errorf("%s, tenant %s: the application sees %s, want %s", table, step.what, got, step.want)
			}
		}
	}

	if err := tenant.Add(ctx, db.Pool(pgtest.Admin), a, "a"); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"log", "pending", "publish_keys", "tenants"} {
		if got := sees(table, nil); got != "nothing" {
			t.Errorf("%s, several tenants and none set: the application sees %s", table, got)
		}
	}
	if got := sees("tenants", &a); got != "0a" {
		t.Errorf("tenant a sees the tenants %s", got)
	}
	for _, role := range []pgtest.Role{pgtest.Worker, pgtest.Admin} {
		if got := pgtest.One[int](t, db.Pool(role), `select count(distinct tenant_id) from deed.log`); got != 3 {
			t.Errorf("%s sees %d tenants' messages, want all 3", role, got)
		}
	}
	for _, q := range []string{
		`select * from deed.log_p0`, `insert into deed.log select * from deed.log`, `delete from deed.pending`,
		`update deed.pending set attempts = 0`, `select * from deed.receipts`, `select deed.claim('orders', 'w')`,
		`select deed.add_tenant(gen_random_uuid(), 'x')`, `select deed.verify()`, `update deed.settings set single_tenant = true`,
		`select deed.redrive('orders')`, `select nextval('deed.log_seq')`,
	} {
		if _, err := conn.Exec(ctx, q); sqlState(err) != "42501" {
			t.Errorf("the application may run %q: %v", q, err)
		}
	}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	admin := db.Pool(pgtest.Admin)
	for range 2 { // again is no error
		if err := tenant.Add(ctx, admin, tenant.ID{1}, "one"); err != nil {
			t.Fatal(err)
		}
	}
	if err := tenant.Add(ctx, admin, tenant.ID{2}, "one"); !errors.Is(err, tenant.ErrTaken) {
		t.Errorf("a name taken by another: %v", err)
	}
	if err := tenant.Add(ctx, admin, tenant.ID{1}, "uno"); !errors.Is(err, tenant.ErrTaken) {
		t.Errorf("an id taken by another: %v", err)
	}
	if err := tenant.Add(ctx, admin, tenant.ID{3}, ""); err == nil {
		t.Error("a tenant without a name was added")
	}
	page, err := tenant.List(ctx, admin, "", 10)
	if list := page.Items; err != nil || len(list) != 2 || list[0].Name != "default" || list[1].ID != (tenant.ID{1}) {
		t.Errorf("tenants: %+v, %v", list, err)
	}
	first, err := tenant.List(ctx, admin, "", 1)
	if err != nil || len(first.Items) != 1 || first.Next == "" {
		t.Fatalf("a page of one: %+v, %v", first, err)
	}
	second, err := tenant.List(ctx, admin, first.Next, 2)
	if err != nil || len(second.Items) != 1 || second.Items[0].ID != (tenant.ID{1}) || second.Next != "" {
		t.Errorf("the next: %+v, %v", second, err)
	}
	if one, ok, err := tenant.Find(ctx, admin, tenant.ID{1}); err != nil || !ok || one.Name != second.Items[0].Name {
		t.Errorf("found: %+v, %t, %v", one, ok, err)
	}
	if _, ok, err := tenant.Find(ctx, admin, tenant.ID{9}); err != nil || ok {
		t.Errorf("one that there is not: %t, %v", ok, err)
	}
	for _, bad := range []string{"", "x", strings.Repeat("0", 36), "00000000-0000-0000-0000-00000000000x"} {
		if _, err := tenant.Parse(bad); err == nil {
			t.Errorf("Parse(%q) gives no error", bad)
		}
	}
}

// Whoever registers the default tenant, too, has no tenant but that one: who sets none goes on.
func TestTenants_TheDefaultOneIsNoFurtherOne(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	publish := func() error {
		_, err := deed.Publish(t.Context(), db.Pool(pgtest.App), deed.Message{Topic: "orders", Value: 1})
		return err
	}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), tenant.Default, "default"); err != nil {
		t.Fatal(err)
	}
	if err := publish(); err != nil {
		t.Errorf("once the default tenant was registered: %v", err)
	}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), tenant.ID{1}, "one"); err != nil {
		t.Fatal(err)
	}
	if err := publish(); deed.CodeOf(err) != deed.Forbidden {
		t.Errorf("once another was registered: %v, want %s", err, deed.Forbidden)
	}
}

// Where there are several tenants, an application that has set none publishes
// for nobody, not for the one that a single-tenant installation has either.
func TestContract_D7_NoTenantSetIsNoTenant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `update deed.settings set single_tenant = false`)
	for _, call := range []string{
		`select deed.publish('orders', '{}', p_tenant => '00000000-0000-0000-0000-000000000000')`,
		`select id from deed.publish_one('orders', '{}', p_tenant => '00000000-0000-0000-0000-000000000000')`,
		`select id from deed.publish_many('{orders}', '{"{}"}', p_tenants => '{00000000-0000-0000-0000-000000000000}')`,
	} {
		if _, err := db.Pool(pgtest.App).Exec(context.Background(), call); sqlState(err) != "DDTEN" {
			t.Errorf("%s: %v, want DDTEN", call, err)
		}
	}
}
