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
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
as $$
  with items as materialized (
    select c.status, c.status in ('sent', 'called', 'posted') as done, c.doubt_since is not null as in_doubt, c.held_at is not null as held,
      case when c.status in ('skipped', 'failed', 'dead') then left(split_part(coalesce(c.skip_reason, c.last_error, ''), ':', 1), 100) end as reason,
      coalesce(split_part(c.skip_reason, ';', 1) in ('cancelled', 'expired'), false) as missed
    from deed.channel_outbox c
    where c.run_id = p_run and c.job_id = p_job
  ),
  sums as (
    select count(*) filter (where i.done)::int as sent, count(*) filter (where i.status = 'skipped' and not i.missed)::int as skipped,
      count(*) filter (where i.status = 'skipped' and i.missed)::int as missed, count(*) filter (where i.status = 'failed')::int as failed,
      count(*) filter (where i.status = 'dead')::int as dead, count(*) filter (where i.status = 'queued')::int as queued,
      count(*) filter (where i.status = 'sending')::int as sending, count(*) filter (where i.in_doubt)::int as in_doubt, count(*) filter (where i.held)::int as held
    from items i
  ),
  named as (
    select i.status, case when i.reason ~ '@|%40|[0-9][0-9 ()./-]{5,}[0-9]' then '' else i.reason end as reason, count(*) as n
    from items i
    where i.reason is not null
    group by 1, 2
    order by 3 desc, 1, 2
    limit 20
  )
  select s.*, coalesce((select jsonb_agg(jsonb_build_array(n.status, n.reason, n.n)) from named n), '[]')
  from sums s
$$;
