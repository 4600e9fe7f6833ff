-- deed.plan_mode: the plan_cache_mode for looks into these tables.
--
-- A plan that is kept costs nothing to make, but where a table's statistics are of when
-- it was empty all indexes cost the same, and the plan may read the table whole for as
-- long as it is kept. There plans are made anew; once the statistics are of rows, which
-- ends plans from before, they are kept. A table without statistics is taken to have
-- some hundreds.
create or replace function deed.plan_mode(p_tables regclass[]) returns text
language sql
stable
return case
  when exists (select from pg_catalog.pg_class c where c.oid = any (p_tables) and c.reltuples between 0 and 100) then 'force_custom_plan'
  else 'force_generic_plan'
end;
