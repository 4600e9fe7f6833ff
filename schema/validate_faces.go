package schema

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// expectedFaces is what DescribeFaces prints of freshly installed faces:
// the golden dump. A test renews it with -update.
//
//go:embed expected_faces.sql
var expectedFaces string

const describeFaceSQL = `
with relation as (
  select c.oid, c.relname, c.relkind, c.relowner, c.relacl, c.reloptions, c.oid::regclass::text as name
  from pg_catalog.pg_class c
  where c.oid = to_regclass($1)
),
lines as (
  select 1 as part, 0 as n, 'view ' || $1 || coalesce(' with ' || array_to_string(r.reloptions, ', '), '') as line
  from relation r where r.relkind = 'v'
  union all
  select 1, a.attnum, '  column ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
  from relation r
  join pg_catalog.pg_attribute a on a.attrelid = r.oid and a.attnum > 0
  union all
  select 1, 1000, '  trigger ' || t.tgname || ' ' || t.tgtype || ' ' || t.tgfoid::regproc || ' ' || t.tgenabled::text
  from relation r
  join pg_catalog.pg_trigger t on t.tgrelid = r.oid and not t.tgisinternal
  union all
  select 1, 1001, '  grant ' || string_agg(lower(x.privilege_type), ', ' order by x.privilege_type) || ' to ' || g.rolname
  from relation r
  cross join lateral aclexplode(r.relacl) x
  join pg_catalog.pg_roles g on g.oid = x.grantee
  where g.rolname in ('deed_app', 'deed_worker', 'deed_admin')
  group by g.rolname
  union all
  select 1, 1002, '  grant ' || lower(x.privilege_type) || ' (' || string_agg(a.attname, ', ' order by a.attnum) || ') to ' || g.rolname
  from relation r
  join pg_catalog.pg_attribute a on a.attrelid = r.oid and a.attnum > 0
  cross join lateral aclexplode(a.attacl) x
  join pg_catalog.pg_roles g on g.oid = x.grantee
  where g.rolname in ('deed_app', 'deed_worker', 'deed_admin')
  group by g.rolname, x.privilege_type
  union all
  select 2, 0, 'function ' || n.nspname || '.' || p.proname || '(' || pg_get_function_arguments(p.oid) || ') returns ' || replace(pg_get_function_result(p.oid), 'public.', '')
    || case when p.prosecdef then ' security definer' else '' end
    || coalesce(' set ' || array_to_string(p.proconfig, ', '), '') || ' body ' || md5(p.prosrc)
    || coalesce(' grant to ' || (
      select string_agg(coalesce(g.rolname, 'public'), ', ' order by g.rolname)
      from aclexplode(p.proacl) x left join pg_catalog.pg_roles g on g.oid = x.grantee
      where x.grantee <> p.proowner and (x.grantee = 0 or g.rolname in ('deed_app', 'deed_worker', 'deed_admin'))
    ), '')
  from pg_catalog.pg_proc p
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  where n.nspname || '.' || p.proname = any ($2)
)
select line from lines order by part, n, line`

// DescribeFaces prints the installed faces, one object a line. Grants to
// others than deed's roles, and what else is in the faces' schemas, are their
// owner's business.
func DescribeFaces(ctx context.Context, q Querier) (string, error) {
	have, err := InstalledFaces(ctx, q)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, i := range have {
		f, err := faceNamed(i.Name)
		if err != nil {
			continue // a newer program's
		}
		rows, err := q.Query(ctx, describeFaceSQL, f.relation, f.functions())
		if err != nil {
			return "", fmt.Errorf("schema: describe face %s: %w", f.name, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return "", fmt.Errorf("schema: describe face %s: %w", f.name, err)
		}
		for _, line := range lines {
			fmt.Fprintf(&b, "%s: %s\n", f.name, line)
		}
	}
	return b.String(), nil
}

// validateFaces compares the installed faces with what this program installs.
func validateFaces(ctx context.Context, q Querier) ([]string, error) {
	got, err := DescribeFaces(ctx, q)
	if err != nil {
		return nil, err
	}
	have, err := InstalledFaces(ctx, q)
	if err != nil {
		return nil, err
	}
	var want strings.Builder
	for line := range strings.Lines(expectedFaces) {
		for _, i := range have {
			if strings.HasPrefix(line, i.Name+": ") {
				want.WriteString(line)
			}
		}
	}
	return lineDifferences(want.String(), got), nil
}
