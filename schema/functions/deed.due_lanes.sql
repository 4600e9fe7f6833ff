-- deed.due_lanes: the lanes of a tenant's run in which a provider has something
-- due, on the way round from behind p_from up to p_to, as deed.due_tenants.
--
-- The nil run is what belongs to none.
create or replace function deed.due_lanes(
  p_provider text,
  p_status   text,
  p_tenant   uuid,
  p_run      uuid,
  p_from     text,
  p_to       text,
  p_limit    int
) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_round boolean := p_from >= p_to; -- past the last one it goes on with the first
  v_from  text := p_from;
  v_to    text := case when v_round is not true then p_to end;
  v_list  text[] := '{}';
begin
  loop
    v_list := v_list || array(
      with recursive around as (
        select f.lane, 1 as n
        from (
          (
            select c.lane from deed.channel_outbox c
            where c.due and c.status = p_status and c.provider = p_provider
              and c.tenant_id = p_tenant and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) = p_run and c.lane > v_from
            order by c.lane limit 1
          )
          union all
          (
            select c.lane from deed.channel_outbox c
            where c.due and c.status = p_status and c.provider = p_provider
              and c.tenant_id = p_tenant and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) = p_run and v_from is null
            order by c.lane limit 1
          )
        ) f
        union all
        select (
          select c.lane from deed.channel_outbox c
          where c.due and c.status = p_status and c.provider = p_provider
              and c.tenant_id = p_tenant and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) = p_run and c.lane > a.lane
          order by c.lane limit 1
        ), a.n + 1
        from around a
        where a.lane is not null and a.n < p_limit - cardinality(v_list) and (v_to is null or a.lane < v_to)
      )
      select a.lane from around a where a.lane is not null and (v_to is null or a.lane <= v_to)
    );
    exit when v_round is not true or cardinality(v_list) >= p_limit;
    v_round := false;
    v_from := null;
    v_to := p_to;
  end loop;
  return v_list;
end
$$;
