-- deed.choose_winner: have the rest of a run's audience get this variant of its test, whatever
-- its test is decided by and however far it is. It is written once: the same one again changes
-- nothing and returns false, another one is refused. Of a run that has ended without one, as when
-- it was cancelled, it says what a retry brings to them. Raises DDTEN, DDNFD, DDARG for what is no
-- variant of the run, and DDCON where there is no test, it is decided otherwise, or the run is being cancelled.
create or replace function deed.choose_winner(
  p_run     uuid,
  p_variant text,
  p_reason  text default null,
  p_tenant  uuid default null,
  p_actor   text default null
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_xid    xid8 := pg_current_xact_id(); -- before it is asked whether the tenant was removed: who removes it waits for this
  v_tenant uuid := deed.tenant_of_call('choose_winner', p_tenant);
  v_run    deed.campaign_runs;
begin
  select r.* into v_run from deed.campaign_runs r where r.id = p_run and r.tenant_id = v_tenant for no key update;
  if not found then
    raise exception 'choose_winner: there is no run %', p_run using errcode = 'DDNFD';
  elsif not v_run.options ? 'test' then
    raise exception 'choose_winner: run % has no test', p_run using errcode = 'DDCON';
  elsif (v_run.options -> 'variants' ? p_variant) is not true then
    raise exception 'choose_winner: run % has no variant %; it has %', p_run, coalesce(quote_literal(left(p_variant, 100)), 'null'),
      array_to_string((deed.cells_of(v_run.options, v_run.request_id)).names, ', ') using errcode = 'DDARG';
  elsif v_run.winner = p_variant then
    return false;
  elsif v_run.winner is not null then
    raise exception 'choose_winner: the winner of run % is %, since %', p_run, v_run.winner, v_run.winner_at using errcode = 'DDCON';
  elsif v_run.cancelled_at is not null and v_run.finished_at is null then
    raise exception 'choose_winner: run % is being cancelled', p_run using errcode = 'DDCON', hint = 'Once it has ended, its winner is what a retry brings to the rest.';
  end if;
  perform deed.write_winner(p_run, p_variant, clock_timestamp(), coalesce(nullif(left(p_actor, 200), ''), session_user), p_reason, jsonb_build_object('by', 'person'));
  return true;
end
$$;
