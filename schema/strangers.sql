-- What Up sees to at every run: nobody but deed's roles may write or call
-- anything, as the owner's default privileges may have it.
do $$
declare
  v_grant record;
begin
  for v_grant in
    select case c.relkind when 'S' then 'sequence' else 'table' end as kind, format('deed.%I', c.relname) as thing, a.grantee
    from pg_class c
    cross join lateral aclexplode(c.relacl) a
    where c.relnamespace = 'deed'::regnamespace and c.relkind in ('r', 'p', 'v', 'S') and a.grantee <> c.relowner
    union
    select 'function', p.oid::regprocedure::text, a.grantee
    from pg_proc p
    cross join lateral aclexplode(p.proacl) a
    where p.pronamespace = 'deed'::regnamespace and a.grantee <> p.proowner
  loop
    continue when v_grant.grantee <> 0
      and pg_get_userbyid(v_grant.grantee) in ('deed_app', 'deed_worker', 'deed_admin');
    execute format('revoke %s on %s %s from %s',
      case v_grant.kind when 'table' then 'insert, update, delete, truncate, references, trigger' when 'sequence' then 'usage, update' else 'all' end,
      v_grant.kind, v_grant.thing,
      case when v_grant.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(v_grant.grantee)) end);
  end loop;
end
$$;
