-- deed.window_problem: what is wrong with when a campaign's run is asked to go, by the options
-- at, if_passed, quiet_hours and zone; null, nothing.
create or replace function deed.window_problem(
  p_options       jsonb,
  p_scheduled_for timestamptz
) returns text
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_options ->> 'at' !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?$' then
    return 'at is a time of the recipient''s zone, such as 2026-03-20T09:00; what has an offset or a Z is scheduled_for';
  elsif p_options ? 'at' and p_scheduled_for is not null then
    return 'it begins at scheduled_for or, by the recipient''s zone, at the option at, and not at both';
  elsif p_options ? 'if_passed' and (p_options ->> 'if_passed' in ('now', 'next_day', 'skip') and p_options ? 'at') is not true then
    return 'if_passed is now, next_day or skip, and goes with at';
  elsif p_options ->> 'quiet_hours' !~ '^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$' then
    return 'quiet_hours are two times, such as 22:00-08:00';
  elsif p_options ? 'zone' and deed.is_zone(p_options ->> 'zone') is not true then
    return format('zone %s is not the name of a time zone, such as Europe/Berlin', coalesce(quote_literal(left(p_options ->> 'zone', 100)), 'null'));
  elsif p_options ? 'zone' and not p_options ?| '{at,quiet_hours}' then
    return 'zone is for those who have none, and goes with at or quiet_hours';
  end if;
  perform (p_options ->> 'at')::timestamp;
  return null;
exception when data_exception then
  return 'at is a time of the recipient''s zone, such as 2026-03-20T09:00';
end
$$;
