-- deed.time_in: when a member of a campaign's run is due, whose zone is p_zone, and from when
-- on, at p_now or later, quiet hours let it go.
--
-- due follows from what the run was asked for alone: the time of its own zone, or
-- scheduled_for, and then the end of quiet hours. Null: its time had passed when the run was
-- made, and it is skipped then (if_passed). Who has no zone, or one that this server does not
-- know any more, has the run's.
create or replace function deed.time_in(
  in  p_options jsonb,
  in  p_made    timestamptz,
  in  p_for     timestamptz,
  in  p_zone    text,
  in  p_now     timestamptz,
  out due       timestamptz,
  out loud      timestamptz
)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_zone  text := coalesce(nullif(p_zone, ''), p_options ->> 'zone', 'UTC');
  v_local timestamp := p_options ->> 'at';
  v_quiet text := p_options ->> 'quiet_hours';
begin
  due := coalesce(v_local at time zone v_zone, p_for);
  if v_local is not null and due < p_made then
    due := case p_options ->> 'if_passed' when 'skip' then null when 'now' then p_made else ((p_made at time zone v_zone)::date + v_local::time) at time zone v_zone end;
    if due < p_made then
      due := ((p_made at time zone v_zone)::date + 1 + v_local::time) at time zone v_zone;
    end if;
  end if;
  loud := p_now;
  if v_quiet is not null then
    due := deed.after_quiet(due, v_quiet, v_zone);
    loud := deed.after_quiet(p_now, v_quiet, v_zone);
  end if;
exception when invalid_parameter_value then
  select t.due, t.loud into due, loud
  from deed.time_in(case when coalesce(p_zone, '') = '' then p_options || '{"zone": "UTC"}' else p_options end, p_made, p_for, null, p_now) t;
end
$$;
