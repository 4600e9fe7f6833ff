-- deed.due_tenants: the tenants of which a provider has something due, on the
-- way round from behind p_from up to p_to; nulls: from the first, to the last.
--
-- It reads the index once for each: that of what is due, which is the only one in this order. By the tenant alone the server goes
-- by the index of keys instead where all that it knows of is due, and reads every delivery to find none. From a tenant to itself
-- is once round. Those in p_known are taken to have something: what of them was sent is not stepped over.
create or replace function deed.due_tenants(
  p_provider text,
  p_status   text,
  p_from     uuid,
  p_to       uuid,
  p_limit    int,
  p_known    uuid[] default '{}'
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
  v_known uuid;
  v_next  uuid;
begin
  while cardinality(p_known) > 0 loop
    v_known := (select min(k::text)::uuid from unnest(p_known) k where v_from is null or k > v_from);
    v_next := null;
    if v_known is null then
      select c.tenant_id into v_next from deed.channel_outbox c
      where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id > v_from
      order by c.tenant_id, coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) limit 1;
    elsif v_from is null then
      select c.tenant_id into v_next from deed.channel_outbox c
      where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id < v_known
      order by c.tenant_id, coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) limit 1;
    else
      select c.tenant_id into v_next from deed.channel_outbox c
      where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id > v_from and c.tenant_id < v_known
      order by c.tenant_id, coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) limit 1;
    end if;
    v_from := coalesce(v_next, v_known);
    if v_from is null and v_round then
      v_round := false;
      v_to := p_to;
      continue;
    end if;
    exit when v_from is null or v_from > v_to;
    v_list := v_list || v_from;
    exit when cardinality(v_list) >= p_limit or v_from = v_to;
  end loop;
  if cardinality(p_known) > 0 then
    return v_list;
  end if;
  loop
    v_list := v_list || array(
      with recursive around as (
        select f.tenant_id, 1 as n
        from (
          (
            select c.tenant_id from deed.channel_outbox c
            where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id > v_from
            order by c.tenant_id, coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) limit 1
          )
          union all
          (
            select c.tenant_id from deed.channel_outbox c
            where c.due and c.status = p_status and c.provider = p_provider and v_from is null
            order by c.tenant_id, coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) limit 1
          )
        ) f
        union all
        select (
          select c.tenant_id from deed.channel_outbox c
          where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id > a.tenant_id
          order by c.tenant_id, coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) limit 1
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
