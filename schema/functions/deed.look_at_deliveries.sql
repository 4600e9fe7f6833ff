-- deed.look_at_deliveries: which deliveries match, newest first, of those with ids
-- below p_before, at most p_limit; null matches all.
--
-- Those that ended badly are found by status and provider, what is being called or in
-- doubt by its status, and those of contacts (p_contacts) by them; of all others the newest p_each are read. Each row says how
-- many were (looked), below which id the next look goes on (next; null if all was
-- read), and when the first of them was reserved (oldest); where none matches, one
-- row says it, without an id.
create or replace function deed.look_at_deliveries(
  p_before    uuid,
  p_each      int,
  p_limit     int,
  p_status    text default null,
  p_provider  text default null,
  p_tenant    uuid default null,
  p_recipient text default null,
  p_doubt     boolean default false,
  p_contacts  uuid[] default null
) returns table (looked bigint, next uuid, oldest timestamptz, id uuid)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
  -- The providers of those that ended so: few, and found by halting at each.
  with recursive names as (
    (
      select c.provider as name
      from deed.channel_outbox c
      where not p_doubt and p_contacts is null and c.status = p_status and c.status in ('failed', 'dead')
      order by c.status, c.provider
      limit 1
    )
    union all
    select (
      select c.provider
      from deed.channel_outbox c
      where c.status = p_status and c.status in ('failed', 'dead') and c.provider > n.name
      order by c.status, c.provider
      limit 1
    )
    from names n
    where n.name is not null
  ),
  looked as materialized (
    select a.*
    from (
      select '' as part, c.id, c.status, c.provider, c.tenant_id, c.channel, c.recipient, c.created_at
      from deed.channel_outbox c
      where not p_doubt and p_contacts is null and coalesce(p_status, '') not in ('failed', 'dead', 'sending') and (p_before is null or c.id < p_before)
      order by c.id desc
      limit p_each
    ) a
    union all
    select b.*
    from names n
    cross join lateral (
      select n.name as part, c.id, c.status, c.provider, c.tenant_id, c.channel, c.recipient, c.created_at
      from deed.channel_outbox c
      where c.status = p_status and c.status in ('failed', 'dead') and c.provider = n.name and (p_before is null or c.id < p_before)
      order by c.status desc, c.provider desc, c.id desc
      limit p_each
    ) b
    where p_provider is null or n.name = p_provider
    union all
    select d.*
    from (
      select 'sending', c.id, c.status, c.provider, c.tenant_id, c.channel, c.recipient, c.created_at
      from deed.channel_outbox c
      where (p_doubt or p_status = 'sending') and p_contacts is null and c.status = 'sending' and (p_before is null or c.id < p_before)
        and (not p_doubt or c.doubt_since is not null or c.lease_until <= clock_timestamp())
      order by c.id desc
      limit p_each
    ) d
    union all
    select e.*
    from unnest(p_contacts) n(contact)
    cross join lateral (
      select n.contact::text, c.id, c.status, c.provider, c.tenant_id, c.channel, c.recipient, c.created_at
      from deed.channel_outbox c
      where c.contact_id = n.contact and (p_before is null or c.id < p_before)
      order by c.contact_id desc, c.id desc
      limit p_each
    ) e
  ),
  -- Below the highest of the last ones something may be missing.
  whole as (
    select e.id
    from (
      select distinct on (l.part) l.id
      from looked l
      where l.part in (select f.part from looked f group by f.part having count(*) = p_each)
      order by l.part, l.id
    ) e
    order by e.id desc
    limit 1
  ),
  said as (
    select count(*) as looked, (select w.id from whole w) as next, min(l.created_at) as oldest from looked l
  )
  select s.looked, s.next, s.oldest, m.id
  from said s
  left join (
    select l.id
    from looked l
    where (p_status is null or l.status = p_status)
      and (p_provider is null or l.provider = p_provider)
      and (p_tenant is null or l.tenant_id = p_tenant)
      and (p_recipient is null or lower(l.recipient) = lower(p_recipient)
        or deed.fold_address(l.channel, l.recipient) = deed.fold_address(l.channel, p_recipient))
      and ((select w.id from whole w) is null or l.id >= (select w.id from whole w))
    order by l.id desc
    limit p_limit
  ) m on true
  order by m.id desc
$$;
