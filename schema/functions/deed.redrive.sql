-- deed.redrive: put dead messages back, oldest first, with their attempts at 0.
--
-- An operator's act, and the only way back from dead (O9). p_subscription null:
-- all of the topic's; p_tenant null: all tenants; p_ids null: any; p_limit
-- null: no limit. With p_dry_run nothing changes. Returns how many.
create or replace function deed.redrive(
  p_topic        text,
  p_subscription text default null,
  p_tenant       uuid default null,
  p_ids          bigint[] default null,
  p_limit        int default null,
  p_dry_run      boolean default false
) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count bigint;
begin
  if p_limit < 0 then
    raise exception 'redrive: limit must not be negative, got %', p_limit using errcode = 'DDARG';
  end if;
  if not exists (select from deed.subscriptions s where s.topic = p_topic)
    and not exists (
      select from deed.pending p
      join (
        select slot, id, topic from deed.log
        union all
        select slot, id, topic from deed.kept
      ) l on l.slot = p.slot and l.id = p.id
      where p.subscription = 0 and p.dead_at is not null and l.topic = p_topic
    )
  then
    raise exception 'redrive: topic % has no subscription and no dead message', quote_literal(coalesce(p_topic, ''))
      using errcode = 'DDNFD';
  end if;
  if p_subscription is not null and not exists (
    select from deed.subscriptions s where s.topic in (p_topic, '') and s.name = p_subscription
  ) then
    raise exception 'redrive: topic % has no subscription %', quote_literal(p_topic), quote_literal(p_subscription)
      using errcode = 'DDNFD';
  end if;

  with chosen as (
    select p.subscription, p.id
    from deed.pending p
    join deed.subscriptions s on s.id = p.subscription
    join (
      select slot, id, topic from deed.log
      union all
      select slot, id, topic from deed.kept
    ) l on l.slot = p.slot and l.id = p.id
    where p.dead_at is not null
      and s.topic in (p_topic, '') and l.topic = p_topic
      and (p_subscription is null or s.name = p_subscription)
      and (p_tenant is null or p.tenant_id = p_tenant)
      and (p_ids is null or p.id = any (p_ids))
    order by p.id, p.subscription
    limit p_limit
    for update of p skip locked
  ),
  driven as (
    update deed.pending p
    set dead_at = null, attempts = 0, lost_claims = 0, process_after = clock_timestamp()
    from chosen c
    where not p_dry_run and p.subscription = c.subscription and p.id = c.id
  )
  select count(*) into v_count from chosen;
  return v_count;
end
$$;
