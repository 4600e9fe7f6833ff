-- deed.held_up: of the time since p_due, by p_now, what does not count for when who is due
-- then, and in a zone, expires in a campaign's run: that in which its rate has kept the run busy and, as nothing
-- goes by night to keep it busy, its quiet hours. None of a run without a rate.
create or replace function deed.held_up(
  p_provider text,
  p_run      uuid,
  p_options  jsonb,
  p_zone     text,
  p_due      timestamptz,
  p_now      timestamptz
) returns interval
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((
    select make_interval(secs => b.spent) + deed.quiet_time(p_options, p_zone, p_due, p_now)
    from deed.rate_limits b
    where b.provider = p_provider and b.run_id = p_run
  ), interval '0')
$$;
