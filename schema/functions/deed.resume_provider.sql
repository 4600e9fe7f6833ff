-- deed.resume_provider: end the pauses of a provider, or those of one of its
-- destinations, whosever; an operator's act, recorded with who and why.
--
-- What is still down is paused again by the next calls. Returns how many pauses
-- there were. Raises DDNFD if there was none, DDARG.
create or replace function deed.resume_provider(
  p_provider    text,
  p_destination text,
  p_reason      text,
  p_actor       text
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count bigint;
begin
  if coalesce(p_reason, '') = '' or coalesce(p_actor, '') = '' or length(p_actor) > 200 or length(p_reason) > 2000 then
    raise exception 'resume_provider: a reason and an actor are needed' using errcode = 'DDARG';
  end if;
  with ended as (
    delete from deed.pauses p
    where p.provider = p_provider and (p_destination is null or p.destination = p_destination)
    returning p.destination, p.since
  ),
  audited as (
    insert into deed.audit_log (actor, action, subject_type, subject_id, from_status, to_status, reason, affected, details)
    select p_actor, 'resume', 'provider', p_provider, 'paused', 'serving', p_reason, count(*),
      jsonb_strip_nulls(jsonb_build_object('destination', p_destination, 'since', min(e.since)))
    from ended e
    having count(*) > 0
  )
  select count(*) into v_count from ended;
  if v_count = 0 then
    raise exception 'resume_provider: % is not paused', concat_ws(', ', p_provider, nullif(p_destination, '')) using errcode = 'DDNFD';
  end if;
  return v_count;
end
$$;
