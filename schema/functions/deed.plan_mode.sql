-- deed.plan_mode: the plan_cache_mode for looks into these tables.
--
-- A plan that is kept costs nothing to make, but where it is made while a table is empty,
-- all indexes cost the same, and the plan may read the table whole for as long as it is
-- kept. There plans are made anew until there is enough to tell indexes apart: by the
-- statistics, or by the table's size, from which the planner reckons its rows where
-- statistics are of none. A table that was never looked at is taken to have some hundreds.
create or replace function deed.plan_mode(p_tables regclass[]) returns text
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (
    select from pg_class c
    where c.oid = any (p_tables) and c.reltuples between 0 and 100
      and (c.reltuples = 0 and c.relpages > 0 or pg_relation_size(c.oid) < 131072)
  ) then
    return 'force_custom_plan';
  end if;
  return 'force_generic_plan';
end
$$;
