-- deed.run_waits: why of what a campaign's run has queued nothing goes now, or no faster; a
-- row for each reason, the nearest first. Who may see the run may ask, and of others there is
-- none.
--
-- quiet hours and local time: deliveries (counted among the next 10,000 of the tenant's that wait, and
-- where there are more, in ten of the run's jobs besides, so that what others have before it hides none) until
-- then, which is local_time by the clock of zone, where the most members are, and of zones
-- others; winner: members of a test's rest, until when it is decided at the earliest (null: a
-- person does); tried again: those that failed for now; provider paused: the provider's own pause;
-- rate: how many a second go at the most, and until when there is no token.
create or replace function deed.run_waits(p_run uuid)
returns table (why text, until timestamptz, local_time text, zone text, zones bigint, deliveries bigint, rate double precision)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
  with run as (
    select r.id, r.tenant_id, r.provider, r.zones, r.options, r.created_at, r.scheduled_for, r.winner, r.decide_at, clock_timestamp() as now
    from deed.campaign_runs r
    where r.id = p_run and r.finished_at is null
      and (r.tenant_id = deed.current_tenant() or pg_has_role(session_user, 'deed_worker', 'member') or pg_has_role(session_user, 'deed_admin', 'member'))
  ),
  members as (
    select coalesce(nullif(z.zone, ''), r.options ->> 'zone', 'UTC') as zone, z.n::bigint as n, t.due, t.loud
    from run r
    cross join lateral jsonb_each_text(r.zones) z(zone, n)
    cross join lateral deed.time_in(r.options, r.created_at, r.scheduled_for, z.zone, r.now) t
  ),
  nearest as materialized (
    select c.id, c.run_id, c.process_after, c.attempts
    from run r
    cross join lateral (
      select o.id, o.run_id, o.process_after, o.attempts
      from deed.channel_outbox o
      where o.provider = r.provider and o.tenant_id = r.tenant_id and o.status = 'queued' and not o.due and o.ord > r.now
      order by o.ord
      limit 10000
    ) c
  ),
  jobs as (
    select q.id, q.run_id
    from (
      select j.id, j.run_id, row_number() over (order by j.from_n) as i, count(*) over () as n
      from run r
      join deed.job_queue j on j.run_id = r.id and j.expanded_at is not null and j.finished_at is null and j.queued is distinct from 0
      where (select count(*) from nearest) = 10000
    ) q
    where (q.i - 1) % greatest((q.n + 9) / 10, 1) = 0
  ),
  later as (
    select c.process_after as until, count(*) as n, bool_or(c.attempts > 0) as again
    from (
      select w.id, w.process_after, w.attempts from nearest w cross join run r where w.run_id = r.id
      union
      select c.id, c.process_after, c.attempts
      from run r
      cross join jobs j
      cross join lateral (
        select o.id, o.process_after, o.attempts
        from deed.channel_outbox o
        where o.run_id = j.run_id and o.job_id = j.id and o.status = 'queued' and not o.due and o.ord > r.now
        offset 0
      ) c
    ) c
    group by c.process_after
  ),
  named as (
    select case when bool_or(m.loud = l.until) then 'quiet hours' when bool_or(m.due = l.until) then 'local time' when l.again then 'tried again' else 'scheduled' end as why,
      l.until, l.n, (array_agg(m.zone order by m.n desc, m.zone))[1] as zone, count(distinct m.zone) as zones
    from later l
    left join members m on l.until in (m.due, m.loud)
    group by l.until, l.n, l.again
  ),
  found as (
    select n.why, min(n.until) as until, min(n.zone) as zone, greatest(max(n.zones) - 1, 0) as zones, sum(n.n)::bigint as deliveries, null::float8 as rate
    from named n
    group by n.why, case when n.zone is not null then n.until end
    union all
    select 'winner', r.decide_at, null, 0, (select sum(j.members) from deed.job_queue j where j.run_id = r.id and j.part = 'rest' and j.finished_at is null), null
    from run r
    where r.options ? 'test' and r.winner is null
    union all
    select 'provider paused', p.until, null, 0, null, null
    from run r
    join deed.pauses p on p.provider = r.provider and p.destination = ''
    union all
    select 'rate', case when b.tokens < 1 then r.now + make_interval(secs => (1 - b.tokens) / b.rate) end, null, 0, null, b.rate
    from run r
    cross join lateral (
      select o.rate, least(o.burst, o.tokens + o.rate * greatest(0, extract(epoch from r.now - o.at))) as tokens
      from deed.rate_limits o
      where o.provider = r.provider and o.run_id = r.id
    ) b
  )
  select f.why, f.until, case when deed.is_zone(f.zone)
      then to_char(f.until at time zone f.zone, case when f.until < r.now + interval '20 hours' then 'HH24:MI' else 'YYYY-MM-DD HH24:MI' end) end,
    f.zone, f.zones, f.deliveries, f.rate
  from found f
  cross join run r
  where f.why <> 'winner' or f.deliveries > 0
  order by f.until nulls last, f.why
  limit 10
$$;
