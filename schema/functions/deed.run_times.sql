-- deed.run_times: when the members of an audience are due in a run that is asked for with
-- these options at p_made: the first and the last of them, nulls where nobody ever is, and how
-- many are in which zone ('' for those without one). It reads each member. Each claim of the provider asks what time it
-- is in each of these zones: of more than 1,000 there are no times, and zones is their number. Where neither a
-- local time nor quiet hours are asked for zones is null, and it reads none.
create or replace function deed.run_times(
  in  p_audience uuid,
  in  p_options  jsonb,
  in  p_made     timestamptz,
  in  p_for      timestamptz,
  out zones      jsonb,
  out first_due  timestamptz,
  out last_due   timestamptz
)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_zones bigint;
begin
  if not p_options ?| '{at,quiet_hours}' then
    first_due := p_for;
    return;
  end if;
  select jsonb_object_agg(z.zone, z.n), count(*) filter (where z.zone <> '') into zones, v_zones
  from (
    select coalesce(m.zone, '') as zone, count(*) as n from deed.audience_members m where m.audience_id = p_audience group by 1
  ) z;
  if v_zones > 1000 then
    zones := to_jsonb(v_zones);
    return;
  end if;
  select min(t.due), max(t.due) into first_due, last_due
  from jsonb_object_keys(zones) z
  cross join lateral deed.time_in(p_options, p_made, p_for, z, p_made) t;
end
$$;
