-- deed.due_tenants: the tenants of which a provider has something due, on the
-- way round from behind p_from up to p_to; nulls: from the first, to the last.
--
-- It reads the index once for each. From a tenant to itself is once round.
create or replace function deed.due_tenants(
  p_provider text,
  p_status   text,
  p_from     uuid,
  p_to       uuid,
  p_limit    int
) returns uuid[]
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
  v_from  uuid := p_from;
  v_to    uuid := case when v_round is not true then p_to end;
  v_list  uuid[] := '{}';
begin
  loop
    v_list := v_list || array(
      with recursive around as (
        select f.tenant_id, 1 as n
        from (
          (
            select c.tenant_id from deed.channel_outbox c
            where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id > v_from
            order by c.tenant_id limit 1
          )
          union all
          (
            select c.tenant_id from deed.channel_outbox c
            where c.due and c.status = p_status and c.provider = p_provider and v_from is null
            order by c.tenant_id limit 1
          )
        ) f
        union all
        select (
          select c.tenant_id from deed.channel_outbox c
          where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id > a.tenant_id
          order by c.tenant_id limit 1
        ), a.n + 1
        from around a
        where a.tenant_id is not null and a.n < p_limit - cardinality(v_list) and (v_to is null or a.tenant_id < v_to)
      )
      select a.tenant_id from around a where a.tenant_id is not null and (v_to is null or a.tenant_id <= v_to)
    );
    exit when v_round is not true or cardinality(v_list) >= p_limit;
    v_round := false;
    v_from := null;
    v_to := p_to;
  end loop;
  return v_list;
end
$$;
