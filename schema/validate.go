package schema

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// expected is what Describe prints of a freshly installed schema: the golden
// dump. A test renews it with -update.
//
//go:embed expected.sql
var expected string

// describeSQL prints the schema's objects, one line each, in an order that
// does not depend on how they came to be. Partitions of the log are left out:
// there are as many as there have been days. Roles are named only where they
// are deed's own; the owner is "owner".
const describeSQL = `
with relations as (
  select c.oid, c.relname, c.relkind, c.relrowsecurity, c.relforcerowsecurity, c.relacl, c.relowner, c.reloptions,
    case c.relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end as kind
  from pg_catalog.pg_class c
  where c.relnamespace = 'deed'::regnamespace and c.relkind in ('r', 'p', 'S', 'v')
    and not c.relispartition and c.relname !~ '^(log_p|run_log_w)[0-9]+$'
    -- Sequences of identity columns; a partitioned table depends on itself by the columns of its key.
    and c.oid not in (select d.objid from pg_catalog.pg_depend d where d.deptype = 'i' and d.classid = 'pg_class'::regclass and d.objsubid = 0)
),
lines as (
  select 0 as part, '' as name, 0 as n, 'schema deed' as line
  union all
  select 0, '', 1, '  grant usage to ' || g.rolname
  from pg_catalog.pg_namespace n
  cross join lateral aclexplode(n.nspacl) x
  join pg_catalog.pg_roles g on g.oid = x.grantee
  where n.oid = 'deed'::regnamespace and x.privilege_type = 'USAGE' and g.rolname in ('deed_app', 'deed_worker', 'deed_admin')
  union all
  select 1, r.relname::text, 0,
    r.kind || ' deed.' || r.relname
      || case when r.relkind = 'p' then ' partition by ' || pg_get_partkeydef(r.oid) else '' end
      || case when r.kind = 'table' then ' rls=' || r.relrowsecurity || ' forced=' || r.relforcerowsecurity else '' end
      || coalesce(' with ' || (select string_agg(o, ', ' order by o) from unnest(r.reloptions) o), '')
  from relations r
  union all
  select 1, r.relname, a.attnum, '  column ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    || case when a.attnotnull then ' not null' else '' end
    || case when a.attgenerated = 's' then ' generated as ' || pg_get_expr(d.adbin, d.adrelid)
         else coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') end
    || case a.attidentity when 'a' then ' identity always' when 'd' then ' identity by default' else '' end
  from relations r
  join pg_catalog.pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
  left join pg_catalog.pg_attrdef d on d.adrelid = r.oid and d.adnum = a.attnum
  where r.kind = 'table'
  union all
  select 1, r.relname, 1000, '  constraint ' || k.conname || ' ' || pg_get_constraintdef(k.oid)
    || case when k.convalidated then '' else ' not valid' end
  from relations r
  join pg_catalog.pg_constraint k on k.conrelid = r.oid and k.contype in ('c', 'f', 'p', 'u', 'x')
  union all
  select 1, r.relname, 1001, '  ' || pg_get_indexdef(i.indexrelid) || case when i.indisvalid then '' else ' invalid' end
  from relations r
  join pg_catalog.pg_index i on i.indrelid = r.oid
  where r.kind = 'table'
  union all
  select 1, r.relname, 1002, '  policy ' || p.polname || ' for ' || p.polcmd::text
    || ' to ' || (select string_agg(case when o.role = r.relowner then 'owner' else coalesce(g.rolname, 'public') end, ', ')
                  from unnest(p.polroles) o(role) left join pg_catalog.pg_roles g on g.oid = o.role)
    || coalesce(' using ' || regexp_replace(pg_get_expr(p.polqual, p.polrelid), '\s+', ' ', 'g'), '')
    || coalesce(' check ' || regexp_replace(pg_get_expr(p.polwithcheck, p.polrelid), '\s+', ' ', 'g'), '')
  from relations r
  join pg_catalog.pg_policy p on p.polrelid = r.oid
  union all
  select 1, r.relname, 1003, '  ' || pg_get_triggerdef(t.oid) || case t.tgenabled when 'O' then '' else ' enabled=' || t.tgenabled::text end
  from relations r
  join pg_catalog.pg_trigger t on t.tgrelid = r.oid and not t.tgisinternal
  union all
  select 1, r.relname, 1004, '  grant ' || lower(x.privilege_type) || ' to ' || coalesce(g.rolname, 'public')
  from relations r
  cross join lateral aclexplode(r.relacl) x
  left join pg_catalog.pg_roles g on g.oid = x.grantee
  where x.grantee <> r.relowner
  union all
  select 1, r.relname, 1005, '  grant ' || lower(x.privilege_type) || ' (' || a.attname || ') to ' || coalesce(g.rolname, 'public')
  from relations r
  join pg_catalog.pg_attribute a on a.attrelid = r.oid
  cross join lateral aclexplode(a.attacl) x
  left join pg_catalog.pg_roles g on g.oid = x.grantee
  where x.grantee <> r.relowner
  union all
  select 2, p.oid::regprocedure::text, 0,
    'function ' || p.proname || '(' || pg_get_function_arguments(p.oid) || ') returns ' || pg_get_function_result(p.oid)
      || case when p.prosecdef then ' security definer' else '' end
      || coalesce(' set ' || array_to_string(p.proconfig, ', '), '')
      || ' body ' || coalesce(md5(nullif(p.prosrc, '')), 'inline')
      || coalesce(' grant to ' || (
        select string_agg(coalesce(g.rolname, 'public'), ', ' order by g.rolname)
        from aclexplode(p.proacl) x left join pg_catalog.pg_roles g on g.oid = x.grantee
        where x.grantee <> p.proowner
      ), '')
  from pg_catalog.pg_proc p
  where p.pronamespace = 'deed'::regnamespace
)
select line from lines order by part, name, n, line`

// Describe prints the installed schema, one object a line, in a form that two
// databases share exactly if their schemas are the same.
func Describe(ctx context.Context, q Querier) (string, error) {
	rows, err := q.Query(ctx, describeSQL)
	if err != nil {
		return "", fmt.Errorf("schema: describe: %w", err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", fmt.Errorf("schema: describe: %w", err)
	}
	return "-- The schema deed as installed, one object a line. Made by a test: go test ./schema -run Golden -update\n" +
		strings.Join(lines, "\n") + "\n", nil
}

// Validate compares the installed schema with what this program installs. It
// returns the differences, "- " before what is missing and "+ " before what
// should not be there; none, all is as it should be.
func Validate(ctx context.Context, q Querier) ([]string, error) {
	if _, err := Check(ctx, q); err != nil {
		return nil, err
	}
	got, err := Describe(ctx, q)
	if err != nil {
		return nil, err
	}
	faces, err := validateFaces(ctx, q)
	if err != nil {
		return nil, err
	}
	return append(lineDifferences(expected, got), faces...), nil
}

func lineDifferences(want, got string) []string {
	count := map[string]int{}
	for line := range strings.Lines(want) {
		count[line]++
	}
	var extra []string
	for line := range strings.Lines(got) {
		if count[line]--; count[line] < 0 {
			extra = append(extra, "+ "+strings.TrimSpace(line))
		}
	}
	var differences []string
	for line := range strings.Lines(want) {
		if count[line] > 0 {
			count[line]--
			differences = append(differences, "- "+strings.TrimSpace(line))
		}
	}
	return append(differences, extra...)
}
