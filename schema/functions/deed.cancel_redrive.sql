-- deed.cancel_redrive: end a redrive that is not done. What it has put back
-- stays so. Waits for the step that is under way. Raises DDNFD, DDCON when the
-- redrive is done, and DDARG.
create or replace function deed.cancel_redrive(
  p_request text,
  p_reason  text default null,
  p_by      text default null
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_r deed.redrives%rowtype;
begin
  if length(p_by) not between 1 and 200 or length(p_reason) > 2000 then
    raise exception 'cancel_redrive: who asks is a name of 1 to 200 characters, a reason has up to 2000' using errcode = 'DDARG';
  end if;
  select r.* into v_r from deed.redrives r where r.request = p_request for update;
  if not found then
    raise exception 'cancel_redrive: there is no request %', quote_literal(coalesce(p_request, '')) using errcode = 'DDNFD';
  end if;
  if v_r.state = 'done' then
    raise exception 'cancel_redrive: the request % is done', quote_literal(p_request) using errcode = 'DDCON';
  end if;
  if v_r.state = 'running' then
    update deed.redrives r set state = 'cancelled', finished_at = clock_timestamp() where r.request = p_request;
    insert into deed.audit_log (actor, action, subject_type, subject_id, from_status, to_status, reason, affected, details)
    values (coalesce(p_by, session_user), 'redrive cancelled', 'redrive', p_request, 'running', 'cancelled', p_reason, 0,
      jsonb_build_object('redriven', v_r.redriven, 'chosen', v_r.chosen));
  end if;
  return v_r.redriven;
end
$$;
