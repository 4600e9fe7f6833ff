-- What Up sees to at every run: the owner passes row-level security whoever it
-- is now (a restore or REASSIGN OWNED changes it, and the policies do not follow).
do $$
declare
  v_policy record;
begin
  for v_policy in
    select p.polname, c.relname, c.relowner
    from pg_policy p
    join pg_class c on c.oid = p.polrelid
    where c.relnamespace = 'deed'::regnamespace and p.polname like '%\_owner' and p.polroles <> array[c.relowner]
  loop
    execute format('alter policy %I on deed.%I to %I', v_policy.polname, v_policy.relname, pg_get_userbyid(v_policy.relowner));
  end loop;
end
$$;
