-- deed.look_at_rates: what providers took in the last hour and day, and what they have said
-- of it since: by provider, and by the p_domains recipients' domains of each to which most
-- went; all others are the domain ''. p_provider null: all of them.
--
-- Of each of the last twenty-four hours the newest p_each that ended are read, by the index
-- on when they did, whatever there is of more: whole is false where there was. What was
-- refused at the call, or went to the sandbox, is in none; what bounced softly, for now, is
-- no bounce here, since services count none against an account.
create or replace function deed.look_at_rates(
  p_each     int,
  p_domains  int default 0,
  p_provider text default null
) returns table (
  provider text, domain text, whole boolean,
  hour_accepted bigint, hour_delivered bigint, hour_bounced bigint, hour_complained bigint,
  day_accepted bigint, day_delivered bigint, day_bounced bigint, day_complained bigint
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
  with looked as (
    select h.n as hour, c.provider, c.domain, count(*) as looked, count(*) filter (where c.taken) as accepted,
      count(f.delivered_at) as delivered, count(f.bounced_at) filter (where f.bounce is distinct from 'soft') as bounced, count(f.complained_at) as complained
    from generate_series(0, 23) h(n)
    cross join lateral (
      select o.id, o.provider, o.status in ('sent', 'called', 'posted') and not o.sandbox as taken,
        case when p_domains > 0 then coalesce(o.recipient_domain, '') else '' end as domain
      from deed.channel_outbox o
      where o.finished_at > statement_timestamp() - make_interval(hours => h.n + 1)
        and o.finished_at <= case when h.n > 0 then statement_timestamp() - make_interval(hours => h.n) else 'infinity' end
      order by o.finished_at desc
      limit p_each
    ) c
    left join deed.delivery_feedback f on f.delivery_id = c.id and c.taken
    group by h.n, c.provider, c.domain
  ),
  -- Which domains are told by name: the first p_domains of each provider.
  ranked as (
    select d.provider, d.domain, row_number() over (partition by d.provider order by d.accepted desc, d.domain) as place
    from (
      select l.provider, l.domain, sum(l.accepted) as accepted from looked l where l.domain <> '' group by l.provider, l.domain
    ) d
  )
  select l.provider, coalesce(r.domain, ''), not exists (select from looked m group by m.hour having sum(m.looked) >= p_each),
    coalesce(sum(l.accepted) filter (where l.hour = 0), 0)::bigint, coalesce(sum(l.delivered) filter (where l.hour = 0), 0)::bigint,
    coalesce(sum(l.bounced) filter (where l.hour = 0), 0)::bigint, coalesce(sum(l.complained) filter (where l.hour = 0), 0)::bigint,
    sum(l.accepted)::bigint, sum(l.delivered)::bigint, sum(l.bounced)::bigint, sum(l.complained)::bigint
  from looked l
  left join ranked r on r.provider = l.provider and r.domain = l.domain and r.place <= p_domains
  where l.accepted > 0 and (p_provider is null or l.provider = p_provider)
  group by l.provider, coalesce(r.domain, '')
  order by l.provider, sum(l.accepted) desc, coalesce(r.domain, '')
$$;
