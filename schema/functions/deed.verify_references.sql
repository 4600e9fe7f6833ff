-- deed.verify_references: the part of deed.verify that is about rows that rely
-- on others being there, or being as they were. In one snapshot with the
-- statement that calls it; it reads the log once.
create or replace function deed.verify_references() returns table (
  invariant text, subscription int, message_id bigint, detail text
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_nestloop = off
set jit = off
as $$
  with content as materialized (
    select l.slot, l.id, l.tenant_id, l.topic, l.key from deed.log l
    union all
    select k.slot, k.id, k.tenant_id, k.topic, k.key from deed.kept k
  )
  select 'subscription without what it relies on', s.id, null::bigint,
    case
      when t.topic is null then 'its topic is not declared'
      when b.subscription is null then 'it is not known how far it has been brought what was published before it'
      when (t.mode = 'stream') <> (s.since is not null) then format('its topic is a %s, and it is read otherwise', t.mode)
      else format('a window where it begins is missing, of %s, %s and %s', s.start_window, s.since_window, s.read_window)
    end
  from deed.subscriptions s
  left join deed.topics t on t.topic = s.topic
  left join deed.backfills b on b.subscription = s.id
  where s.id <> 0 and s.list_version is not null
    and (t.topic is null or b.subscription is null or (t.mode = 'stream') <> (s.since is not null)
      or s.start_window is null or num_nulls(s.read_window, s.read_since) = 1
      or exists (
        select from unnest(array[s.start_window, s.since_window, s.read_window]) w(n)
        where w.n is not null and not exists (select from deed.windows o where o.n = w.n)
      ))
  union all
  select 'subscription without what it relies on', b.subscription, null, 'how far it was brought is known, and it is not'
  from deed.backfills b
  where b.subscription not in (select s.id from deed.subscriptions s)
  union all
  select 'subscription without what it relies on', 0, null, 'the one of the topics that nobody declared is missing'
  where not exists (select from deed.subscriptions s where s.id = 0 and s.topic = '')
  union all
  select 'settings are missing', null, null, 'nothing can be published'
  where not exists (select from deed.settings s)
  union all
  select 'partition and its record differ', null, null, format('partition %s is %s', coalesce(p.n::text, c.relname),
    case when p.n is null then 'there, and nobody knows it' when c.relname is null then 'missing' else 'empty for deed, and has rows' end)
  from deed.partitions p
  full join (
    select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'deed.log'::regclass
  ) c on c.relname = 'log_p' || p.n
  where p.n is null or (c.relname is null and p.emptied_at is null)
    or (p.emptied_at is not null and exists (select from deed.log l where l.id >= p.from_id and l.id < p.upto_id))
  union all
  select 'partition goes with what is owed', p.subscription, p.id, format('partition %s has moved on past it', g.n)
  from deed.partitions g
  join deed.pending p on p.id >= g.from_id and p.id < g.upto_id and (p.subscription, p.id) <= (g.moved_subscription, g.moved_id)
  join deed.log l on l.id = p.id and l.slot = p.slot
  where g.emptied_at is null and pg_visible_in_snapshot(l.xid, g.moving)
    and not exists (select from deed.backfills b where b.window_n > g.moving_window)
    and not exists (select from deed.removals r where r.subscription = p.subscription and r.name is not null)
  union all
  select 'pending row is nobody''s', p.subscription, p.id,
    case when p.subscription = 0 then format('slot %s is no topic''s', p.slot) else 'there is no such subscription' end
  from deed.pending p
  left join deed.subscriptions s on s.id = p.subscription
  left join deed.topics t on t.slot_base = p.slot / 64 * 64
  where (s.id is null or (p.subscription = 0 and p.slot >= 64 and t.topic is null))
    and not exists (
      select from deed.removals r
      where r.subscription = p.subscription and r.finished_at is null and (r.name is not null or r.slot_base = p.slot / 64 * 64)
    )
  union all
  select 'pending row is not its message''s', p.subscription, p.id, 'its slot, tenant, topic or key differs'
  from deed.pending p
  join content c on c.id = p.id
  join deed.subscriptions s on s.id = p.subscription
  where p.slot <> c.slot or p.tenant_id <> c.tenant_id or (p.subscription <> 0 and s.topic <> c.topic)
    or p.key_hash <> ('x' || encode(
      substr(sha256(convert_to(c.key, 'UTF8')), 1, 1)
        || substr(sha256(uuid_send(c.tenant_id) || substr(sha256(convert_to(c.key, 'UTF8')), 1, 8)), 1, 7), 'hex'
    ))::bit(64)::bigint
  union all
  select 'message is not where its topic is', null, c.id, format('slot %s', c.slot)
  from content c
  left join deed.topics t on t.slot_base = c.slot / 64 * 64
  where (t.topic <> c.topic and c.slot >= 64)
    or (t.topic is null and c.slot >= 64 and c.slot / 64 * 64 not in (select r.slot_base from deed.removals r where r.whole))
    or (c.slot >= 64 and c.slot % 64 <> deed.slot(0, c.key, c.id))
  union all
  select 'kept content is owed to nobody', null, k.id, 'it has neither a pending row nor a receipt'
  from deed.kept k
  left join deed.pending p on p.id = k.id
  left join (select distinct i.id from deed.receipts r cross join lateral unnest(r.ids) i(id)) f on f.id = k.id
  where p.id is null and f.id is null
    and k.tenant_id <> all (array(select r.tenant_id from deed.tenant_removals r where r.finished_at is null))
    and not exists (select from deed.removals r where r.topic = k.topic) -- what it was kept for was removed, and retention comes by
    and not exists ( -- else it stays for that one (deed.purge_kept), and its receipts go by their age
      select from deed.subscriptions s join deed.backfills b on b.subscription = s.id where s.topic = k.topic and b.finished_at is null
    )
  union all
  select 'tenant that was removed has messages', p.subscription, p.id, format('tenant %s', p.tenant_id)
  from (
    select null::int as subscription, c.id, c.tenant_id from content c
    union all
    select p.subscription, p.id, p.tenant_id from deed.pending p
  ) p
  join deed.tenant_removals r on r.tenant_id = p.tenant_id and r.finished_at is not null
$$;
