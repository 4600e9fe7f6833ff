-- deed.look_at_suppressions: the suppressions that match, newest first, below the
-- place (p_at, p_at_tenant, p_at_channel, p_at_address, p_at_purpose), at most
-- p_limit; null matches all.
--
-- The newest p_each are read; one address is looked for by key in each tenant, and by
-- its mark (deed.address_mark), under which those who were erased are. Each
-- row says how many were read (looked), and the place of the last (next_…) and since
-- when it is; where none matches, one row says it, without an address.
create or replace function deed.look_at_suppressions(
  p_at         timestamptz,
  p_at_tenant  uuid,
  p_at_channel text,
  p_at_address text,
  p_at_purpose text,
  p_each       int,
  p_limit      int,
  p_tenant     uuid default null,
  p_channel    text default null,
  p_address    text default null,
  p_purpose    text default null
) returns table (
  looked bigint, next_at timestamptz, next_tenant uuid, next_channel text, next_address text, next_purpose text,
  tenant_id uuid, channel text, address text, purpose text, reason text, actor text, created_at timestamptz, expires_at timestamptz
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
  with looked as materialized (
    select a.*
    from (
      select s.tenant_id, s.channel, s.address, s.purpose, s.reason, s.actor, s.created_at, s.expires_at
      from deed.suppressions s
      where p_tenant is null and p_address is null
        and (s.created_at, s.tenant_id, s.channel, s.address, s.purpose) < (p_at, p_at_tenant, p_at_channel, p_at_address, p_at_purpose)
      order by s.created_at desc, s.tenant_id desc, s.channel desc, s.address desc, s.purpose desc
      limit p_each
    ) a
    union all
    select b.*
    from (
      select s.tenant_id, s.channel, s.address, s.purpose, s.reason, s.actor, s.created_at, s.expires_at
      from deed.suppressions s
      where s.tenant_id = p_tenant and p_address is null and s.created_at <= p_at
        and (s.created_at, s.tenant_id, s.channel, s.address, s.purpose) < (p_at, p_at_tenant, p_at_channel, p_at_address, p_at_purpose)
      order by s.tenant_id desc, s.created_at desc, s.channel desc, s.address desc, s.purpose desc
      limit p_each
    ) b
    union all
    select s.tenant_id, s.channel, s.address, s.purpose, s.reason, s.actor, s.created_at, s.expires_at
    from deed.tenants t
    cross join unnest(array['email', 'sms', 'voice', 'social', 'chat', 'webhook']) c(channel)
    cross join lateral (
      select coalesce(deed.fold_address(c.channel, p_address), lower(btrim(p_address))) as folded
    ) k
    cross join lateral (
      values (k.folded), (deed.address_mark(t.tenant_id, c.channel, k.folded)),
        (case when c.channel = 'chat' and k.folded ~ '^[1-9][0-9]{7,14}$' then deed.address_mark(t.tenant_id, c.channel, '+' || k.folded) end) -- as it was once
    ) f(address)
    join deed.suppressions s on s.tenant_id = t.tenant_id and s.channel = c.channel and s.address = f.address
    where p_address is not null and (p_tenant is null or t.tenant_id = p_tenant)
      and (s.created_at, s.tenant_id, s.channel, s.address, s.purpose) < (p_at, p_at_tenant, p_at_channel, p_at_address, p_at_purpose)
  ),
  last as (
    select l.created_at, l.tenant_id, l.channel, l.address, l.purpose
    from looked l
    order by l.created_at, l.tenant_id, l.channel, l.address, l.purpose
    limit 1
  )
  select (select count(*) from looked), n.created_at, n.tenant_id, n.channel, n.address, n.purpose,
    m.tenant_id, m.channel, m.address, m.purpose, m.reason, m.actor, m.created_at, m.expires_at
  from (select 1) one
  left join last n on true
  left join (
    select l.*
    from looked l
    where (p_channel is null or l.channel = p_channel)
      and (p_purpose is null or l.purpose = p_purpose)
    order by l.created_at desc, l.tenant_id desc, l.channel desc, l.address desc, l.purpose desc
    limit p_limit
  ) m on true
  order by m.created_at desc, m.tenant_id desc, m.channel desc, m.address desc, m.purpose desc
$$;
