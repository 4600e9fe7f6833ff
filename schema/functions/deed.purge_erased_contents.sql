-- deed.purge_erased_contents: look again at files that an erasure left (deed.erase_deliveries),
-- at most p_limit. One goes once nobody has it locked and it was put or named an hour ago;
-- then it is gone, or a delivery needs it that is somebody else's. Returns at how many it
-- looked. For deed.purge_contents.
create or replace function deed.purge_erased_contents(p_limit int) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_now   timestamptz := clock_timestamp();
  v_left  deed.erased_contents[];
  v_had   bytea[]; -- of a tenant those that are there, and those that may go
  v_free  bytea[];
  v_files tid[];
  v_of    record;
begin
  with looked as (
    update deed.erased_contents e
    set tried_at = v_now
    where e.n = any (array(
      select o.n from deed.erased_contents o where o.tried_at < v_now - interval '30 seconds' order by o.tried_at limit p_limit for update skip locked
    ))
    returning e
  )
  select array_agg(l.e) into v_left from looked l;
  for v_of in
    select l.tenant_id, min(l.actor) as actor, array_agg(l.n) as marks, array_agg(distinct l.sha256) as files from unnest(v_left) l group by l.tenant_id
  loop
    select array_agg(l.place), array_agg(l.sha256) into v_files, v_free
    from (
      select c.ctid as place, c.sha256 from deed.contents c
      where c.tenant_id = v_of.tenant_id and c.sha256 = any (v_of.files) and c.used_at < v_now - interval '1 hour'
      for update skip locked
    ) l;
    v_had := array(select c.sha256 from deed.contents c where c.tenant_id = v_of.tenant_id and c.sha256 = any (v_of.files));
    if v_files <> '{}' then
      perform deed.drop_contents(v_files, v_of.actor, 'erased');
    end if;
    delete from deed.erased_contents e
    where e.n = any (v_of.marks) and (e.sha256 = any (v_free) or e.sha256 <> all (v_had));
  end loop;
  return coalesce(cardinality(v_left), 0);
end
$$;
