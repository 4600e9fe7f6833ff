-- deed.look_at_providers: the providers that were registered or that something waits
-- for, by name: what they are, how many of their deliveries are in which state, each
-- counted up to p_most, and the oldest twenty of their pauses, the provider's own
-- first. deferred are those of the queued that were put off for now, as by a server
-- that greylists, and deferred_since is when the first of them was, each of p_most that are
-- due and p_most that are not. dead are those that may be put back: neither a run's, nor proved to have been
-- accepted, nor of who was erased.
create or replace function deed.look_at_providers(
  p_most int
) returns table (
  name text, kind text, account text, sandbox boolean, registered boolean, key_window_seconds double precision, can_look_up boolean,
  queued bigint, due bigint, sending bigint, in_doubt bigint, held bigint, dead bigint, paused bigint, pauses text, limits text, idle text,
  deferred bigint, deferred_since timestamptz
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
  select n.name, coalesce(p.kind, ''), coalesce(p.account, ''), coalesce(p.sandbox, false), p.name is not null,
    extract(epoch from p.key_window)::double precision, coalesce(p.can_look_up, false),
    least(ready.n + waiting.n, p_most), least(ready.n + waiting.due, p_most),
    (select count(*) from (select from deed.channel_outbox c where c.provider = n.name and c.status = 'sending' limit p_most) c),
    (select count(*) from (select from deed.channel_outbox c where c.provider = n.name and c.status = 'sending' and c.doubt_since is not null limit p_most) c),
    (select count(*) from (select from deed.channel_outbox c where c.provider = n.name and c.status = 'sending' and c.held_at is not null limit p_most) c),
    (select count(*) from (
      select from deed.channel_outbox c
      where c.provider = n.name and c.status = 'dead' and c.run_id is null and c.proved_at is null and c.erased_at is null limit p_most
    ) c),
    (select count(*) from (select from deed.pauses p where p.provider = n.name limit p_most) p),
    (
      select jsonb_agg(
        jsonb_build_object(
          'destination', p.destination, 'tenant', case when p.destination <> '' then p.tenant_id end, 'since', p.since, 'until', p.until,
          'failures', p.failures, 'why', p.why, 'probing', exists (
            select from deed.channel_outbox c where c.id = p.probe and c.claim = p.probe_claim and c.lease_until > clock_timestamp()
          )
        )
        order by p.destination <> '', p.since
      )::text
      from (
        select p.destination, p.tenant_id, p.since, p.until, p.failures, p.why, p.probe, p.probe_claim
        from deed.pauses p
        where p.provider = n.name
        order by p.destination <> '', p.since, p.destination, p.tenant_id
        limit 20
      ) p
    ),
    (select jsonb_object_agg(r.lane, r.rate)::text from deed.rate_limits r where r.provider = n.name and r.run_id is null),
    case when p.idle_until > clock_timestamp() then
      jsonb_build_object('worker', p.idle_worker, 'kind', p.idle_kind, 'account', p.idle_account, 'sandbox', p.idle_sandbox)::text end,
    least(ready.deferred + waiting.deferred, p_most), least(ready.deferred_since, waiting.deferred_since)
  from (
    select p.name from deed.providers p
    union
    select p.provider from deed.pauses p
    union
    (
      with recursive names as (
        (select c.provider as name from deed.channel_outbox c where c.status = 'queued' and c.due order by c.provider limit 1)
        union all
        select (select c.provider from deed.channel_outbox c where c.status = 'queued' and c.due and c.provider > n.name order by c.provider limit 1)
        from names n where n.name is not null
      )
      select n.name from names n where n.name is not null
    )
    union
    (
      with recursive names as (
        (select c.provider as name from deed.channel_outbox c where c.status = 'queued' and not c.due order by c.provider limit 1)
        union all
        select (select c.provider from deed.channel_outbox c where c.status = 'queued' and not c.due and c.provider > n.name order by c.provider limit 1)
        from names n where n.name is not null
      )
      select n.name from names n where n.name is not null
    )
  ) n
  -- What is queued has two halves, with an index each.
  cross join lateral (
    select count(*) as n, count(c.deferred_since) as deferred, min(c.deferred_since) as deferred_since
    from (select c.deferred_since from deed.channel_outbox c where c.provider = n.name and c.status = 'queued' and c.due limit p_most) c
  ) ready
  cross join lateral (
    select count(*) as n, count(*) filter (where c.ord <= clock_timestamp()) as due,
      count(c.deferred_since) as deferred, min(c.deferred_since) as deferred_since
    from (
      select c.ord, c.deferred_since from deed.channel_outbox c where c.provider = n.name and c.status = 'queued' and not c.due order by c.ord limit p_most
    ) c
  ) waiting
  left join deed.providers p on p.name = n.name
  order by n.name
$$;
