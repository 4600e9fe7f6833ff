-- deed.plan_duration: what a plan writes as a duration, such as 1h30m or 7d; null for null.
create or replace function deed.plan_duration(
  p_text text
) returns interval
language sql
immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select make_interval(secs => sum(m[1]::float8 * case m[2] when 'd' then 86400 when 'h' then 3600 when 'm' then 60 when 's' then 1 when 'ms' then 1e-3 when 'ns' then 1e-9 else 1e-6 end))
  from regexp_matches(p_text, '([0-9.]+)(ns|us|µs|μs|ms|d|h|m|s)', 'g') m
$$;
