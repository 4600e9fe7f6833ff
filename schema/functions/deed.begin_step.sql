-- deed.begin_step: may a step that is claimed still begin? null: it may. For whoever has had it
-- in hand for a while, and always for a step whose attempt must not be repeated: that it has begun is kept,
-- and if its lease runs out after this nobody repeats it.
--
-- lost: the claim is another's by now, has run out, or its run has ended. paused: its run is paused.
create or replace function deed.begin_step(
  p_run   uuid,
  p_place int,
  p_claim bigint
) returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '1s' -- somebody may be ending the run, in a transaction that is left open
set jit = off
as $$
declare
  v_status text;
begin
  -- That it has begun must have been flushed: otherwise a crash takes it back, and it is repeated.
  if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  update deed.run_steps s
  set begun_at = coalesce(s.begun_at, clock_timestamp()), begun_claim = p_claim
  where s.run_id = p_run and s.place = p_place and s.claim = p_claim and s.lease_until > clock_timestamp() and s.verdict is null;
  if not found then
    return 'lost';
  end if;
  select r.status into v_status from deed.runs r where r.run_id = p_run;
  if v_status = 'PAUSED' then
    update deed.run_steps s
    set begun_at = case when s.parked then s.begun_at end, begun_claim = case when s.parked then 0 end -- before it waited it has begun
    where s.run_id = p_run and s.place = p_place and s.claim = p_claim;
    return 'paused';
  end if;
  return null;
end
$$;
