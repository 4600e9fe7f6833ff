-- deed.due_runs: the runs of a tenant of which a provider has something due, on
-- the way round from behind p_from up to p_to, as deed.due_tenants.
--
-- The nil run is what belongs to none; those in p_held are left out. With p_marks (deed.mark_lanes) it does not step over what
-- was looked through: there are those that it names, those that are open and have something due, and what is behind.
create or replace function deed.due_runs(
  p_provider text,
  p_status   text,
  p_tenant   uuid,
  p_from     uuid,
  p_to       uuid,
  p_limit    int,
  p_held     uuid[] default '{}',
  p_marks    jsonb default null
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
  if p_marks is not null then
    return array(
      select r.run
      from (
        select m.key::uuid as run from jsonb_each(p_marks -> 'runs') m where m.value <> '{}'
        union
        select n.run
        from (
          select '00000000-0000-0000-0000-000000000000'::uuid as run
          union all
          (select o.id from deed.campaign_runs o where o.finished_at is null and o.tenant_id = p_tenant order by o.id desc limit 100)
        ) n
        where n.run <= (p_marks ->> 'upto')::uuid and not p_marks -> 'runs' ? n.run::text and (
          -- with a limit: it is looked for, and not joined
          select true from deed.channel_outbox c
          where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id = p_tenant and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) = n.run
          limit 1
        )
        union
        select u from unnest(deed.due_runs(p_provider, p_status, p_tenant, (p_marks ->> 'upto')::uuid, null, p_limit, p_held)) u
      ) r
      where r.run <> all (p_held)
      order by p_from is not null and r.run <= p_from, r.run
      limit p_limit
    );
  end if;
  loop
    v_list := v_list || array(
      with recursive around as (
        select f.run, case when f.run = any (p_held) then 0 else 1 end as n
        from (
          (
            select coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) as run from deed.channel_outbox c
            where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id = p_tenant and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) > v_from
            order by coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) limit 1
          )
          union all
          (
            select coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) as run from deed.channel_outbox c
            where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id = p_tenant and v_from is null
            order by coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) limit 1
          )
        ) f
        union all
        select f.run, a.n + case when f.run = any (p_held) then 0 else 1 end
        from around a
        cross join lateral (
          select coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) as run from deed.channel_outbox c
          where c.due and c.status = p_status and c.provider = p_provider and c.tenant_id = p_tenant and coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) > a.run
          order by coalesce(c.run_id, '00000000-0000-0000-0000-000000000000'::uuid) limit 1
        ) f
        where a.n < p_limit - cardinality(v_list) and (v_to is null or a.run < v_to)
      )
      select a.run from around a where a.run <> all (p_held) and (v_to is null or a.run <= v_to)
    );
    exit when v_round is not true or cardinality(v_list) >= p_limit;
    v_round := false;
    v_from := null;
    v_to := p_to;
  end loop;
  return v_list;
end
$$;
