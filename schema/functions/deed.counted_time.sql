-- deed.counted_time: how much of the time between two moments counts for when the members of a
-- campaign's run expire: all of it, or where its quiet hours do not (deed.held_up) the most that does in a zone of
-- theirs. By that a run that was paused, or whose test was waited for, expires later.
create or replace function deed.counted_time(
  p_run  uuid,
  p_from timestamptz,
  p_upto timestamptz
) returns interval
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select greatest(interval '0', p_upto - p_from - coalesce((
    select min(deed.quiet_time(r.options, z, p_from, p_upto))
    from deed.campaign_runs r
    join deed.rate_limits b on b.provider = r.provider and b.run_id = r.id
    cross join lateral jsonb_object_keys(r.zones) z
    where r.id = p_run
  ), interval '0'))
$$;
