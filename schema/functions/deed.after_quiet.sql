-- deed.after_quiet: the first moment from p_at on that is in no quiet hours, such as
-- 22:00-08:00, of a zone.
--
-- It is the zone's clock that counts: hours that a change of clocks skips are not there, and
-- an end among these is as much later. Of an end that comes twice it is the second. Raises
-- 22023 for a zone that there is not.
create or replace function deed.after_quiet(
  p_at    timestamptz,
  p_quiet text,
  p_zone  text
) returns timestamptz
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_from  time := split_part(p_quiet, '-', 1)::time;
  v_upto  time := split_part(p_quiet, '-', 2)::time;
  v_local timestamp;
begin
  -- An end that was skipped may be in the next quiet hours.
  for i in 1..3 loop
    v_local := p_at at time zone p_zone;
    exit when case when v_from < v_upto then v_local::time < v_from or v_local::time >= v_upto else v_local::time < v_from and v_local::time >= v_upto end;
    p_at := (v_local::date + v_upto + case when v_local::time >= v_upto then interval '1 day' else interval '0' end) at time zone p_zone;
  end loop;
  return p_at;
end
$$;
