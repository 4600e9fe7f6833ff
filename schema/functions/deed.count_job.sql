-- deed.count_job: what has become of the deliveries of a job of a campaign's run that the caller
-- may see, by its rows. missed are those that were skipped since the run was cancelled or has
-- expired; reasons are the most frequent ones of those that did not get it, up to twenty, each a
-- list of status, reason and count. A reason is what stands before its first colon; one with what
-- may be an address in it is left out, since it stays when somebody is erased.
create or replace function deed.count_job(
  p_run uuid,
  p_job uuid,
  out sent     int,
  out skipped  int,
  out missed   int,
  out failed   int,
  out dead     int,
  out queued   int,
  out sending  int,
  out in_doubt int,
  out held     int,
  out reasons  jsonb
) returns record
language plpgsql -- its plan is kept
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
  with kinds as materialized (
    select c.status, c.doubt_since is not null as in_doubt, c.held_at is not null as held,
      case when c.status in ('skipped', 'failed', 'dead') then left(split_part(coalesce(c.skip_reason, c.last_error, ''), ':', 1), 100) end as reason,
      coalesce(split_part(c.skip_reason, ';', 1) in ('cancelled', 'expired'), false) as missed,
      count(*) as n
    from deed.channel_outbox c
    where c.run_id = p_run and c.job_id = p_job
    group by 1, 2, 3, 4, 5
  ),
  sums as (
    select coalesce(sum(k.n) filter (where k.status in ('sent', 'called', 'posted')), 0)::int as sent,
      coalesce(sum(k.n) filter (where k.status = 'skipped' and not k.missed), 0)::int as skipped,
      coalesce(sum(k.n) filter (where k.status = 'skipped' and k.missed), 0)::int as missed,
      coalesce(sum(k.n) filter (where k.status = 'failed'), 0)::int as failed, coalesce(sum(k.n) filter (where k.status = 'dead'), 0)::int as dead,
      coalesce(sum(k.n) filter (where k.status = 'queued'), 0)::int as queued, coalesce(sum(k.n) filter (where k.status = 'sending'), 0)::int as sending,
      coalesce(sum(k.n) filter (where k.in_doubt), 0)::int as in_doubt, coalesce(sum(k.n) filter (where k.held), 0)::int as held
    from kinds k
  ),
  named as (
    select k.status, case when k.reason ~ '@|%40|[0-9][0-9 ()./-]{5,}[0-9]' then '' else k.reason end as reason, sum(k.n) as n
    from kinds k
    where k.reason is not null
    group by 1, 2
    order by 3 desc, 1, 2
    limit 20
  )
  select s.sent, s.skipped, s.missed, s.failed, s.dead, s.queued, s.sending, s.in_doubt, s.held, coalesce((select jsonb_agg(jsonb_build_array(n.status, n.reason, n.n)) from named n), '[]')
  into sent, skipped, missed, failed, dead, queued, sending, in_doubt, held, reasons
  from sums s;
end
$$;
