-- deed.quiet_time: how much of the time between two moments is in the quiet hours that a
-- campaign's run has, by the clock of a zone (deed.after_quiet); none where it has no such hours. Who has no zone,
-- or one that this server does not know any more, has the run's (deed.time_in).
create or replace function deed.quiet_time(
  p_options jsonb,
  p_zone    text,
  p_from    timestamptz,
  p_upto    timestamptz
) returns interval
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_zone  text := coalesce(nullif(p_zone, ''), p_options ->> 'zone', 'UTC');
  v_quiet text := p_options ->> 'quiet_hours';
begin
  if v_quiet is null then
    return '0';
  end if;
  return coalesce((
    select sum(greatest(interval '0', least(p_upto, n.ends) - greatest(p_from, n.begins)))
    from (select split_part(v_quiet, '-', 1)::time as from_time, split_part(v_quiet, '-', 2)::time as upto_time) q
    cross join generate_series(-1, (p_upto at time zone v_zone)::date - (p_from at time zone v_zone)::date) i -- the first one's night may go on
    cross join lateral (select (p_from at time zone v_zone)::date + i as day) d
    cross join lateral (
      select (d.day + q.from_time) at time zone v_zone as begins,
        (d.day + q.upto_time + case when q.from_time < q.upto_time then interval '0' else interval '1 day' end) at time zone v_zone as ends
    ) n
  ), interval '0');
exception when invalid_parameter_value then
  return deed.quiet_time(case when coalesce(p_zone, '') = '' then p_options || '{"zone": "UTC"}' else p_options end, null, p_from, p_upto);
end
$$;
